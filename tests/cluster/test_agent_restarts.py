"""What is disturbed on a real node while tenants run or start, and what they notice of it."""

import sys

import pytest

from tests.builders.pods import CORES, MEMORY, NUMBER
from tests.cluster.api import Json, wait_for
from tests.cluster.kubelet import pods_of
from tests.cluster.node_agent import GpuNode
from tests.cluster.node_pods import (
    HARD,
    RUN_WITHIN,
    SOFT,
    delete,
    device_of,
    empty,
    entry_of,
    hard,
    inside,
    lives,
    looking,
    phase,
    pod_of,
    running,
    soft,
    undisturbed,
)
from tests.cluster.node_times import Times

pytestmark = pytest.mark.node

OTHER = 999  # NVML_ERROR_UNKNOWN
CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"


def serves(found: GpuNode, team: str) -> None:
    """Check that another pod of each mode starts."""
    found.site.create(team, soft(name="soft-after"))
    found.site.create(team, hard(name="hard-after"))
    for name in ("soft-after", "hard-after"):
        assert device_of(found, running(found.site, team, name))


@pytest.mark.usefixtures("tenants")
def test_a_kubelet_restart(gpu_node: GpuNode, team: str) -> None:
    """Tenants run on, the slots are registered again, and pods start as before."""
    gpu_node.node.kubelet.stop()
    gpu_node.node.start()
    gpu_node.wait_until_serving()

    undisturbed(gpu_node, team, ("soft", "hard"))
    serves(gpu_node, team)
    undisturbed(gpu_node, team, ("soft", "hard"))


def test_a_killed_agent(gpu_node: GpuNode, team: str, tenants: dict[str, str]) -> None:
    """Tenants run on, instances and promises are as before, and pods start again."""
    before = gpu_node.instances()

    gpu_node.agent.kill()
    gpu_node.start()

    undisturbed(gpu_node, team, ("soft", "hard"))
    assert tenants["hard"] in gpu_node.instances().keys() & before.keys()
    serves(gpu_node, team)
    undisturbed(gpu_node, team, ("soft", "hard"))


@pytest.mark.usefixtures("tenants")
def test_a_rebooted_node(gpu_node: GpuNode, team: str) -> None:
    """Instances are gone with the power; each pod that runs again has what it was promised."""
    entries = {
        name: entry_of(gpu_node, pod_of(gpu_node.site, team, name)) for name in ("soft", "hard")
    }

    gpu_node.reboot()

    def settled() -> bool:
        pods = pods_of(gpu_node.site, team)
        lives = [pods[name]["status"]["containerStatuses"][0]["restartCount"] for name in entries]
        return all(life == 1 for life in lives) and all(
            phase(pods[name]) == "Running" for name in entries
        )

    wait_for(settled, within=RUN_WITHIN)
    for name, entry in entries.items():
        found = pod_of(gpu_node.site, team, name)
        assert entry_of(gpu_node, found).containers == entry.containers
        assert device_of(gpu_node, found)
    assert gpu_node.ledger().boot == gpu_node.node.host.boot_id


def test_a_container_that_outlives_its_pod(gpu_node: GpuNode, team: str) -> None:
    """After a deletion by force the share is nobody's until the last process has ended."""
    empty(gpu_node)
    all_of_it = {NUMBER: 2, MEMORY: 3000, CORES: 100}
    deaf = looking(limits=all_of_it, then=("linger", "100000"))
    gpu_node.site.create(team, soft(deaf, name="old", terminationGracePeriodSeconds=5))
    old = running(gpu_node.site, team, "old")["metadata"]["uid"]
    inside(gpu_node.node, pod_of(gpu_node.site, team, "old"))

    delete(gpu_node.site, team, "old", grace=0)
    gpu_node.site.create(team, soft(looking(limits=all_of_it), name="new"))

    def both() -> bool:
        alive = lives(gpu_node).keys()
        new = pod_of(gpu_node.site, team, "new")
        assert not {old, new["metadata"]["uid"]} <= alive
        return phase(new) == "Running"

    assert old in lives(gpu_node)
    wait_for(both, within=RUN_WITHIN)


def test_a_pod_deleted_while_it_starts(gpu_node: GpuNode, team: str) -> None:
    """Nothing is left of what was begun for it: no promise, and no half of an instance."""
    gpu_node.machine.fail(CREATE, OTHER, nth=0)
    try:
        gpu_node.site.create(team, hard(looking(limits=HARD | {MEMORY: 18000})))
        wait_for(lambda: gpu_node.machine.calls(CREATE), within=RUN_WITHIN)
        uid = pod_of(gpu_node.site, team)["metadata"]["uid"]
        delete(gpu_node.site, team)
    finally:
        gpu_node.machine.mend()

    wait_for(lambda: uid not in gpu_node.promised(), within=RUN_WITHIN)
    wait_for(lambda: len(gpu_node.halves()) == len(gpu_node.instances()), within=RUN_WITHIN)


def test_twenty_pods_at_once(
    gpu_node: GpuNode, team: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every container sees its own promise and nobody else's, however many start at a time."""
    empty(gpu_node)
    wanted = [
        hard(looking(limits=HARD), name=f"p{n}")
        if n % 3
        else soft(looking(limits=SOFT), name=f"p{n}")
        for n in range(20)
    ]

    for written in wanted:
        gpu_node.site.create(team, written)

    pods: list[Json] = [running(gpu_node.site, team, f"p{n}") for n in range(20)]
    seen = [device_of(gpu_node, pod) for pod in pods]
    instances = [visible for visible in seen if visible.startswith("MIG-")]
    assert len(instances) == len(set(instances)) == 13
    with capsys.disabled():
        sys.stdout.write(Times.of(gpu_node, pods).table())
