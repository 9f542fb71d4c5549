"""The largest request that fits is the boundary between what is granted and what is not."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.model.demand import NOTHING_LEARNED
from allocator.model.gpu import Gpu
from allocator.model.request import Mode
from allocator.placement.choose import choose
from allocator.placement.mig import MigOptions
from allocator.scheduling.capacity import free_capacity, largest_free
from tests.builders.model import (
    A30,
    A100_40,
    T4,
    ask,
    gpu,
    mig_grant,
    node,
    pod,
    snapshot,
    soft_grant,
)
from tests.unit.allocator.attendance import index_of

CUTTER = MigOptions(demand=NOTHING_LEARNED, geometries=None, named=None)


def granted(one: Gpu, memory: int) -> bool:
    return choose(snapshot(node("n0", one)), pod(ask(memory))).assignment is not None


@given(
    shares=st.lists(st.tuples(st.integers(1, 6000), st.integers(0, 60)), max_size=4),
)
def test_a_shared_gpu_takes_its_remainder_and_no_more(shares: list[tuple[int, int]]) -> None:
    """Also where cores or shares, not memory, are what is short."""
    one = gpu(T4, grants=[soft_grant(memory, cores) for memory, cores in shares])

    most = largest_free(one, CUTTER)

    assert granted(one, 1) == (most is not None)
    assert most is None or (granted(one, most) and not granted(one, most + 1))


@given(data=st.data())
def test_a_cut_gpu_takes_its_remainder_and_no_more(data: st.DataObject) -> None:
    """What is free in sum is not what one request can have."""
    spots = [("1g.5gb", s) for s in range(7)] + [("2g.10gb", s) for s in (0, 2, 4)]
    taken: list[tuple[str, int]] = []
    for name, start in data.draw(st.lists(st.sampled_from(spots), max_size=7)):
        mask = mig_grant(name, start).placed
        others = [mig_grant(n, s).placed for n, s in taken]
        if mask is not None and not any(o is not None and o.mask & mask.mask for o in others):
            taken.append((name, start))
    one = gpu(A100_40, mode=Mode.MIG, grants=[mig_grant(n, s) for n, s in taken])

    most = largest_free(one, CUTTER)

    assert granted(one, 1) == (most is not None)
    assert most is None or (granted(one, most) and not granted(one, most + 1))


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(replace(gpu(A30, mode=Mode.MIG), healthy=False), id="broken"),
        pytest.param(gpu(T4, grants=[soft_grant(100, 100)]), id="exclusive"),
        pytest.param(replace(gpu(T4), slots=0), id="no-share-left"),
    ],
)
def test_a_gpu_that_takes_nobody_has_no_remainder(one: Gpu) -> None:
    """Nothing is not 0 MiB, which would be a request that fits."""
    assert largest_free(one, CUTTER) is None


def test_equal_nodes_count_each() -> None:
    """They share one class, and what nobody can get of them is added up."""
    full = gpu(T4, grants=[soft_grant(1000, 100)])
    nodes = [node(f"n{number}", full, gpu(T4)) for number in range(3)]
    index = index_of(*nodes)

    capacity = free_capacity(index, CUTTER)

    assert len(set(map(id, index.node_classes.values()))) == 1
    assert capacity.largest == {(Mode.HAMI_CORE, gpu(T4).model): gpu(T4).memory}
    assert capacity.stranded == 3 * (gpu(T4).memory - 1000)


def test_what_takes_nothing_has_a_largest_request_of_0() -> None:
    """It is measured, so it is not unknown; and its free memory is stranded."""
    broken = replace(gpu(A30, mode=Mode.MIG), healthy=False)

    capacity = free_capacity(index_of(node("n0", broken)), CUTTER)

    assert set(capacity.largest.values()) == {0}
    assert capacity.stranded == broken.memory


def test_nothing_is_known_of_no_nodes() -> None:
    """There is no series then, rather than one with 0."""
    assert free_capacity(index_of(), CUTTER).largest == {}
