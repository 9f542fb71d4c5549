"""Containers that a real kubelet starts: who goes first holds back a neighbour, and lets it go."""

import pytest

from tests.builders.pods import CORES, MEMORY, NUMBER
from tests.cluster.api import Json, wait_for
from tests.cluster.node_agent import GpuNode
from tests.cluster.node_pods import RUN_WITHIN, grants_of, running, soft
from tests.cluster.tenant_program import VOLUME, TenantProgram, played

pytestmark = pytest.mark.node

ON_BOTH = {NUMBER: 2, MEMORY: 3000, CORES: 10}
OURS = "vgpu-admission.io/"


def started(gpu_node: GpuNode, team: str, name: str, **annotations: str) -> Json:
    """Return a running pod that shares all GPUs of the node."""
    written = soft(played(ON_BOTH), name=name, volumes=[VOLUME])
    own = {f"{OURS}{key.replace('_', '-')}": value for key, value in annotations.items()}
    written["metadata"]["annotations"] |= own
    wait_for(lambda: not gpu_node.site.refusal(team, written))  # its namespace is known by then
    gpu_node.site.create(team, written)
    return running(gpu_node.site, team, name)


def test_a_pod_that_goes_first_holds_back_its_neighbour_while_it_computes(
    gpu_node: GpuNode, team: str
) -> None:
    """From its annotation through admission, promise, seed and feedback to the other's launches."""
    allowed = {"metadata": {"annotations": {f"{OURS}high-priority": "allow"}}}
    gpu_node.site.api.patch(f"/api/v1/namespaces/{team}", allowed)
    urgent = started(gpu_node, team, "urgent", task_priority="high")
    patient = started(gpu_node, team, "patient")
    shared = {g.gpu for g in grants_of(gpu_node, urgent)} & {
        g.gpu for g in grants_of(gpu_node, patient)
    }
    assert shared

    with TenantProgram(gpu_node, urgent) as first, TenantProgram(gpu_node, patient) as second:
        wait_for(lambda: second.tell("host") != "0" != first.tell("host"), within=RUN_WITHIN)

        def held_back() -> bool:
            assert first.tell("launch") != "blocked"
            return second.tell("launch") == "blocked"

        wait_for(held_back, within=RUN_WITHIN)
        wait_for(lambda: second.tell("launch") != "blocked", within=RUN_WITHIN)
