"""What is disturbed on a real node while tenants run or start, and what they notice of it."""

import sys
from collections.abc import Iterator, Sequence

import pytest

from tests.cluster.api import Json, wait_for
from tests.cluster.kubelet import pods_of
from tests.cluster.node_agent import GpuNode
from tests.cluster.node_pods import (
    HARD,
    RUN_WITHIN,
    SOFT,
    delete,
    empty,
    entry_of,
    grants_of,
    hard,
    inside,
    looking,
    phase,
    pod_of,
    running,
    soft,
    team_of,
)
from tests.cluster.node_times import Times
from tests.pods import CORES, MEMORY, NUMBER

pytestmark = pytest.mark.node

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
OTHER = 999  # NVML_ERROR_UNKNOWN
CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"
COMPUTE = "nvmlGpuInstanceCreateComputeInstance"


@pytest.fixture
def team(gpu_node: GpuNode) -> Iterator[str]:
    """Yield a namespace whose pods and promises are gone when the test is over."""
    with team_of(gpu_node) as name:
        yield name


@pytest.fixture
def tenants(gpu_node: GpuNode, team: str) -> dict[str, str]:
    """Return a running pod of each mode and what it sees."""
    gpu_node.site.create(team, soft(name="soft"))
    gpu_node.site.create(team, hard(name="hard"))
    return {
        name: inside(gpu_node.node, running(gpu_node.site, team, name)).env[VISIBLE]
        for name in ("soft", "hard")
    }


def undisturbed(found: GpuNode, team: str, names: Sequence[str]) -> None:
    """Check that pods run in their first life and that their promises are held."""
    pods = pods_of(found.site, team)
    for name in names:
        (status,) = pods[name]["status"]["containerStatuses"]
        assert (phase(pods[name]), status["restartCount"]) == ("Running", 0)
        assert pods[name]["metadata"]["uid"] in found.ledger().held


def serves(found: GpuNode, team: str) -> None:
    """Check that another pod of each mode starts."""
    found.site.create(team, soft(name="soft-after"))
    found.site.create(team, hard(name="hard-after"))
    for name in ("soft-after", "hard-after"):
        pod = running(found.site, team, name)
        assert inside(found.node, pod).env[VISIBLE]


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


def test_an_agent_killed_while_it_cuts(gpu_node: GpuNode, team: str) -> None:
    """The half of an instance that a dead agent left is finished or removed, never leaked."""
    gpu_node.machine.fail(COMPUTE, OTHER, nth=0)
    try:
        gpu_node.site.create(team, hard(looking(limits=HARD | {MEMORY: 9000})))
        wait_for(lambda: gpu_node.machine.calls(COMPUTE), within=RUN_WITHIN)
        gpu_node.agent.kill()
    finally:
        gpu_node.machine.mend()
    gpu_node.start()

    found = running(gpu_node.site, team)

    (grant,) = grants_of(gpu_node, found)
    assert grant.placed is not None
    mine = inside(gpu_node.node, found).env[VISIBLE]
    assert gpu_node.instances()[mine] == (grant.gpu, grant.placed.start)
    wait_for(lambda: len(gpu_node.halves()) == len(gpu_node.instances()), within=RUN_WITHIN)


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
        seen = inside(gpu_node.node, found).env[VISIBLE]
        (grant,) = grants_of(gpu_node, found)
        place = gpu_node.instances()[seen][0] if name == "hard" else seen
        assert place == grant.gpu
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

    def lives() -> set[str]:
        tasks = gpu_node.node.runtime.tasks()
        labels = (gpu_node.node.runtime.labels(task) for task in tasks)
        return {
            found["io.kubernetes.pod.uid"]
            for found in labels
            if found.get("io.kubernetes.container.name")
        }

    def both() -> bool:
        alive = lives()
        new = pod_of(gpu_node.site, team, "new")
        assert not {old, new["metadata"]["uid"]} <= alive
        return phase(new) == "Running"

    assert old in lives()
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
    seen = {}
    for pod in pods:
        (grant,) = grants_of(gpu_node, pod)
        visible = inside(gpu_node.node, pod).env[VISIBLE]
        seen[pod["metadata"]["name"]] = visible
        if grant.placed is None:
            assert visible == grant.gpu
        else:
            assert gpu_node.instances()[visible] == (grant.gpu, grant.placed.start)
    instances = [visible for visible in seen.values() if visible.startswith("MIG-")]
    assert len(instances) == len(set(instances)) == 13
    with capsys.disabled():
        sys.stdout.write(Times.of(gpu_node, pods).table())
