"""How far NVIDIA's GPUs are apart, and Volcano's annotations of a bound pod."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from allocator.catalog.vocabularies import VOCABULARIES, VOLCANO, Vocabulary
from allocator.families.family import BoundPod
from allocator.families.nvidia import APART, FEWER, binding_annotations, link_distances
from allocator.model.allocation import Assignment, ContainerGrants
from allocator.model.gpu import Gpu
from allocator.model.request import Mode, Stage
from allocator.volcano.device_list import parse_device_list
from tests.builders.model import A100_40, ask, gpu, init, node, pod, soft_grant


def linked(
    *links: Sequence[int], counts: Sequence[Sequence[int]] = (), numas: Sequence[int | None] = ()
) -> list[Gpu]:
    """Return GPUs with NVLinks to the *links* numbers, *counts* of each, on *numas*."""
    return [
        replace(
            gpu(index=number),
            links=tuple(f"GPU-{other}" for other in others),
            link_counts=tuple(counts[number]) if counts else (),
            numa=numas[number] if numas else None,
        )
        for number, others in enumerate(links)
    ]


def apart(gpus: Sequence[Gpu], a: int, b: int) -> int:
    """Return how far two GPUs are apart."""
    found = link_distances(gpus)
    return found.distances[found.kinds[a]][found.kinds[b]] if found.distances else 0


FAR = 2 + APART  # of two GPUs of which nothing is known but that others are closer


@pytest.mark.parametrize(
    ("gpus", "distance"),
    [
        pytest.param(linked([1], [0], []), 2, id="both-ends"),
        pytest.param(linked([1], [], []), FAR, id="the-first-end-only"),
        pytest.param(linked([], [0], []), FAR, id="the-second-end-only"),
        pytest.param(linked([1], [2], [1]), FAR, id="another-at-the-other-end"),
        pytest.param(linked([9], [0], [])[:2], FAR, id="to-a-gpu-that-is-not-there"),
    ],
)
def test_an_nvlink_that_one_end_knows_is_none(gpus: list[Gpu], distance: int) -> None:
    """It may be broken, and a pod would be sent where its GPUs do not speak to each other."""
    assert apart(gpus, 0, 1) == apart(gpus, 1, 0) == distance


@pytest.mark.parametrize(
    ("counts", "distances"),
    [
        # GPU 0 with 1, and 0 with 2; the most links of two GPUs are the measure of all.
        (([4, 2], [4], [2]), (2, 2 + FEWER)),
        (([4, 4], [4], [4]), (2, 2)),
        (([4, 2], [2], [2]), (2, 2)),  # both ends count: as many as the one knows that knows fewer
        (([4, 2], [1], [2]), (2 + FEWER, 2)),
        (([], [], []), (2, 2)),  # of unknown number: all alike
        (([4], [4], [2]), (2, 2)),  # GPU 0 has not one for each link, so its are unknown
    ],
)
def test_fewer_nvlinks_are_farther(
    counts: Sequence[Sequence[int]], distances: tuple[int, int]
) -> None:
    """Than the most that two GPUs of the node have."""
    gpus = linked([1, 2], [0], [0], counts=counts)

    assert (apart(gpus, 0, 1), apart(gpus, 0, 2)) == distances


def test_links_of_unknown_number_count_as_one() -> None:
    """So two GPUs with two known links between them are closer."""
    gpus = linked([1], [0], [3], [2], counts=([], [4], [2], [2]))

    assert (apart(gpus, 0, 1), apart(gpus, 2, 3)) == (2 + FEWER, 2)


def test_a_pcie_switch_counts_without_numa_nodes_and_links() -> None:
    """A virtual machine may show its GPUs that way."""
    gpus = [replace(gpu(index=n), switch=switch) for n, switch in enumerate(("a", "a", "b"))]

    assert [apart(gpus, 0, other) for other in (1, 2)] == [APART, 2 + APART]


def test_what_hangs_together_is_close() -> None:
    """A PCIe switch before a NUMA node, and both count beside NVLinks."""
    first = [
        replace(gpu(index=number), numa=numa, switch=switch)
        for number, (numa, switch) in enumerate([(0, "a"), (0, "a"), (0, "b"), (1, "c"), (1, None)])
    ]

    assert [apart(first, 0, other) for other in (1, 2, 3)] == [APART, 1 + APART, 2 + APART]
    assert apart(first, 3, 4) == 1 + APART
    joined = [replace(first[0], links=("GPU-1",)), replace(first[1], links=("GPU-0",)), *first[2:]]
    assert apart(joined, 0, 1) == 0
    nowhere = [replace(gpu(index=n), numa=numa) for n, numa in enumerate((None, None, 0))]
    assert apart(nowhere, 0, 1) == 2 + APART


def test_instances_of_cut_gpus_have_their_numa_node_alone() -> None:
    """They speak to no other GPU over NVLink or PCIe."""
    cut = [
        replace(
            gpu(index=n, mode=Mode.MIG),
            numa=n // 2,
            switch="a",
            links=tuple(f"GPU-{m}" for m in range(4) if m != n),
        )
        for n in range(4)
    ]

    assert [apart(cut, 0, other) for other in (1, 2, 3)] == [1 + APART, 2 + APART, 2 + APART]


def test_a_node_that_says_nothing_has_no_distances() -> None:
    """Its GPUs are of one kind."""
    found = link_distances([gpu(index=n) for n in range(3)])

    assert (found.kinds, found.distances) == ((0, 0, 0), ())


NOW = datetime(2026, 3, 1, 8, 15, 31, tzinfo=UTC)
NODE = node("n0", gpu(A100_40), gpu(A100_40, index=1))


def bound(*, ours: bool, factor: int = 1) -> BoundPod:
    """Return a pod whose init container and second container have a GPU each."""
    load = init(ask(3000, cores=30, name="load"))
    main = ask(2000, cores=20, name="second")
    grants = (
        ContainerGrants(
            name="load", grants=(soft_grant(3000, 30, gpu="GPU-n0-1"),), stage=Stage.INIT
        ),
        ContainerGrants(name="second", grants=(soft_grant(2000, 20, gpu="GPU-n0-0"),)),
    )
    return BoundPod(
        assignment=Assignment(node="n0", mode=Mode.HAMI_CORE, containers=grants),
        request=pod(load, main),
        node=NODE,
        containers=("first", "second", "third"),
        init_containers=("load",),
        vocabularies=tuple(replace(one, memory_factor=factor) for one in VOCABULARIES),
        ours=ours,
        now=NOW,
    )


def test_init_containers_are_not_in_volcano_s_list() -> None:
    """Its plugin counts the containers of the spec from the first app container on."""
    notes = binding_annotations(bound(ours=False))

    assert notes["volcano.sh/vgpu-ids-new"] == ";GPU-n0-0,NVIDIA,2000,20:;"


def test_memory_is_in_the_unit_of_the_cluster() -> None:
    """As Volcano's scheduler and plugin are configured."""
    notes = binding_annotations(bound(ours=False, factor=10))

    assert [
        device.memory
        for part in parse_device_list(notes["volcano.sh/vgpu-ids-new"])
        for device in part
    ] == [200]


