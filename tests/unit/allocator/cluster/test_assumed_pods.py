"""Pods whose Bindings are being decided: what they take counts before watches tell of it."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.assumed_pods import EXPECTED_FOR, KEPT_AFTER_COMMIT, AssumedPods
from allocator.extender.filter import FilterContext, filter_nodes
from allocator.extender.index import Index, IndexBuilder
from allocator.extender.pod import BINDING_PRIORITY, SchedulingPod
from allocator.ledger.assign import PodClaim
from allocator.model.gpu import Node
from allocator.placement.choose import PlacementPolicy
from tests.builders.gpunodes import entry
from tests.builders.model import A100_40, T4, ask, gpu, mig_grant, node, pod, soft_grant
from tests.fakes.kube_clock import FakeClock

SIZES = st.sampled_from([1000, 4000, 7000, 9000, 15000])


def going(uid: str, memory: int = 9000, *, to: str = "a", count: int = 1) -> SchedulingPod:
    wanted = PodClaim(uid=uid, request=pod(ask(memory, count=count)))
    return SchedulingPod(
        uid=uid, namespace="t", name=uid, priority=BINDING_PRIORITY, nominated=to, claim=wanted
    )


def index_of(*nodes: Node) -> Index:
    indexer = IndexBuilder()
    for node_object in nodes:
        indexer.put(node_object)
    return indexer.index(version="1", complete=True)


def fits(index: Index, who: SchedulingPod) -> bool:
    asking = replace(who, priority=0, nominated="")
    return bool(
        filter_nodes(index, asking, ["a"], context=FilterContext(policy=PlacementPolicy())).fitting
    )


ONE = index_of(node("a", gpu(T4)))


def nominated(index: Index) -> Mapping[str, list[str]]:
    return {name: [pod.uid for pod in pods] for name, pods in index.nominations.items()}


def test_what_is_being_decided_is_taken() -> None:
    """Who comes right behind is sent elsewhere, and back once the bind has come to nothing."""
    underway, first, second = AssumedPods(), going("u-1"), going("u-2")
    underway.begin(first)

    assert not fits(underway.with_assumed(ONE), second)
    assert fits(underway.with_assumed(ONE), first)

    underway.end(first, promised=False)

    assert fits(underway.with_assumed(ONE), second)


def test_a_promise_counts_once() -> None:
    """From the commit on until the ledger tells of it, or ought to have told."""
    clock = FakeClock()
    underway, first = AssumedPods(clock.clock()), going("u-1")
    underway.begin(first)
    underway.end(first, promised=True)
    indexer = IndexBuilder()
    held = msgspec.structs.replace(soft_grant(9000), gpu="GPU-a-0")
    indexer.put(node("a", gpu(T4, grants=[held])), [entry("u-1", held)])

    assert nominated(underway.with_assumed(ONE)) == {"a": ["u-1"]}
    assert nominated(underway.with_assumed(indexer.index(version="2", complete=True))) == {}
    assert nominated(underway.with_assumed(ONE)) == {}  # it was told of

    underway.begin(first)
    underway.end(first, promised=True)
    clock.now += KEPT_AFTER_COMMIT

    assert nominated(underway.with_assumed(ONE)) == {}


def test_a_pod_is_expected_where_it_scores_best() -> None:
    """From the question on until its Binding comes to some node, or ought to have come."""
    clock = FakeClock()
    underway, asking = AssumedPods(clock.clock()), replace(going("u-1"), nominated="", priority=7)

    underway.expect(asking, "a")
    underway.expect(asking, "b")

    assert nominated(underway.with_assumed(ONE)) == {"b": ["u-1"]}
    assert underway.with_assumed(ONE).nominations["b"][0].priority == BINDING_PRIORITY

    underway.begin(going("u-1", to="a"))
    underway.expect(asking, "b")

    assert nominated(underway.with_assumed(ONE)) == {"a": ["u-1"]}

    underway.end(underway.with_assumed(ONE).nominations["a"][0], promised=False)
    underway.expect(asking, "b")
    clock.now += EXPECTED_FOR

    assert nominated(underway.with_assumed(ONE)) == {}


def test_a_second_review_of_a_pod_outlasts_the_first() -> None:
    """The API server asked again: what the first call came to is no news."""
    underway, first, again = AssumedPods(), going("u-1"), going("u-1", to="b")
    underway.begin(first)
    underway.begin(again)

    underway.end(first, promised=False)

    assert nominated(underway.with_assumed(ONE)) == {"b": ["u-1"]}


def test_who_waits_for_victims_stays_nominated() -> None:
    """Those who are being bound come first, and a pod that is both counts once."""
    underway, first = AssumedPods(), going("u-1")
    waiting = replace(going("u-2"), priority=5)
    index = replace(ONE, nominations={"a": (replace(first, priority=5), waiting), "b": (waiting,)})
    underway.begin(first)

    assert nominated(underway.with_assumed(index)) == {"a": ["u-1", "u-2"], "b": ["u-2"]}


@given(
    free=st.lists(st.sampled_from([0, 8000, 12000]), min_size=1, max_size=4),
    others=st.lists(st.tuples(SIZES, st.integers(1, 2)), max_size=4),
    asked=st.tuples(SIZES, st.integers(1, 2)),
)
def test_whoever_is_not_looked_at_alone_would_pass(
    free: list[int], others: list[tuple[int, int]], asked: tuple[int, int]
) -> None:
    """That a node has plenty is seen without placing those who are underway; it says the same."""
    gpus = [
        gpu(T4, index=i, grants=[soft_grant(held)] if held else []) for i, held in enumerate(free)
    ]
    mig = gpu(A100_40, index=9, grants=[mig_grant("3g.20gb", 4)])
    index = index_of(node("a", *gpus, mig))
    bound = tuple(going(f"o-{i}", size, count=count) for i, (size, count) in enumerate(others))
    lower = tuple(replace(other, priority=BINDING_PRIORITY - 1) for other in bound)
    who = going("me", asked[0], count=asked[1])

    quick = fits(replace(index, nominations={"a": bound}), who)
    slow = fits(replace(index, nominations={"a": lower}), who)

    if all(fits(index, other) for other in bound):
        assert quick is slow
    assert quick or not slow


def test_who_was_bound_elsewhere_is_not_expected_any_more() -> None:
    """A scheduler may choose otherwise than we score; another replica may be asked to bind."""
    underway, first, second = AssumedPods(), going("u-1"), going("u-2")
    underway.expect(first, "a")
    waits = underway.with_assumed(replace(ONE, pods={"u-1": replace(first, nominated="")}))

    bound = underway.with_assumed(
        replace(ONE, pods={"u-1": replace(first, node="b", nominated="")})
    )

    assert not fits(waits, second)
    assert fits(bound, second)


def test_a_bind_that_is_being_decided_stays_whatever_watches_tell() -> None:
    """They are behind: the pod may have another uid's fate by then, and the promise is coming."""
    underway, first, second = AssumedPods(), going("u-1"), going("u-2")
    underway.begin(first)

    assert not fits(
        underway.with_assumed(replace(ONE, pods={"u-1": replace(first, node="b")})), second
    )
