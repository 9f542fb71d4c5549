"""Whatever is on a node, Volcano's scheduler is shown GPUs that are no roomier than they are."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from allocator.ledger.registered_capacity import counted_uids, register_of, registered_gpus
from allocator.model.allocation import Entry, Grant
from allocator.model.gpu import Gpu, Node
from allocator.model.request import Mode
from allocator.model.units import CorePercent, MiB
from allocator.request.pod_summary import PodSummary
from allocator.volcano.register import decode_register, encode_register, node_from_register
from tests.builders.gpunodes import entry, ledger
from tests.builders.model import A100_40, T4, model

UIDS = ("a", "b", "c", "d", "e")
SETS = st.frozensets(st.sampled_from(UIDS))


@st.composite
def gpus(draw: st.DrawFn, index: int) -> Gpu:
    known = model(draw(st.sampled_from([A100_40, T4])))
    cut = known.board is not None and draw(st.booleans())
    return Gpu(
        uuid=f"GPU-{index}",
        index=index,
        model=known.name,
        memory=known.memory,
        mode=Mode.MIG if cut else Mode.HAMI_CORE,
        slots=draw(st.integers(0, 10)),
        board=known.board if cut else None,
        healthy=draw(st.booleans()),
        foreign=MiB(draw(st.integers(0, 2 * known.memory))),
    )


@st.composite
def grants(draw: st.DrawFn) -> Grant:
    return Grant(
        gpu=f"GPU-{draw(st.integers(0, 4))}",
        mode=draw(st.sampled_from(Mode)),
        memory=MiB(draw(st.integers(0, 50_000))),
        cores=CorePercent(draw(st.integers(0, 100))),
        position=draw(st.none() | st.just("group1-0")),
    )


NODES = st.integers(0, 4).flatmap(lambda n: st.tuples(*(gpus(i) for i in range(n))))
ENTRIES = st.lists(st.lists(grants(), max_size=3), max_size=len(UIDS)).map(
    lambda found: [entry(uid, *held) for uid, held in zip(UIDS, found, strict=False)]
)


@given(node=NODES, entries=ENTRIES, counted=SETS, shut=st.booleans())
def test_it_survives_the_annotation(
    *, node: Sequence[Gpu], entries: list[Entry], counted: frozenset[str], shut: bool
) -> None:
    """Every GPU stays, in the order of indexes, and what is shown is what is read."""
    shown = registered_gpus(node, entries, counted, closed=shut)
    read = decode_register(encode_register(shown))

    kept = [gpu for gpu in shown if gpu.memory]
    assert [gpu.uuid for gpu in shown] == [gpu.uuid for gpu in node]
    assert [(r.uuid, r.count, r.memory, r.mode) for r in read.records] == [
        (gpu.uuid, gpu.slots, gpu.memory, gpu.mode) for gpu in kept
    ]


@given(node=NODES, entries=ENTRIES, counted=SETS, factor=st.integers(1, 100))
def test_nothing_is_ever_negative_or_unreadable(
    *, node: Sequence[Gpu], entries: list[Entry], counted: frozenset[str], factor: int
) -> None:
    """Upstream reads a negative count as one beyond all bounds."""
    found = replace(ledger(Node(name="n0", gpus=tuple(node))), entries=tuple(entries))

    read = decode_register(register_of(found, counted, present="", factor=factor))

    assert not read.problems
    assert len(read.records) == len(node)
    for record, gpu in zip(read.records, node, strict=True):
        assert 0 <= record.count <= gpu.slots
        assert 1 <= record.memory <= max(1, gpu.memory // factor)


@given(NODES, ENTRIES, SETS)
def test_less_is_never_more(
    node: Sequence[Gpu], entries: list[Entry], counted: frozenset[str]
) -> None:
    """A further promise that it cannot see, foreign memory, or a broken GPU leave no more room."""
    before = registered_gpus(node, entries, counted)
    ill = [replace(gpu, healthy=False) for gpu in node]
    fuller = [replace(gpu, foreign=MiB(gpu.foreign + 100)) for gpu in node]
    more = [*entries, entry("z", *(g for e in entries for c in e.containers for g in c.grants))]

    for after in (
        registered_gpus(ill, entries, counted),
        registered_gpus(fuller, entries, counted),
        registered_gpus(node, more, counted),
        registered_gpus(node, entries, counted, closed=True),
    ):
        assert all(b.slots <= a.slots for a, b in zip(before, after, strict=True))
        assert all(b.memory <= a.memory for a, b in zip(before, after, strict=True))


@given(NODES, ENTRIES, SETS)
def test_its_account_and_ours_agree(
    node: Sequence[Gpu], entries: list[Entry], counted: frozenset[str]
) -> None:
    """In software: what is shown less what it counts itself is what is free."""
    soft = [replace(gpu, mode=Mode.HAMI_CORE, board=None) for gpu in node]
    held = [
        (e.uid, msgspec.structs.replace(g, mode=Mode.HAMI_CORE))
        for e in entries
        for c in e.containers
        for g in c.grants
    ]

    shown = registered_gpus(soft, [entry(uid, grant) for uid, grant in held], counted)

    for gpu, as_seen in zip(soft, shown, strict=True):
        here = [(uid, grant) for uid, grant in held if grant.gpu == gpu.uuid]
        free = gpu.memory - gpu.foreign - sum(grant.memory for _, grant in here)
        room = as_seen.memory - sum(grant.memory for uid, grant in here if uid in counted)
        assert room == free or max(room, free) <= 0


@given(NODES, SETS)
def test_a_node_that_cannot_be_believed_is_shut_in_full(
    node: Sequence[Gpu], counted: frozenset[str]
) -> None:
    """What was registered stays, with nothing to give, however little its status says now."""
    present = encode_register(node)
    empty = ledger(Node(name="n0", gpus=()), inventory="")

    text = register_of(empty, counted, present=present, factor=1)

    records = decode_register(text).records
    assert [r.uuid for r in records] == [
        gpu.uuid for gpu in node_from_register("n0", present).node.gpus
    ]
    assert all(record.count == 0 for record in records)


def test_only_live_pods_bound_there_are_counted() -> None:
    """Those whose annotations a scheduler of its kind has seen, and not yet forgotten."""
    entries = [entry(uid) for uid in UIDS]
    live = PodSummary(uid="a", node="n0", deleting=False, over=False, assignment_json="[]")
    pods = [
        live,
        replace(live, uid="b", node="n1"),
        replace(live, uid="c", over=True),
        replace(live, uid="d", assignment_json=""),
        replace(live, uid="stranger"),
    ]

    assert counted_uids(entries, pods, node="n0") == {"a"}
