"""What a container does under the interception library is what the agent tells of it."""

import time

import pytest

from agent.driver.driver import Process
from allocator.model.units import MiB
from tests.builders.pods import CORES, MEMORY, NUMBER
from tests.cluster.api import Json, wait_for
from tests.cluster.node_agent import GpuNode
from tests.cluster.node_pods import RUN_WITHIN, grants_of, pod_of, process_of, running, soft
from tests.cluster.tenant_program import VOLUME, TenantProgram, played

pytestmark = pytest.mark.node

MIB = 1024 * 1024
TWO = {NUMBER: 2, MEMORY: 3000, CORES: 10}
USED, OLD_USED = "vgpu_container_memory_used_bytes", "vGPU_device_memory_usage_in_bytes"
LIMIT, OLD_LIMIT = "vgpu_container_memory_limit_bytes", "vGPU_device_memory_limit_in_bytes"
HOST = "vgpu_container_host_memory_bytes"
LAST, OLD_LAST = "vgpu_container_last_kernel_timestamp_seconds", "Device_last_kernel_of_container"
OF_THE_LIBRARY = (USED, OLD_USED, LAST, OLD_LAST, "Device_memory_desc_of_container")


@pytest.fixture
def found(gpu_node: GpuNode, team: str) -> Json:
    """Return a running pod on two GPUs whose only process has not attached to its region yet."""
    gpu_node.site.create(team, soft(played(TWO), volumes=[VOLUME]))
    return running(gpu_node.site, team)


def told(gpu_node: GpuNode, found: Json, *used: int) -> None:
    """Return once these bytes by GPU are told of a pod, under our name and the old one."""
    team, gpus = found["metadata"]["namespace"], [grant.gpu for grant in grants_of(gpu_node, found)]
    index = {gpu: str(gpu_node.uuids.index(gpu)) for gpu in gpus}

    def now() -> list[list[float]]:
        scrape = gpu_node.scrape()
        return [
            [
                *scrape.of(USED, namespace=team, pod="p", device=index[gpu]),
                *scrape.of(OLD_USED, podnamespace=team, podname="p", deviceuuid=gpu),
            ]
            for gpu in gpus
        ]

    wait_for(lambda: now() == [[amount, amount] for amount in used], within=RUN_WITHIN)


def test_nothing_is_told_of_a_library_that_told_nothing(gpu_node: GpuNode, found: Json) -> None:
    """Limits stand from the beginning; what is used is absent, never 0, while nobody counts it."""
    team, pid = found["metadata"]["namespace"], process_of(gpu_node, found)
    gpu = grants_of(gpu_node, found)[0].gpu
    gpu_node.machine.add(Process(pid=pid, gpu=gpu, memory=MiB(123)))
    try:
        # So that what is asked next was looked at while the container ran.
        wait_for(lambda: 123 * MIB in gpu_node.scrape().of(HOST, namespace=team), within=RUN_WITHIN)
        scrape = gpu_node.scrape()
    finally:
        gpu_node.machine.end(pid)

    assert scrape.of(LIMIT, namespace=team, pod="p") == [3000 * MIB] * 2
    assert scrape.of(OLD_LIMIT, podnamespace=team, podname="p") == [3000 * MIB] * 2
    for name in OF_THE_LIBRARY:
        assert not scrape.of(name, namespace=team)
        assert not scrape.of(name, podnamespace=team)


def test_figures_are_what_the_container_did(gpu_node: GpuNode, found: Json) -> None:
    """Bytes by GPU, of all its processes, and the last kernel; what a dead one held is free."""
    team = found["metadata"]["namespace"]
    with TenantProgram(gpu_node, found) as one, TenantProgram(gpu_node, found, "two") as two:
        assert one.tell(f"alloc 0 {500 * MIB}") == str(500 * MIB)
        assert one.tell(f"alloc 1 {7 * MIB}") == str(7 * MIB)
        assert two.tell(f"alloc 1 {40 * MIB}") == str(40 * MIB)
        told(gpu_node, found, 500 * MIB, 47 * MIB)
        one.tell(f"free 0 {200 * MIB}")
        told(gpu_node, found, 300 * MIB, 47 * MIB)

        before = int(time.time())
        one.tell("launch")
        wait_for(
            lambda: any(
                before <= last <= time.time()
                for last in gpu_node.scrape().of(LAST, namespace=team, pod="p")
            ),
            within=RUN_WITHIN,
        )
        assert len(gpu_node.scrape().of(OLD_LAST, podnamespace=team, podname="p")) == 2

        two.kill()
        told(gpu_node, found, 300 * MIB, 7 * MIB)


def test_a_container_is_limited_as_promised(gpu_node: GpuNode, found: Json) -> None:
    """Memory to the byte, and compute once it knows its own number on the node."""
    with TenantProgram(gpu_node, found) as one:
        assert [one.tell(f"limit {device}") for device in (0, 1)] == [str(3000 * MIB)] * 2
        assert one.tell(f"alloc 0 {3000 * MIB}") == str(3000 * MIB)
        assert one.tell("alloc 0 1") == "oom"
        pid = str(process_of(gpu_node, found))
        wait_for(lambda: one.tell("host") == pid, within=RUN_WITHIN)
        assert one.tell("launch") == "limited 10"


def test_the_next_life_begins_with_nothing(gpu_node: GpuNode, team: str, found: Json) -> None:
    """A container that dies gets its limits anew, and what it held before is nobody's."""
    with TenantProgram(gpu_node, found) as one:
        one.tell(f"alloc 0 {2000 * MIB}")
        told(gpu_node, found, 2000 * MIB, 0)
        one.kill()

    def again() -> Json | None:
        now = pod_of(gpu_node.site, team)
        (status,) = now["status"]["containerStatuses"]
        return now if status["restartCount"] == 1 and "running" in status["state"] else None

    now = wait_for(again, within=RUN_WITHIN)
    assert now is not None
    wait_for(lambda: not gpu_node.scrape().of(USED, namespace=team), within=RUN_WITHIN)
    with TenantProgram(gpu_node, now) as two:
        assert two.tell(f"alloc 0 {2900 * MIB}") == str(2900 * MIB)
        told(gpu_node, now, 2900 * MIB, 0)
