"""From a user's pod to a running container on a real node: what arrives is what was promised."""

import pytest

from tests.builders.pods import CORES, MEMORY, MODE, NUMBER, container
from tests.cluster.api import Json, wait_for
from tests.cluster.node_agent import GpuNode
from tests.cluster.node_pods import (
    CACHE,
    HARD,
    LIBRARY,
    LOST_CACHE,
    PRELOAD,
    SOFT,
    VISIBLE,
    device_of,
    empty,
    grants_of,
    hard,
    inside,
    looking,
    over,
    pod_of,
    running,
    soft,
)
from tests.cluster.widening import by_config_map, held_to_its_share

pytestmark = pytest.mark.node

# As the guides have them (seeds 000, 001, 002), but for the scheduler, which is the cluster's own.
GUIDES = {
    "gpu-pod1": ({}, {NUMBER: 2, MEMORY: 3000, CORES: 50}),  # first: it needs room on two
    "hami-pod": ({MODE: "hami-core"}, {NUMBER: 1, CORES: 50, MEMORY: 3000}),
    "mig-pod": ({MODE: "mig"}, {NUMBER: 1, MEMORY: 3000}),
    "gpu-pod": ({MODE: "hami-core"}, {NUMBER: 1, MEMORY: 1000, CORES: 10}),
}


def guide(name: str, **spec: object) -> Json:
    annotations, limits = GUIDES[name]
    image = "nvidia/cuda:9.0-devel"
    one = container("cuda-container", limits, image=image, command=["sleep"], args=["100000"])
    metadata = {"name": name, "annotations": annotations}
    return {"metadata": metadata, "spec": {"containers": [one], **spec}}


def test_pods_of_the_guides_run_with_what_they_asked_for(gpu_node: GpuNode, team: str) -> None:
    """Each starts, and its containers were given devices of its own promise, as many as asked."""
    empty(gpu_node)
    for name, (_, limits) in GUIDES.items():
        gpu_node.site.create(team, guide(name))

        found = running(gpu_node.site, team, name)

        grants = grants_of(gpu_node, found, "cuda-container")
        assert len(grants) == limits[NUMBER]
        assert all(grant.memory >= int(limits[MEMORY]) for grant in grants)


def test_a_soft_slice_from_inside(gpu_node: GpuNode, team: str) -> None:
    """Limits, library and region are there, and none of them can be written to but the region."""
    gpu_node.site.create(team, soft())

    seen = held_to_its_share(gpu_node, running(gpu_node.site, team))

    assert seen.env["CUDA_DEVICE_SM_LIMIT_0"] == "10"
    assert seen.env["CUDA_DEVICE_MEMORY_SHARED_CACHE"] == CACHE
    assert seen.env["LD_PRELOAD"] == ""
    assert {path: seen.mounts[path] for path in (PRELOAD, LIBRARY, CACHE, LOST_CACHE)} == {
        **dict.fromkeys((PRELOAD, LIBRARY), "ro"),
        **dict.fromkeys((CACHE, LOST_CACHE), "rw"),
    }
    assert "/tmp/vgpu" not in seen.mounts  # the directory is the node's
    assert not [name for name in seen.told("list /dev:") if "nvidia-cap" in name]


def test_a_mig_instance_from_inside(gpu_node: GpuNode, team: str) -> None:
    """The promised placement exists, is all that is visible, and its capability files are there."""
    gpu_node.site.create(team, hard())

    found = running(gpu_node.site, team)
    seen = inside(gpu_node.node, found)

    (grant,) = grants_of(gpu_node, found)
    assert device_of(gpu_node, found).startswith("MIG-")
    assert "CUDA_DEVICE_MEMORY_LIMIT" not in seen.env
    assert PRELOAD not in seen.mounts
    assert len(seen.told("list /dev/nvidia-caps:")) == 2
    index = gpu_node.uuids.index(grant.gpu)
    assert {f"nvidia{index}", "nvidiactl", "nvidia-uvm"} <= set(seen.told("list /dev:"))


def test_a_pod_that_may_become_either_has_no_region_as_mig(gpu_node: GpuNode, team: str) -> None:
    """Its mounts were written before that was known; what kubelet mounts there takes no data."""
    empty(gpu_node)
    written = soft(looking(limits={NUMBER: 1, MEMORY: 4800}))
    del written["metadata"]["annotations"]
    gpu_node.site.create(team, written)

    found = running(gpu_node.site, team)
    seen = inside(gpu_node.node, found)

    assert device_of(gpu_node, found).startswith("MIG-")
    assert {seen.mounts[path] for path in (CACHE, LOST_CACHE)} == {"rw"}
    for path in (CACHE, LOST_CACHE):
        assert seen.told(f"bytes {path}:") == ["No such device or address"]
    assert seen.told(f"read {PRELOAD}:") == []


def test_pods_have_an_instance_each(gpu_node: GpuNode, team: str) -> None:
    """What was cut for a pod is nobody else's while it runs."""
    gpu_node.site.create(team, hard(name="one"))
    gpu_node.site.create(team, hard(name="two"))

    one, two = (device_of(gpu_node, running(gpu_node.site, team, name)) for name in ("one", "two"))

    assert one != two