def memory(vocabularies: Sequence[Vocabulary]) -> list[int]:
    """Return what Volcano's list says where *vocabularies* are served."""
    notes = binding_annotations(replace(bound(ours=False), vocabularies=tuple(vocabularies)))
    parts = parse_device_list(notes["volcano.sh/vgpu-ids-new"])
    return [device.memory for part in parts for device in part]


def test_the_units_of_other_vocabularies_change_nothing() -> None:
    """Nor does it when Volcano's is not served at all: memory is in MiB then."""
    others = [replace(one, memory_factor=10) for one in VOCABULARIES if one.name != VOLCANO.name]

    assert others
    assert memory([*others, VOLCANO]) == memory(others) == memory([]) == [2000]


def test_another_plugin_is_handed_the_devices_and_ours_is_done() -> None:
    """An open hand-over would make vc-scheduler wait for a plugin that never comes."""
    theirs, mine = binding_annotations(bound(ours=False)), binding_annotations(bound(ours=True))

    devices = theirs["volcano.sh/vgpu-ids-new"]
    assert devices == mine["volcano.sh/vgpu-ids-new"]
    assert {key: theirs[key] for key in theirs if key != "volcano.sh/vgpu-ids-new"} == {
        "volcano.sh/vgpu-node": "n0",
        "volcano.sh/vgpu-time": "1772352931",
        "volcano.sh/devices-to-allocate": devices,
        "volcano.sh/bind-time": "1772352931",
        "volcano.sh/bind-phase": "allocating",
    }
    assert mine["volcano.sh/devices-to-allocate"] == ""
    assert mine["volcano.sh/bind-phase"] == "success"
    assert mine["volcano.sh/vgpu-time"] == str(2**64 - 1)
