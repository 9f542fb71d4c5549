"""Which of several GPUs a container gets: the closest set, compared with all sets there are."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from allocator.model.allocation import Option
from allocator.model.gpu import Gpu
from allocator.model.request import Mode
from allocator.placement import hami_core
from allocator.placement.fit import headroom
from allocator.placement.topology import (
    LOOKS,
    MOST_WAYS,
    WORTH,
    idle_of,
    link_distances,
    mixes,
    prefer_close,
    worth,
)
from tests.builders.model import ask, gpu, soft_grant

JOINED = 6  # every distance of two GPUs that NVLink joins is smaller
LOSSES = (1000, 1000, 900, 500, 500, 450)  # by those distances


@st.composite
def machines(draw: st.DrawFn) -> list[Gpu]:
    """Draw up to seven GPUs, joined and placed in any way, some of them cut, all in use.

    Machines are odd, where every GPU has a kind of its own, or orderly, with sets that tie.
    """
    count = draw(st.integers(2, 7))
    every = range(count)
    odd = draw(st.booleans())
    pairs = draw(st.sets(st.sampled_from(list(combinations(every, 2))))) if odd else set()
    switches = [None, "0000:3b:00.0", "0000:8b:00.0"] if odd else [None]
    modes = [Mode.HAMI_CORE, Mode.HAMI_CORE, Mode.MIG] if odd else [Mode.HAMI_CORE]
    numbers = {pair: draw(st.integers(1, 3)) for pair in sorted(pairs)}
    ends = {i: tuple(f"GPU-{a + b - i}" for a, b in numbers if i in {a, b}) for i in every}
    counted = odd and draw(st.booleans())
    counts = {i: tuple(n for pair, n in numbers.items() if i in pair and counted) for i in every}
    few = st.none() | st.integers(0, 1) if odd else st.integers(0, 1)
    return [
        replace(
            gpu(index=i, mode=draw(st.sampled_from(modes))),
            grants=(soft_grant(draw(st.integers(0, 3)) * 1000, gpu=f"GPU-{i}"),),
            numa=draw(few),
            switch=draw(st.sampled_from(switches)),
            links=ends[i],
            link_counts=counts[i],
        )
        for i in every
    ]


def links_between(one: Gpu, other: Gpu) -> int:
    """Return the number of NVLinks between two GPUs; one each where nothing is counted."""
    if Mode.MIG in {one.mode, other.mode} or other.uuid not in one.links:
        return 0
    return one.link_counts[one.links.index(other.uuid)] if one.link_counts else 1


def distance(one: Gpu, other: Gpu, gpus: Collection[Gpu]) -> int:
    """Return how far two of *gpus* are apart, by the words of the documents."""
    talk = one.mode is not Mode.MIG and other.mode is not Mode.MIG
    linked = links_between(one, other)
    most = max(links_between(a, b) for a, b in combinations(gpus, 2))
    if talk and one.switch is not None and one.switch == other.switch:
        place = 0
    else:
        place = 1 if one.numa is not None and one.numa == other.numa else 2
    if not linked:
        return 6 + place
    return place if linked == most else 3 + place


def apart(some: Collection[Gpu], gpus: Collection[Gpu]) -> list[int]:
    """Return the distances of all pairs of *some*, the largest first: what is less is closer."""
    return sorted((distance(a, b, gpus) for a, b in combinations(some, 2)), reverse=True)


def firsts(options: Sequence[Option], count: int) -> frozenset[int]:
    return frozenset(list(dict.fromkeys(option.position for option in options))[:count])


@given(machines(), st.data())
def test_the_closest_set_comes_first(gpus: list[Gpu], data: st.DataObject) -> None:
    """No other set is closer, none that is as close has better options, and nothing is lost."""
    count = data.draw(st.integers(2, len(gpus)))
    rooms = tuple(map(headroom, gpus))
    ranked = hami_core.options(ask(1000), rooms, mode=Mode.HAMI_CORE)

    found = prefer_close(ranked, rooms, count=count)

    ranks = {option.position: option.rank for option in ranked}
    sets = [frozenset(one) for one in combinations(range(len(gpus)), count)]
    best = min((apart([gpus[i] for i in one], gpus), sorted(ranks[i] for i in one)) for one in sets)
    chosen = firsts(found, count)
    event(f"closeness decides: {chosen != firsts(ranked, count)}")
    if any(one.numa is not None or one.switch or one.links for one in gpus):
        assert (apart([gpus[i] for i in chosen], gpus), sorted(ranks[i] for i in chosen)) == best
    assert sorted(map(id, found)) == sorted(map(id, ranked))


@given(machines(), st.data())
def test_one_gpu_breaks_the_least(gpus: list[Gpu], data: st.DataObject) -> None:
    """Of the best GPUs none has links worth less to idle ones; the first of equals comes first."""
    idle = data.draw(st.sets(st.sampled_from(range(len(gpus)))))
    there = [replace(one, grants=()) if one.index in idle else one for one in gpus]
    rooms = tuple(map(headroom, there))
    by_rank = [
        Option(position=i, grant=soft_grant(1000, gpu=one.uuid), rank=(room.memory,))
        for i, (one, room) in enumerate(zip(there, rooms, strict=True))
    ]
    ranked = sorted(by_rank, key=lambda option: option.rank)

    found = prefer_close(ranked, rooms, count=1)

    def loss(at: int) -> int:
        others = idle - {at} if at in idle else set[int]()
        apart_by = [distance(there[at], there[other], there) for other in others]
        return sum(LOSSES[far] for far in apart_by if far < JOINED)

    assert found == sorted(by_rank, key=lambda o: (o.rank, loss(o.position), o.position))
    event(f"links decide: {found != ranked}")


@given(machines(), st.integers(2, 7))
def test_a_node_is_worth_its_closest_idle_gpus(gpus: list[Gpu], count: int) -> None:
    """The farthest pair of the closest set decides, whatever the way that it was found."""
    idle = [replace(one, grants=()) if one.index % 2 else one for one in gpus]
    free = [one for one in idle if not one.grants]

    known = link_distances(gpus).distances
    far = min((apart(one, gpus) for one in combinations(free, count)), default=None)

    expected = None if not known else 0 if far is None else WORTH[far[0]]
    assert worth(idle_of(idle), count) == expected


@given(machines(), st.data())
def test_the_order_of_equals_is_kept_without_closeness(
    gpus: list[Gpu], data: st.DataObject
) -> None:
    """Where nothing is known, the policy alone decides."""
    plain = tuple(headroom(replace(one, numa=None, switch=None, links=())) for one in gpus)
    ranked = hami_core.options(ask(1000), plain, mode=Mode.HAMI_CORE)

    assert prefer_close(ranked, plain, count=data.draw(st.integers(1, 8))) == ranked


def bridged(pairs: int) -> list[Gpu]:
    """Build a machine of GPUs in pairs on bridges, half of them on each NUMA node."""
    return [
        replace(gpu(index=i), numa=2 * i // (2 * pairs), links=(f"GPU-{i ^ 1}",))
        for i in range(2 * pairs)
    ]


def ring(size: int) -> list[Gpu]:
    """Build a machine whose GPUs are joined to two neighbours each: no two are alike."""
    ends = {i: (f"GPU-{(i - 1) % size}", f"GPU-{(i + 1) % size}") for i in range(size)}
    return [replace(gpu(index=i), numa=2 * i // size, links=ends[i]) for i in range(size)]


@pytest.mark.parametrize("count", range(2, 17))
def test_a_large_machine_is_searched_to_the_end(count: int) -> None:
    """Sixteen GPUs on bridges are nowhere near the bound; any number comes in whole pairs."""
    idle = idle_of(bridged(8))

    found = mixes(idle.distances, idle.counts, count)

    assert len(found) < LOOKS // 8
    assert all(sum(taken == 1 for taken in mix) == count % 2 for mix in found)


def test_a_machine_that_nobody_built_is_not_searched_for_ever() -> None:
    """Beyond the bound there is still an answer, of as many GPUs as are wanted."""
    idle = idle_of(ring(64))

    found = mixes(idle.distances, idle.counts, 32)

    assert found
    assert all(sum(mix) == 32 for mix in found)


def test_equally_good_ways_are_told_apart_up_to_a_number() -> None:
    """Each is kept with the answer, and half of twelve GPUs can be taken in 924 ways."""
    apart = (tuple([len(WORTH) - 1] * 12),) * 12

    found = mixes(apart, (1,) * 12, 6)

    assert len(found) == len(set(found)) == MOST_WAYS
    assert all(sum(mix) == 6 for mix in found)
