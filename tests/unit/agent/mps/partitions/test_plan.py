"""Steps towards the partitions of one GPU: nobody's are removed, everybody's are made."""

import pytest

from agent.mps.partitions.plan import (
    Held,
    MakePartition,
    Partitioned,
    RemovePartition,
    WriteBook,
    ended_by,
    partition_step,
)
from agent.mps.partitions.table import HeldPartition, Holder, ListedPartition, PartitionTable
from allocator.model.request import Stage

NEW = HeldPartition(chunks=2)
HAS = HeldPartition(chunks=2, name="DxA")
ALL = frozenset({"u/a", "u/b"})


def table(*, in_use: bool = False, free: int = 10, **chunks: int) -> PartitionTable:
    """Return the table of a GPU with these partitions."""
    partitions = {
        name: ListedPartition(chunks=number, in_use=in_use) for name, number in chunks.items()
    }
    return PartitionTable(free=free, used=sum(chunks.values()), partitions=partitions)


@pytest.mark.parametrize(
    ("seen", "book", "wanted", "step"),
    [
        pytest.param(table(), {}, {}, Partitioned({}), id="nothing"),
        pytest.param(table(), {}, {"u/a": NEW}, WriteBook({"u/a": NEW}), id="book-first"),
        pytest.param(table(), {"u/a": NEW}, {"u/a": NEW}, MakePartition("u/a"), id="then-make"),
        pytest.param(table(DxA=2), {"u/a": HAS}, {"u/a": NEW}, Partitioned({}), id="made"),
        pytest.param(table(DxA=2), {"u/a": HAS}, {}, Partitioned({}), id="of-an-earlier-agent"),
        pytest.param(table(DxA=2), {}, {}, RemovePartition("DxA"), id="orphan"),
        pytest.param(table(DxA=2, in_use=True), {}, {}, Partitioned({}), id="orphan-in-use"),
        pytest.param(
            table(DxA=2),
            {"u/a": NEW},
            {"u/a": NEW},
            RemovePartition("DxA"),
            id="made-and-killed-before-it-was-written",
        ),
        pytest.param(table(DxA=2), {"u/a": NEW}, {}, WriteBook({}), id="begun-and-killed"),
        pytest.param(table(), {"u/a": HAS}, {}, WriteBook({}), id="lost-with-its-daemon"),
        pytest.param(table(DxA=2), {"gone/a": HAS}, {}, WriteBook({}), id="entry-has-ended"),
        pytest.param(
            table(DxA=2),
            {"u/a": HAS},
            {"u/a": HeldPartition(chunks=3)},
            WriteBook({}),
            id="another-size",
        ),
        pytest.param(table(), {}, {"gone/a": NEW}, Partitioned({}), id="wanted-without-an-entry"),
        pytest.param(
            table(free=1),
            {},
            {"u/a": NEW},
            Partitioned({"u/a": "its partition takes 2 of the GPU's 1 chunks, and 1 are free"}),
            id="no-room",
        ),
    ],
)
def test_one_step_after_another(
    seen: PartitionTable, book: Held, *, wanted: Held, step: object
) -> None:
    """Each may be repeated after a crash."""
    assert partition_step(seen, book, wanted=wanted, holders=ALL) == step


@pytest.mark.parametrize(
    ("starting", "stage", "ended"),
    [
        pytest.param("u/app", Stage.APP, {"u/init"}, id="app"),
        pytest.param("u/init2", Stage.INIT, {"u/init", "u/app"}, id="init"),
        pytest.param("u/new", Stage.SIDECAR, {"u/init"}, id="new-sidecar"),
        pytest.param("u/side", Stage.SIDECAR, set(), id="sidecar-again"),
        pytest.param("u2/app", Stage.APP, set(), id="another-pod"),
    ],
)
def test_containers_that_use_a_gpu_in_turn_leave_it_to_the_next(
    starting: str, stage: Stage, ended: set[str]
) -> None:
    """Their pod was promised the most that it holds at one time, not the sum."""
    held = {
        "u/init": HeldPartition(chunks=1, stage=Stage.INIT),
        "u/side": HeldPartition(chunks=1, stage=Stage.SIDECAR),
        "u/app": HeldPartition(chunks=1, stage=Stage.APP),
        "u3/init": HeldPartition(chunks=1, stage=Stage.INIT),
    }
    uid, _, name = starting.partition("/")

    assert ended_by(held, Holder(uid, name), stage) == ended
