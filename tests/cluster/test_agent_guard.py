"""Who takes more than was promised is told, on a real node's processes and control groups."""

import re
from collections.abc import Iterator

import pytest

from agent.core.driver import Process
from allocator.model.units import MiB
from tests.cluster.api import wait_for
from tests.cluster.node_agent import GpuNode
from tests.cluster.node_pods import (
    RUN_WITHIN,
    SOFT,
    grants_of,
    inside,
    looking,
    running,
    soft,
    team_of,
)
from tests.cluster.volcano import http_get

pytestmark = pytest.mark.node

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@pytest.fixture
def team(gpu_node: GpuNode) -> Iterator[str]:
    """Yield a namespace whose pods are gone when the test is over."""
    with team_of(gpu_node) as name:
        yield name


def samples(found: GpuNode, name: str, **labels: str) -> list[float]:
    """Return what the agent's port says of one metric where all these labels stand."""
    rows = []
    for line in http_get(found.port, "/metrics").splitlines():
        before, _, value = line.rpartition(" ")
        if (
            before.startswith(f"{name}{{")
            and labels.items() <= dict(_LABEL.findall(before)).items()
        ):
            rows.append(float(value))
    return rows


def only_process(found: GpuNode, uid: str) -> int:
    """Return the process of a pod's only container, as the node counts processes."""
    tasks = found.node.runtime.tasks()
    for container, pid in tasks.items():
        labels = found.node.runtime.labels(container)
        if labels.get("io.kubernetes.container.name") and labels["io.kubernetes.pod.uid"] == uid:
            return pid
    raise LookupError(uid)


def test_memory_beyond_the_promise_is_told(gpu_node: GpuNode, team: str) -> None:
    """A process is its container's by its control group; what it takes too much is a violation."""
    gpu_node.site.create(team, soft())
    found = running(gpu_node.site, team)
    (grant,) = grants_of(gpu_node, found)
    pid = only_process(gpu_node, found["metadata"]["uid"])
    gpu_node.machine.add(Process(pid=pid, gpu=grant.gpu, memory=MiB(grant.memory + 2000)))
    try:
        wait_for(
            lambda: samples(gpu_node, "vgpu_container_violation", pod="p", kind="memory"),
            within=RUN_WITHIN,
        )
        events = f"/apis/events.k8s.io/v1/namespaces/{team}/events"
        wait_for(
            lambda: [
                event
                for event in gpu_node.site.api.get(events)["items"]
                if str(grant.memory) in event.get("note", "")
            ],
            within=RUN_WITHIN,
        )
    finally:
        gpu_node.machine.end(pid)
    wait_for(lambda: not samples(gpu_node, "vgpu_container_violation", pod="p"), within=RUN_WITHIN)


def test_memory_of_strangers_is_not_promised(gpu_node: GpuNode) -> None:
    """What a process outside every pod holds is told and taken from what can be promised."""
    gpu = gpu_node.uuids[0]
    stranger = gpu_node.node.host.number(gpu_node.node.kubelet.pid)

    def foreign() -> int:
        return next(g.foreign for g in gpu_node.ledger().node.gpus if g.uuid == gpu)

    gpu_node.machine.add(Process(pid=stranger, gpu=gpu, memory=MiB(7000)))
    try:
        wait_for(lambda: foreign() >= 7000, within=RUN_WITHIN)
    finally:
        gpu_node.machine.end(stranger)
    wait_for(lambda: foreign() < 7000, within=RUN_WITHIN)


def test_a_pod_that_passed_the_webhook_by(gpu_node: GpuNode) -> None:
    """Where admission did not see a pod, CDI still beats what its tenant wrote."""
    site = gpu_node.site
    team = site.namespace({})
    forged = {VISIBLE: "all", "CUDA_DEVICE_MEMORY_LIMIT_0": "0", "CUDA_DISABLE_CONTROL": "true"}
    env = [{"name": name, "value": value} for name, value in forged.items()]
    site.create(team, soft(looking(limits=SOFT, env=env)))
    try:
        found = running(site, team)
        seen = inside(gpu_node.node, found)
        (grant,) = grants_of(gpu_node, found)
        assert seen.env[VISIBLE] == grant.gpu
        assert seen.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"
        assert seen.env["CUDA_DISABLE_CONTROL"] == "false"
        assert seen.told("read /etc/ld.so.preload:") == ["/usr/local/vgpu/libvgpu.so"]
    finally:
        site.api.delete(f"/api/v1/namespaces/{team}/pods/p", {"gracePeriodSeconds": 1})
