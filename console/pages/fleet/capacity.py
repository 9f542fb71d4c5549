"""Capacity: what the GPUs of each model have, what is promised of them, what still fits."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from allocator.catalog.boards import bare_name
from allocator.model.gpu import Gpu
from allocator.model.request import Mode
from allocator.model.units import MiB
from allocator.placement.mig import MigOptions
from allocator.scheduling.capacity import largest_free
from console.cluster.snapshot import ClusterView
from console.pages.parts.blocks import PageTable, TableColumn
from console.pages.parts.cell import TableCell, code, mib, number, percent

COLUMNS: Final = (
    TableColumn(key="model", title="Model"),
    TableColumn(key="mode", title="Mode"),
    TableColumn(key="gpus", title="GPUs", numeric=True),
    TableColumn(key="unusable", title="Out of service", numeric=True),
    TableColumn(key="memory_mib", title="Memory", numeric=True),
    TableColumn(key="promised_mib", title="Promised", numeric=True),
    TableColumn(key="promised_percent", title="Share", numeric=True),
    TableColumn(key="fits_mib", title="Largest that fits", numeric=True),
)


@dataclass(slots=True)
class ModelCapacity:
    """The GPUs of one model in one mode; amounts in MiB."""

    gpus: int = 0
    unusable: int = 0
    memory: int = 0
    promised: int = 0
    fits: int | None = None


@dataclass(slots=True)
class FreeRoom:
    """The most that one more container may have on a GPU, computed once for equal ones."""

    options: MigOptions
    _known: dict[object, MiB | None] = field(default_factory=dict)

    def __call__(self, gpu: Gpu) -> MiB | None:
        """Return the largest request that *gpu* takes, ``None`` where it takes none."""
        if gpu.mode is not Mode.MIG:
            return largest_free(gpu, self.options)
        key = (gpu.board, gpu.taken_slots, gpu.instances, len(gpu.grants), gpu.slots, gpu.foreign)
        if key not in self._known:
            self._known[key] = largest_free(gpu, self.options)
        return self._known[key]


def capacity(site: ClusterView) -> Mapping[tuple[str, Mode], ModelCapacity]:
    """Return what there is, by model and mode."""
    room = _room(site)
    found: dict[tuple[str, Mode], ModelCapacity] = {}
    for name, ledger in site.ledgers.items():
        closed = bool(site.closed_reason(name))
        for gpu in ledger.node.gpus:
            _count(
                found.setdefault((gpu.model, gpu.mode), ModelCapacity()), gpu, room, closed=closed
            )
    return found


def _room(site: ClusterView) -> FreeRoom:
    snapshot, policy = site.snapshot(), site.configuration.policy
    return FreeRoom(MigOptions(demand=snapshot.demand, geometries=policy.geometries, named=None))


def _count(kind: ModelCapacity, gpu: Gpu, room: FreeRoom, *, closed: bool) -> None:
    kind.gpus += 1
    kind.memory += gpu.memory
    kind.promised += gpu.memory_promised
    if closed or not gpu.healthy:
        kind.unusable += 1
        return
    fits = room(gpu)
    if fits is not None:
        kind.fits = max(kind.fits or 0, fits)


def capacity_table(site: ClusterView) -> PageTable:
    """Return the capacity by model as a table, the most memory first."""
    kinds = sorted(capacity(site).items(), key=lambda pair: (-pair[1].memory, pair[0]))
    return PageTable(
        name="capacity",
        caption="Capacity by model",
        columns=COLUMNS,
        rows=tuple(_rows(kinds)),
        empty="No GPU is known. Label a node, and its agent reports what it has:",
        command="kubectl label node gpu-1 vgpu-admission.io/node=enabled",
    )


def _rows(
    kinds: Iterable[tuple[tuple[str, Mode], ModelCapacity]],
) -> Iterable[tuple[TableCell, ...]]:
    for (model, mode), kind in kinds:
        yield (
            code(bare_name(model)),
            code(str(mode)),
            number(kind.gpus),
            number(kind.unusable),
            mib(kind.memory),
            mib(kind.promised),
            percent(kind.promised, kind.memory),
            mib(kind.fits, why="nothing fits"),
        )
