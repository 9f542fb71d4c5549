"""Agents are replaced and killed under arriving pods, on a kubelet that reports rarely.

Kubelet fails a pod for good that it admits while no plugin serves, and the scheduler learns late
that there is none. So the node itself takes no bind meanwhile, and a relay outlives the agent.
"""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.builders.pods import NUMBER
from tests.cluster.api import wait_for
from tests.cluster.arrivals import PAUSE, AgentPod, Arrivals, agent_pod, lost
from tests.cluster.kubelet import pods_of
from tests.cluster.node_agent import GpuNode
from tests.cluster.node_pods import phase

# Pods that pile up while a node is closed start one after the other, on a busy machine slowly.
pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

BETWEEN = 2.0  # seconds, so that pods are on their way


@pytest.fixture(scope="module")
def pair(gpu_node: GpuNode) -> Iterator[AgentPod]:
    """Yield the agent of the node with a relay, as the DaemonSet runs it."""
    with agent_pod(gpu_node) as found:
        yield found


@pytest.mark.parametrize(("disturb", "times"), [(AgentPod.roll_out, 1), (AgentPod.kill_agent, 2)])
def test_nobody_is_lost(
    pair: AgentPod, team: str, *, disturb: Callable[[AgentPod], None], times: int
) -> None:
    """Each pod that arrives meanwhile is bound, or is bound later, and succeeds."""
    with Arrivals(pair.gpu_node, team) as arrivals:
        for _ in range(times):
            time.sleep(BETWEEN)
            disturb(pair)
        time.sleep(BETWEEN)

    pods = arrivals.ended()
    assert len(pods) > times * BETWEEN / PAUSE
    assert lost(pods) == []


def test_a_node_whose_agent_has_died_takes_no_bind(pair: AgentPod) -> None:
    """The relay may write so much, and the next agent opens the node again."""
    assert not pair.gpu_node.ledger().closed
    pair.agent.kill()

    wait_for(lambda: pair.gpu_node.ledger().closed, within=BETWEEN)

    assert pair.gpu_node.node.allocatable(NUMBER) not in {"", "0"}
    pair.kill_agent()
    wait_for(lambda: not pair.gpu_node.ledger().closed, within=10)


def test_a_killed_relay_loses_only_pods_on_their_way(pair: AgentPod, team: str) -> None:
    """The agent closes the node at once, so at most one was bound and not admitted yet."""
    with Arrivals(pair.gpu_node, team) as arrivals:
        time.sleep(BETWEEN)
        pair.kill_relay()
        time.sleep(BETWEEN)

    assert len(lost(arrivals.ended())) <= 1
    assert "Succeeded" in {phase(pod) for pod in pods_of(pair.gpu_node.site, team).values()}
