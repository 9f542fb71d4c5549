"""NVIDIA's GPUs: how far they are apart, and what Volcano's plugin reads of a bound pod."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from allocator.catalog.vocabularies import VOCABULARIES, VOLCANO
from allocator.families.family import BoundPod
from allocator.families.nvidia import APART, FEWER, NVIDIA_FAMILY, link_distances
from allocator.model.allocation import Assignment, ContainerGrants
from allocator.model.gpu import Gpu
from allocator.model.request import Mode
from allocator.volcano.device_list import LIST_ANNOTATION
from tests.builders.model import T4, ask, gpu, init, nodes_of, pod, sidecar, soft_grant

NOW = datetime(2026, 3, 1, 8, tzinfo=UTC)
FAR = 2  # no switch and no NUMA node in common


def linked(index: int, links: Mapping[int, int], *, counted: bool = True) -> Gpu:
    """Return a GPU that says of so many NVLinks to others, by their indices."""
    uuids = tuple(f"GPU-{other}" for other in links)
    counts = tuple(links.values()) if counted else ()
    return replace(gpu(index=index), links=uuids, link_counts=counts)


@pytest.mark.parametrize(
    ("there", "back", "distance"),
    [
        pytest.param({1: 4}, {0: 4}, FAR, id="joined"),
        pytest.param({1: 4}, {}, FAR + APART, id="the-other-knows-of-none"),
        pytest.param({}, {0: 4}, FAR + APART, id="this-one-knows-of-none"),
        pytest.param({1: 4}, {0: 2}, FAR + FEWER, id="the-other-knows-of-fewer"),
        pytest.param({1: 2}, {0: 4}, FAR + FEWER, id="this-one-knows-of-fewer"),
    ],
)
def test_both_ends_must_know_of_a_link(
    there: Mapping[int, int], back: Mapping[int, int], distance: int
) -> None:
    """As many links count as both ends report; a third and a fourth GPU have the most."""
    gpus = (linked(0, there), linked(1, back), linked(2, {3: 4}), linked(3, {2: 4}))

    found = link_distances(gpus)

    first, second, *_ = found.kinds
    assert found.distances[first][second] == found.distances[second][first] == distance
    assert found.distances[found.kinds[2]][found.kinds[3]] == FAR


@pytest.mark.parametrize("counts", [(1,), (4, 2, 1)])
def test_counts_that_belong_to_no_links_count_for_one_each(counts: tuple[int, ...]) -> None:
    """More or fewer of them than links are never read for the wrong GPU."""
    ends = [linked(at, {other: 1 for other in range(3) if other != at}) for at in range(3)]
    odd = replace(ends[0], link_counts=counts)
    plain = replace(ends[0], link_counts=())

    assert link_distances((odd, *ends[1:])) == link_distances((plain, *ends[1:]))


def test_a_link_to_a_gpu_that_is_not_there_is_none() -> None:
    """It may have fallen off the bus, or be another node's."""
    gpus = (linked(0, {9: 8, 1: 2}), linked(1, {0: 2}))

    assert link_distances(gpus) == link_distances((linked(0, {1: 2}), linked(1, {0: 2})))


def told(*, memory_factor: int = 1, ours: bool = True) -> str:
    """Return Volcano's list of a pod whose containers of each stage have a GPU."""
    asked = pod(
        init(ask(1000, name="first")),
        sidecar(ask(2000, name="beside")),
        ask(3000, name="main", cores=30),
        ask(4000, name="last"),
    )
    held = {"last": 0, "first": 1, "main": 1, "beside": 0}
    grants = tuple(
        ContainerGrants(name=name, grants=(soft_grant(9, 9, gpu=f"GPU-n0-{at}"),))
        for name, at in held.items()
    )
    words = [
        replace(one, memory_factor=memory_factor) if one.name == VOLCANO.name else one
        for one in VOCABULARIES
    ]
    bound = BoundPod(
        assignment=Assignment(node="n0", mode=Mode.HAMI_CORE, containers=grants),
        request=asked,
        node=nodes_of(2, T4),
        containers=("main", "idle", "last"),
        init_containers=("first", "beside"),
        vocabularies=words,
        ours=ours,
        now=NOW,
    )
    return NVIDIA_FAMILY.binding_annotations(bound)[LIST_ANNOTATION]


def test_volcanos_list_has_no_init_containers() -> None:
    """Its plugin counts those of ``spec.containers`` in their order; each has what it asked for."""
    assert told() == "GPU-n0-1,NVIDIA,3000,30:;;GPU-n0-0,NVIDIA,4000,0:"


def test_memory_is_in_the_unit_of_volcanos_settings() -> None:
    """Its plugin multiplies by the factor again."""
    assert told(memory_factor=10) == "GPU-n0-1,NVIDIA,300,30:;;GPU-n0-0,NVIDIA,400,0:"
