"""Who takes more than was promised is told, on a real node's processes and control groups."""

import pytest

from agent.driver.driver import Process
from allocator.model.units import MiB
from tests.cluster.api import wait_for
from tests.cluster.node_agent import GpuNode
from tests.cluster.node_pods import RUN_WITHIN, grants_of, process_of, running, soft
from tests.cluster.widening import by_variables, held_to_its_share

pytestmark = pytest.mark.node


def test_memory_beyond_the_promise_is_told(gpu_node: GpuNode, team: str) -> None:
    """A process is its container's by its control group; what it takes too much is a violation."""
    gpu_node.site.create(team, soft())
    found = running(gpu_node.site, team)
    (grant,) = grants_of(gpu_node, found)
    pid = process_of(gpu_node, found)
    gpu_node.machine.add(Process(pid=pid, gpu=grant.gpu, memory=MiB(grant.memory + 2000)))
    try:
        wait_for(
            lambda: gpu_node.scrape().of("vgpu_container_violation", pod="p", kind="memory"),
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
    wait_for(
        lambda: not gpu_node.scrape().of("vgpu_container_violation", pod="p"), within=RUN_WITHIN
    )


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
    team = site.unlabelled_namespace()
    site.create(team, by_variables())
    try:
        held_to_its_share(gpu_node, running(site, team))
    finally:
        site.api.delete(f"/api/v1/namespaces/{team}/pods/p", {"gracePeriodSeconds": 1})
