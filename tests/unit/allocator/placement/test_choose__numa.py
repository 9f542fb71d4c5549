"""A pod that wants one NUMA node has all GPUs of a container on one."""

from dataclasses import replace

import msgspec
import pytest

from allocator.model.gpu import Gpu, Node
from allocator.model.request import ContainerRequest, Mode, PodRequest
from allocator.placement.choose import FitVerdict, choose
from tests.builders.choices import gpus
from tests.builders.model import ask, gpu, init, node, pod, sidecar, snapshot, soft_grant


def machine(*numas: int | None, name: str = "n0", mode: Mode = Mode.HAMI_CORE) -> Node:
    """Build a node with one GPU on each of *numas*."""
    return node(name, *(on(numa, index, mode) for index, numa in enumerate(numas)))


def on(numa: int | None, index: int, mode: Mode = Mode.HAMI_CORE) -> Gpu:
    return replace(gpu(index=index, mode=mode), numa=numa)


def bound(*asks: ContainerRequest) -> PodRequest:
    return msgspec.structs.replace(pod(*asks), one_numa=True)


@pytest.mark.parametrize(
    ("numas", "expected"),
    [
        pytest.param((0, 1, 0, 1), {"GPU-n0-0", "GPU-n0-2"}, id="alternating"),
        pytest.param((0, 1, 1), {"GPU-n0-1", "GPU-n0-2"}, id="only-the-second"),
        pytest.param((0, 1), None, id="one-each"),
        pytest.param((0, None, None), {"GPU-n0-1", "GPU-n0-2"}, id="unknown-count-as-one"),
    ],
)
def test_all_gpus_of_a_container_are_on_one(
    numas: tuple[int | None, ...], expected: set[str] | None
) -> None:
    """Or it does not fit, though there are as many GPUs."""
    there = snapshot(machine(*numas))

    found = choose(there, bound(ask(1000, count=2)))

    assert (None if found.assignment is None else set(gpus(found))) == expected
    assert choose(there, pod(ask(1000, count=2))).assignment is not None


def test_a_busy_numa_node_is_left_for_another() -> None:
    """The one with the best GPU has too few that are free."""
    there = machine(0, 0, 1, 1)
    full = replace(there.gpus[0], grants=(soft_grant(40000, gpu=there.gpus[0].uuid),))
    half = replace(there.gpus[1], grants=(soft_grant(20000, gpu=there.gpus[1].uuid),))
    busy = replace(there, gpus=(full, half, *there.gpus[2:]))

    assert set(gpus(choose(snapshot(busy), bound(ask(4000, count=2))))) == {"GPU-n0-2", "GPU-n0-3"}


def test_containers_may_be_on_different_numa_nodes() -> None:
    """Each by itself is on one; an init container, too."""
    whole = ask(cores=100, count=2, name="a")
    other = ask(cores=100, count=2, name="b")
    first = init(ask(1000, count=2, name="i"))

    found = choose(snapshot(machine(0, 1, 0, 1)), bound(first, whole, other))

    sides = [{int(uuid[-1]) % 2 for uuid in gpus(found, name)} for name in ("a", "b", "i")]
    assert [len(side) for side in sides] == [1, 1, 1]
    assert sides[0] != sides[1]


def test_equal_nodes_are_told_apart_by_their_numa_nodes() -> None:
    """The first of two nodes that are equal but for that does not stand for the other."""
    split, joined = machine(0, 1, name="a"), machine(0, 0, name="b")

    assert set(gpus(choose(snapshot(split, joined), bound(ask(1000, count=2))))) == {
        "GPU-b-0",
        "GPU-b-1",
    }


def test_instances_of_cut_gpus_too() -> None:
    """Two instances on two GPUs of one NUMA node."""
    there = snapshot(machine(0, 1, 1, mode=Mode.MIG))

    assert set(gpus(choose(there, bound(ask(1000, count=2))))) == {"GPU-n0-1", "GPU-n0-2"}


def test_what_is_short_is_said_of_the_numa_node() -> None:
    """With how many GPUs the best of them has."""
    found = choose(snapshot(machine(0, 0, 1)), bound(ask(1000, count=3)))

    assert found.verdict is FitVerdict.NEVER
    assert "asks for 3 GPUs on one NUMA node; only 2 have room" in str(found.findings[0])


@pytest.mark.parametrize("counts", [(2, 3), (3, 2)])
@pytest.mark.parametrize("numas", [(0, 0, 0, 1, 1), (0, 0, 1, 1, 1)])
def test_the_container_that_is_placed_first_leaves_room_for_the_other(
    numas: tuple[int, ...], counts: tuple[int, int]
) -> None:
    """Its GPUs are alike on both NUMA nodes, but only one of the two choices works out."""
    first, second = (ask(cores=100, count=n, name=f"c{n}") for n in counts)

    found = choose(snapshot(machine(*numas)), bound(first, second))

    assert found.assignment is not None
    assert [len({numas[int(u[-1])] for u in gpus(found, f"c{n}")}) for n in counts] == [1, 1]


@pytest.mark.parametrize("numas", [(0, 0, 0, 1, 1), (0, 0, 1, 1, 1)])
def test_a_sidecar_leaves_room_for_the_app_on_more_gpus(numas: tuple[int, ...]) -> None:
    """It is placed first, and the GPUs of either NUMA node are alike."""
    first = sidecar(ask(cores=100, count=2, name="first"))

    found = choose(snapshot(machine(*numas)), bound(first, ask(cores=100, count=3, name="app")))

    assert found.assignment is not None
    sides = [{numas[int(u[-1])] for u in gpus(found, name)} for name in ("first", "app")]
    assert [len(side) for side in sides] == [1, 1]
