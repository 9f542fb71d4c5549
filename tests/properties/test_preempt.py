"""Preemption on small boards against exhaustive search: enough, the least, and nobody else."""

from collections.abc import Iterator
from itertools import chain, combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.extender.index import Index
from allocator.model.allocation import Grant
from allocator.model.gpu import Node
from allocator.model.request import Mode, PodRequest
from allocator.placement.choose import choose
from tests.builders.model import (
    A30,
    A100_40,
    T4,
    ask,
    init,
    mig_grant,
    nodes_of,
    placed,
    pod,
    snapshot,
    soft_grant,
)
from tests.builders.preemption import Resident, args, cluster, named, offer, preemptor, resident

PRIORITY = 10
STATES: tuple[dict[str, bool], ...] = (
    *[{}] * 9,
    {"deleting": True},
    {"over": True},
    {"gone": True},
)
NOBODY: frozenset[str] = frozenset()
Cost = tuple[int, int, int]


@st.composite
def soft_residents(draw: st.DrawFn, gpus: int, memory: int) -> list[Resident]:
    """Pods that share GPUs, each on one of them or on all, as many as have room."""
    free = [memory] * gpus
    found = []
    for number in range(draw(st.integers(4, 8))):
        size = draw(st.sampled_from([memory // 8, memory // 4, memory // 3, memory // 2]))
        wide = draw(st.integers(0, 4)) == 0
        places = range(gpus) if wide else [draw(st.integers(0, gpus - 1))]
        if all(free[i] >= size for i in places):
            for i in places:
                free[i] -= size
            grants = tuple((i, soft_grant(size)) for i in places)
            found.append(draw(residents(f"p{number}", grants)))
    return found


@st.composite
def cut_residents(draw: st.DrawFn, gpus: int, product: str) -> list[Resident]:
    """Pods with instances at legal places that do not overlap."""
    names = {A30: ("1g.6gb", "2g.12gb"), A100_40: ("1g.5gb", "2g.10gb", "3g.20gb")}[product]
    taken = [0] * gpus
    found = []
    for number in range(draw(st.integers(4, 12))):
        name = draw(st.sampled_from(names))
        i = draw(st.integers(0, gpus - 1))
        at = draw(st.sampled_from(placed(name, 0, product).profile.starts))
        mask = placed(name, at, product).mask
        if not mask & taken[i]:
            taken[i] |= mask
            grants: tuple[tuple[int, Grant], ...] = ((i, mig_grant(name, at, product=product)),)
            found.append(draw(residents(f"p{number}", grants)))
    return found


@st.composite
def residents(draw: st.DrawFn, uid: str, grants: tuple[tuple[int, Grant], ...]) -> Resident:
    priority, state = draw(st.sampled_from([0, 0, 1, 5, 9, 20])), draw(st.sampled_from(STATES))
    return resident(uid, *grants, priority=priority, **state)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Node, list[Resident], PodRequest]:
    """Draw a node, who lives on it, and what is wanted there."""
    gpus = draw(st.integers(1, 2))
    if draw(st.booleans()):
        product = draw(st.sampled_from([A30, A100_40]))
        node = nodes_of(gpus, product, mode=Mode.MIG, name="n0")
        there = draw(cut_residents(gpus, product))
        sizes = st.sampled_from([4000, 9000, 11000, 18000, 22000])
    else:
        node = nodes_of(gpus, T4, name="n0")
        memory = node.gpus[0].memory
        there = draw(soft_residents(gpus, memory))
        sizes = st.sampled_from([memory // 2, 3 * memory // 4, memory])
    asks = [ask(draw(sizes), count=draw(st.integers(1, gpus)))]
    more = draw(st.sampled_from(["none", "none", "app", "init"]))
    if more != "none":
        second = ask(draw(sizes), name="second")
        asks.append(init(second) if more == "init" else second)
    return node, there, pod(*asks, mode=node.gpus[0].mode)


def fits(index: Index, request: PodRequest, gone: frozenset[str]) -> bool:
    """Say by the code that commits whether the pod finds its place without *gone*."""
    there = index.node("n0", without=gone)
    assert there is not None
    return choose(snapshot(there), request, node="n0").assignment is not None


def cost(gone: frozenset[str], there: list[Resident]) -> Cost:
    """Compare sets as kube-scheduler compares nodes; the lower is better."""
    priorities = [one.priority for one in there if one.uid in gone]
    return max(priorities, default=-1), len(priorities), sum(priorities)


def subset(uids: frozenset[str]) -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(st.sampled_from(sorted(uids))) if uids else st.just(NOBODY)


def subsets(uids: frozenset[str]) -> Iterator[frozenset[str]]:
    sizes = range(len(uids) + 1)
    found = chain.from_iterable(combinations(sorted(uids), size) for size in sizes)
    return map(frozenset, found)


@settings(max_examples=150)
@given(situations(), st.data())
def test_an_answer_is_enough_and_the_least(
    situation: tuple[Node, list[Resident], PodRequest], data: st.DataObject
) -> None:
    """Exhaustive search over all sets of pods finds no better one than the answer."""
    node, there, request = situation
    index = cluster((node, there))
    weaker = frozenset(one.uid for one in there if one.priority < PRIORITY)
    ebbing = frozenset(one.uid for one in there if one.over or one.gone)
    leaving = frozenset(one.uid for one in there if one.deleting)
    free = frozenset(one.uid for one in there if one.stays) & weaker
    proposed = data.draw(subset(weaker - ebbing))

    found = named(index, preemptor(request, priority=PRIORITY), args(n0=offer(sorted(proposed))))

    def best(pool: frozenset[str], gone: frozenset[str]) -> Cost | None:
        sufficient = (some for some in subsets(pool) if fits(index, request, gone | some))
        return min((cost(some, there) for some in sufficient), default=None)

    answer = frozenset(found.get("n0", ()))
    awaited = ebbing | leaving - weaker
    coming = ebbing | leaving
    if fits(index, request, NOBODY):
        assert answer == proposed
    elif fits(index, request, awaited):
        assert found == {}
    elif (least := best(leaving & weaker, awaited)) is not None:
        assert answer <= leaving & weaker
        assert cost(answer, there) == least
        assert fits(index, request, awaited | answer)
    elif fits(index, request, coming | proposed):
        assert answer == proposed
    elif (least := best(free, coming)) is not None:
        assert answer <= free
        assert cost(answer, there) == least
        assert fits(index, request, coming | answer)
    else:
        assert found == {}
