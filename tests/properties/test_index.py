"""The index, kept up to date change by change, says what one built at once says."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from allocator.config.settings import DEFAULTS
from allocator.extender.filter import FilterContext, filter_nodes
from allocator.extender.index import Index, IndexBuilder, NodesByPod
from allocator.extender.pod import SchedulingPod
from allocator.extender.prioritize import score_nodes
from allocator.extender.score import scorer
from allocator.ledger.assign import PodClaim
from allocator.model.allocation import Entry
from allocator.model.gpu import Gpu, Node
from allocator.model.request import FillPolicy, Filters, Mode, PodRequest
from allocator.model.usage import peak_grants, with_grants
from allocator.placement.choose import FitVerdict, PlacementPolicy, choose, place_on
from allocator.placement.fleet import snapshot_of
from tests.builders.gpunodes import entry, ledger, several
from tests.builders.model import (
    A30,
    A100_40,
    T4,
    ask,
    gpu,
    init,
    mig_grant,
    node,
    pod,
    sidecar,
    snapshot,
    soft_grant,
)

NAMES = [f"n{i}" for i in range(6)]
SCORERS = [scorer(packing, DEFAULTS.score_weights) for packing in FillPolicy]
CIRCUMSTANCES = FilterContext(policy=PlacementPolicy())

soft = st.builds(
    lambda product, amounts, index: gpu(
        product, index=index, grants=[soft_grant(memory, cores) for memory, cores in amounts]
    ),
    st.sampled_from([A100_40, T4]),
    st.lists(
        st.tuples(st.sampled_from([1000, 7000, 15000]), st.sampled_from([0, 60, 100])), max_size=2
    ),
    st.integers(0, 3),
)
partitioned = st.builds(
    lambda chunks, cores, index: replace(
        gpu(A100_40, index=index, mode=Mode.MPS),
        chunks=chunks,
        grants=tuple(structs.replace(soft_grant(1000, each), mode=Mode.MPS) for each in cores),
    ),
    st.sampled_from([0, 3, 16]),
    st.lists(st.sampled_from([0, 10, 50]), max_size=2),
    st.integers(0, 3),
)
hard = st.builds(
    lambda cuts, index: gpu(
        A30,
        index=index,
        mode=Mode.MIG,
        grants=[mig_grant(name, start, product=A30) for name, start in cuts],
    ),
    st.sampled_from([(), (("1g.6gb", 3),), (("2g.12gb", 0),), (("4g.24gb", 0),)]),
    st.integers(0, 3),
)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    found: list[Gpu] = draw(
        st.lists(soft | partitioned | hard, max_size=3, unique_by=lambda gpu: gpu.index)
    )
    sick = draw(st.booleans())
    gpus = [replace(found[0], healthy=not sick), *found[1:]] if found else []
    return node(draw(st.sampled_from(NAMES)), *gpus, fresh=draw(st.integers(0, 5)) > 0)


@st.composite
def requests(draw: st.DrawFn) -> PodRequest:
    one = partial(
        ask,
        draw(st.sampled_from([500, 6000, 11000, 20000, 50000])),
        cores=draw(st.sampled_from([0, 30, 50, 100])),
        count=draw(st.integers(1, 3)),
    )
    asks = [one(name="a")]
    if draw(st.booleans()):
        other = ask(draw(st.sampled_from([500, 9000])), name="b")
        asks.append(draw(st.sampled_from([other, init(other), sidecar(other)])))
    filters = draw(
        st.sampled_from(
            [
                Filters(),
                Filters(models=("T4",)),
                Filters(uuids=("GPU-n1-0", "GPU-n2-1")),
                Filters(not_uuids=("GPU-n1-0",)),
            ]
        )
    )
    mode = draw(st.sampled_from([None, Mode.MIG, Mode.HAMI_CORE, Mode.MPS]))
    return pod(*asks, mode=mode, filters=filters)


def promised(found: Node) -> list[Entry]:
    """Return an entry for each grant of *found*, so that each can be freed by itself."""
    return [
        entry(f"{found.name}-{gpu.index}-{i}", grant)
        for gpu in found.gpus
        for i, grant in enumerate(gpu.grants)
    ]


def asking(request: PodRequest, uid: str = "u") -> SchedulingPod:
    wanted = PodClaim(uid=uid, request=request)
    return SchedulingPod(uid=uid, namespace="team-a", name="p", claim=wanted)


def answers(index: Index, request: PodRequest) -> tuple[object, ...]:
    found = filter_nodes(index, asking(request), NAMES, context=CIRCUMSTANCES)
    scores = score_nodes(
        index,
        asking(request),
        NAMES,
        weights=DEFAULTS.score_weights,
        fill_policy=FillPolicy.BINPACK,
    )
    return found.fitting, found.failures, scores.answer


def rebuilt(present: Sequence[Node]) -> Index:
    indexer = IndexBuilder()
    for found in present:
        indexer.put(found, promised(found))
    return indexer.index(version="1", complete=True)


@given(st.lists(nodes() | st.sampled_from(NAMES), max_size=20), requests())
@settings(max_examples=150)
def test_changes_add_up(events: list[Node | str], request: PodRequest) -> None:
    """After any puts and drops, with repetitions, all that is asked is answered as if anew."""
    indexer, present = IndexBuilder(), dict[str, Node]()
    for event in events:
        if isinstance(event, str):
            indexer.drop(event)
            present.pop(event, None)
        else:
            indexer.put(event, promised(event))
            present[event.name] = event
        indexer.index(version="0", complete=True, scorers=SCORERS[: len(present)])

    index = indexer.index(version="1", complete=True, scorers=SCORERS)

    anew = rebuilt(list(present.values()))
    assert index.snapshot == anew.snapshot
    assert index.snapshot == snapshot_of(present.values(), version="1", complete=True)
    assert {n: s.entries for n, s in index.node_infos.items()} == {
        n: s.entries for n, s in anew.node_infos.items()
    }
    assert answers(index, request) == answers(anew, request)  # which has no tables of scores


def tables(index: Index) -> list[dict[str, object]]:
    found = (index.snapshot.nodes, index.node_infos, index.node_classes, index.emptiest_groups)
    rated = chain.from_iterable(index.score_tables.values())
    return [dict(table) for table in (*found, *rated)]


@given(st.lists(nodes(), max_size=6), st.lists(nodes() | st.sampled_from(NAMES), max_size=6))
@settings(max_examples=60)
def test_an_index_never_changes(first: list[Node], then: list[Node | str]) -> None:
    """What was handed out stays as it was, whatever is taken in later."""
    indexer = IndexBuilder()
    for found in first:
        indexer.put(found, promised(found))
    index = indexer.index(version="1", complete=True, scorers=SCORERS)
    before = tables(index)

    for event in then:
        if isinstance(event, str):
            indexer.drop(event)
        else:
            indexer.put(event)
    indexer.index(version="2", complete=True, scorers=SCORERS)

    assert tables(index) == before


@given(st.lists(nodes(), max_size=6), requests())
@settings(max_examples=150)
def test_a_filter_agrees_with_the_bind(found: list[Node], request: PodRequest) -> None:
    """Of each node it says what the same choice at the bind would say."""
    index = rebuilt(found)

    answer = filter_nodes(index, asking(request), NAMES, context=CIRCUMSTANCES)

    for name in NAMES:
        known = index.snapshot.nodes.get(name)
        if known is None or not known.gpus:
            assert name not in answer.fitting
            continue
        choice = choose(snapshot(known), request, node=name)
        assert (name in answer.fitting) == (choice.assignment is not None), choice.findings
        if name in answer.failures and answer.failures[name].lasting and known.fresh:
            well = replace(known, gpus=tuple(g for g in known.gpus if g.healthy))
            assert choose(snapshot(well), request, node=name).verdict is FitVerdict.NEVER


@given(nodes(), requests())
@settings(max_examples=150)
def test_a_pod_finds_a_node_as_it_was_before(found: Node, request: PodRequest) -> None:
    """Its own promise is free for it to the last MiB; a forecast sees what the ledger will say."""
    indexer, before = IndexBuilder(), replace(found, fresh=True)
    taken = place_on(before, request)
    if taken is None:
        return
    mine = several("p", *taken.containers)

    indexer.put(with_grants(before, peak_grants(mine.containers)), [*promised(before), mine])

    index = indexer.index(version="1", complete=True)
    assert index.node(before.name, without={"p"}) == before
    assert index.node_infos[before.name].node == ledger(before, [*promised(before), mine]).node


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sets(st.sampled_from("uvwx")))))
def test_holders_add_up(events: list[tuple[str, set[str]]]) -> None:
    """A pod is promised something on the nodes that say so, and on no other."""
    holders = NodesByPod()
    present: dict[str, set[str]] = {}
    for name, uids in events:
        holders.put(name, uids)
        present[name] = uids

    for uid in "uvwx":
        assert holders.nodes_of(uid) == {name for name, uids in present.items() if uid in uids}


def test_gpus_that_round_differently_are_of_different_classes() -> None:
    """Two containers with a third of the cores each take all of three chunks, and more."""
    coarse, fine = (
        node(name, replace(gpu(A100_40, mode=Mode.MPS), chunks=chunks))
        for name, chunks in (("n0", 3), ("n1", 16))
    )
    request = pod(*(ask(1000, cores=34, name=name) for name in "ab"), mode=Mode.MPS)

    for present in ((coarse, fine), (fine, coarse)):
        fitting, failures, _ = answers(rebuilt(present), request)
        assert fitting == ["n1"]
        assert isinstance(failures, dict)
        assert "n0" in failures
