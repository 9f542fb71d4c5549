"""The next step towards a partition for each container that starts, and for nobody else.

The book says who holds which partition, and is on disk before a partition is made and after. So
whatever a crash left behind is in the daemon's table and not in the book, and is removed.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from agent.mps.partitions.table import HeldPartition, Holder, PartitionTable
from allocator.model.request import Stage

Held = Mapping[str, HeldPartition]  # by the key of their holder


@dataclass(frozen=True, slots=True)
class RemovePartition:
    """Remove a partition that is nobody's."""

    name: str


@dataclass(frozen=True, slots=True)
class WriteBook:
    """Write who holds what."""

    held: Held


@dataclass(frozen=True, slots=True)
class MakePartition:
    """Make the partition of a holder that is in the book."""

    key: str


@dataclass(frozen=True, slots=True)
class Partitioned:
    """Nothing to do now; ``missing`` says by holder why there is no partition yet."""

    missing: Mapping[str, str]


PartitionStep = RemovePartition | WriteBook | MakePartition | Partitioned


def partition_step(
    table: PartitionTable, book: Held, *, wanted: Held, holders: Collection[str]
) -> PartitionStep:
    """Return what to do next with the partitions of one GPU.

    *wanted* are those of containers that start, *holders* the containers that have an entry.
    """
    kept = {
        key: held
        for key, held in book.items()
        if key in holders and _stays(held, table, wanted=wanted.get(key))
    }
    if kept != book:
        return WriteBook(kept)
    names = {held.name for held in book.values()}
    for name, listed in table.partitions.items():
        if name not in names and not listed.in_use:
            return RemovePartition(name)
    missing: dict[str, str] = {}
    for key, held in wanted.items():
        if key not in holders or (key in book and book[key].name):
            continue
        if held.chunks > table.free:
            missing[key] = (
                f"its partition takes {held.chunks} of the GPU's {table.chunks} chunks, and "
                f"{table.free} are free"
            )
        elif key not in book:
            return WriteBook({**book, key: held})
        else:
            return MakePartition(key)
    return Partitioned(missing)


def _stays(held: HeldPartition, table: PartitionTable, *, wanted: HeldPartition | None) -> bool:
    """Say whether *held*, of a container with an entry, stays in the book: the daemon has it."""
    if wanted is not None and wanted.chunks != held.chunks:  # of a new entry of the pod
        return False
    return held.name in table.partitions if held.name else wanted is not None


def ended_by(held: Held, holder: Holder, stage: Stage) -> frozenset[str]:
    """Return the keys of containers of the pod that have ended, now that *holder* starts.

    A pod's containers use the GPU in turn: an init container runs alone but for sidecars, and has
    ended when an app container starts. A sidecar that is new starts between init containers; one
    that starts again may do so beside one. *held* are the partitions of the pod's containers.
    """
    ended: set[Stage] = set()
    if stage is Stage.INIT:
        ended = {Stage.INIT, Stage.APP}
    elif stage is Stage.APP or str(holder) not in held:
        ended = {Stage.INIT}
    return frozenset(
        key
        for key, one in held.items()
        if key != str(holder) and key.startswith(holder.pod_prefix) and one.stage in ended
    )
