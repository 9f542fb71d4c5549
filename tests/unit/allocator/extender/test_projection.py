"""Forecasts: what is remembered between questions is what would be worked out anew."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from allocator.extender.equivalence import NodeClass, single_node_class
from allocator.extender.filter import node_with_nominations
from allocator.extender.index import Index, IndexBuilder
from allocator.extender.pod import BINDING_PRIORITY, SchedulingPod
from allocator.extender.projection import MOST_KNOWN, Projection, grants_of
from allocator.ledger.assign import PodClaim
from allocator.model.request import Mode
from allocator.model.usage import with_grants
from allocator.placement.choose import PlacementPolicy
from tests.builders.gpunodes import entry
from tests.builders.model import A100_40, T4, ask, gpu, mig_grant, node, pod, soft_grant

POLICY = PlacementPolicy()
OTHER = SchedulingPod(uid="me", namespace="t", name="me")


def going(uid: str, memory: int) -> SchedulingPod:
    wanted = PodClaim(uid=uid, request=pod(ask(memory)))
    return SchedulingPod(
        uid=uid, namespace="t", name=uid, priority=BINDING_PRIORITY, nominated="a", claim=wanted
    )


def index_of(held: int, *, ends: bool = False, others: Sequence[SchedulingPod] = ()) -> Index:
    """Build an index of one node, on which pod "old" has some MiB, and perhaps ends.

    Promised, too, is what *others* want, one after another.
    """
    grant = soft_grant(held)
    cut = gpu(A100_40, index=1, mode=Mode.MIG, grants=[mig_grant("3g.20gb", 4)])
    there = node("a", gpu(T4, grants=[grant]), cut)
    entries = [entry("old", msgspec.structs.replace(grant, gpu=there.gpus[0].uuid))]
    for other in others:
        assert isinstance(other.claim, PodClaim)
        taken = grants_of(there, other.claim, POLICY)
        there = with_grants(there, taken)
        entries.append(entry(other.uid, *taken))
    indexer = IndexBuilder()
    indexer.put(there, entries)
    old = SchedulingPod(uid="old", namespace="t", name="old", node="a", deleting=ends)
    return replace(
        indexer.index(version="1", complete=True), pods={"old": old} | {o.uid: o for o in others}
    )


def seen(standing: NodeClass | None) -> object:
    if standing is None:
        return None
    rooms = (*standing.mig_groups, *standing.shared_groups)
    return sorted(
        (room.gpu_class.headroom.gpu.uuid, room.gpu_class.headroom.likeness) for room in rooms
    )


def anew(index: Index, others: list[SchedulingPod]) -> object:
    node = node_with_nominations(
        replace(index, nominations={"a": tuple(others)}), "a", OTHER, policy=POLICY
    )
    return seen(None if node is None else single_node_class(node, like=index.node_classes["a"]))


PODS = st.lists(st.sampled_from([1000, 4000, 9000, 15000]), max_size=5)


@given(questions=st.lists(st.tuples(PODS, st.sampled_from([500, 9000]), st.booleans()), max_size=6))
def test_a_forecast_is_what_placing_them_anew_says(
    questions: list[tuple[list[int], int, bool]],
) -> None:
    """Whether others came, went or changed in between, and whatever became of the node."""
    forecast = Projection()
    for sizes, held, ends in questions:
        index = index_of(held, ends=ends)
        others = [going(f"u-{i}-{size}", size) for i, size in enumerate(sizes)]
        for known in (others[:-1], others, others[1:], others):
            found = forecast.node_class(index, "a", known, policy=POLICY)
            assert seen(found) == anew(index, known)


@given(sizes=PODS, came=st.integers(0, 5), ends=st.booleans())
def test_promises_that_were_expected_change_nothing(
    sizes: list[int], *, came: int, ends: bool
) -> None:
    """Of pods on their way the first are promised something: the rest stands as worked out anew."""
    forecast = Projection()
    others = [going(f"u-{i}-{size}", size) for i, size in enumerate(sizes)]
    forecast.node_class(index_of(500), "a", others, policy=POLICY)
    index = index_of(500, ends=ends, others=others[:came])

    found = forecast.node_class(index, "a", others[came:], policy=POLICY)

    assert seen(found) == anew(index, others[came:])


def test_what_was_expected_is_not_worked_out_again() -> None:
    """Unless it came otherwise."""
    first, second = going("u-1", 4000), going("u-2", 4000)
    forecast = Projection()
    one = forecast.node_class(index_of(500), "a", [first, second], policy=POLICY)

    as_expected = index_of(500, others=[first])
    assert forecast.node_class(as_expected, "a", [second], policy=POLICY) is one
    otherwise = index_of(500, others=[first, going("u-3", 1000)])
    assert forecast.node_class(otherwise, "a", [second], policy=POLICY) is not one


def test_a_node_as_it_was_is_not_worked_out_again() -> None:
    """The same pods on the same node give the same standing; one more is placed beside them."""
    forecast, index = Projection(), index_of(500)
    first, second = going("u-1", 4000), going("u-2", 4000)

    one = forecast.node_class(index, "a", [first], policy=POLICY)

    assert forecast.node_class(index, "a", [first], policy=POLICY) is one
    assert forecast.node_class(index, "a", [first, second], policy=POLICY) is not one


def test_only_so_many_nodes_are_remembered() -> None:
    """Those that were asked about last."""
    indexer = IndexBuilder()
    names = [f"n-{i}" for i in range(MOST_KNOWN + 1)]
    for name in names:
        indexer.put(node(name, gpu(T4)))
    forecast, index = Projection(), indexer.index(version="1", complete=True)

    found = {name: forecast.node_class(index, name, [], policy=POLICY) for name in names}

    last = names[-1]
    assert forecast.node_class(index, last, [], policy=POLICY) is found[last]
    assert forecast.node_class(index, names[0], [], policy=POLICY) is not found[names[0]]