@pytest.mark.parametrize(
    "forged",
    [
        {"name": VISIBLE, "value": "all"},
        {"name": "CUDA_DEVICE_MEMORY_LIMIT_0", "value": "0"},
        {"name": "CUDA_DISABLE_CONTROL", "value": "true"},
        {"name": "LD_PRELOAD", "value": "/tmp/mine.so"},
    ],
    ids=lambda forged: forged["name"],
)
def test_a_tenant_cannot_write_a_wider_share(
    gpu_node: GpuNode, team: str, forged: dict[str, str]
) -> None:
    """A variable that would lift a limit is refused when the pod is created, by its name."""
    refusal = gpu_node.site.refusal(team, soft(looking(limits=SOFT, env=[forged])))

    assert forged["name"] in refusal


def test_what_a_config_map_brings_loses(gpu_node: GpuNode, team: str) -> None:
    """Variables that nobody sees at CREATE, as those of envFrom, do not widen a share either."""
    gpu_node.site.create(team, by_config_map(gpu_node.site, team))

    held_to_its_share(gpu_node, running(gpu_node.site, team))


def test_two_containers_have_a_share_each(gpu_node: GpuNode, team: str) -> None:
    """Containers of one pod see their own devices, limits and regions."""
    small = {NUMBER: 1, MEMORY: 1000, CORES: 10}
    gpu_node.site.create(team, soft(looking("one", SOFT), looking("two", small)))

    found = running(gpu_node.site, team)

    limits = {}
    for name in ("one", "two"):
        assert device_of(gpu_node, found, name)
        limits[name] = inside(gpu_node.node, found, name).env["CUDA_DEVICE_MEMORY_LIMIT_0"]
    assert limits == {"one": "3000m", "two": "1000m"}


def test_an_init_container_and_its_heir(gpu_node: GpuNode, team: str) -> None:
    """Slots that an app container takes over from an init container tell each who it is."""
    big = {NUMBER: 2, MEMORY: 2000, CORES: 20}
    first = looking("first", big, then=("exit", "0"))
    gpu_node.site.create(team, soft(looking(limits=SOFT), init=[first]))

    found = running(gpu_node.site, team)
    before = inside(gpu_node.node, found, "first")
    after = inside(gpu_node.node, found)

    assert len(before.env[VISIBLE].split(",")) == 2
    assert before.env["CUDA_DEVICE_MEMORY_LIMIT_1"] == "2000m"
    assert len(after.env[VISIBLE].split(",")) == 1
    assert after.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"


def test_instances_of_one_pod(gpu_node: GpuNode, team: str) -> None:
    """Containers of one pod have an instance each, and so has an init container before them."""
    first = looking("first", HARD, then=("exit", "0"))
    wanted = hard(looking("one", HARD), looking("two", HARD | {MEMORY: 9000}), init=[first])
    gpu_node.site.create(team, wanted)

    found = running(gpu_node.site, team)

    one, two = (device_of(gpu_node, found, name) for name in ("one", "two"))
    assert one != two
    assert device_of(gpu_node, found, "first").startswith("MIG-")


def test_a_sidecar_runs_beside(gpu_node: GpuNode, team: str) -> None:
    """A restartable init container has a share of its own for as long as the pod runs."""
    small = {NUMBER: 1, MEMORY: 1000, CORES: 10}
    sidecar = looking("sidecar", small, restartPolicy="Always")
    gpu_node.site.create(team, soft(looking(limits=SOFT), init=[sidecar]))

    found = running(gpu_node.site, team)

    assert inside(gpu_node.node, found, "sidecar").env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"
    assert inside(gpu_node.node, found).env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"


@pytest.mark.parametrize("write", [soft, hard], ids=["hami-core", "mig"])
def test_a_crash_loop_keeps_its_share(gpu_node: GpuNode, team: str, write: object) -> None:
    """Every life of a container has the same devices, and nobody else gets them meanwhile."""
    assert callable(write)
    limits = SOFT if write is soft else HARD
    gpu_node.site.create(team, write(looking(limits=limits, then=("exit", "1"))))

    def restarts() -> int:
        (status,) = pod_of(gpu_node.site, team)["status"].get("containerStatuses", [{}])
        return int(status.get("restartCount", 0))

    wait_for(lambda: restarts() >= 1, within=60)
    first = inside(gpu_node.node, pod_of(gpu_node.site, team)).env[VISIBLE]
    count = restarts()
    wait_for(lambda: restarts() > count, within=60)
    assert inside(gpu_node.node, pod_of(gpu_node.site, team)).env[VISIBLE] == first


def test_a_pod_without_gpus_sees_none(gpu_node: GpuNode, team: str) -> None:
    """The image asks for all GPUs; a pod of the namespace that asked for none has none."""
    one = looking(then=("exit", "0"))
    gpu_node.site.create(
        team,
        {"metadata": {"name": "p"}, "spec": {"containers": [one], "restartPolicy": "Never"}},
    )

    seen = inside(gpu_node.node, over(gpu_node.site, team))

    assert seen.env[VISIBLE] == "void"
