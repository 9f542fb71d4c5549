"""An agent killed at each step of its journal as a real kubelet starts a pod: nothing is lost."""

from collections.abc import Callable, Iterator, Mapping

import pytest

from agent.mig.journal import JournalAct, parse_journal
from tests.builders.pods import MEMORY, NUMBER
from tests.cluster.api import wait_for
from tests.cluster.node_agent import GpuNode
from tests.cluster.node_pods import (
    RUN_WITHIN,
    VISIBLE,
    ask_again,
    delete,
    device_of,
    empty,
    grants_of,
    hard,
    inside,
    looking,
    pod_of,
    running,
    team_of,
    undisturbed,
)
from tests.fakes.nvml.machine import DIES_AFTER, DIES_BEFORE
from tests.integration.agent.mig.test_gpu_controller__kills import CALLS

pytestmark = pytest.mark.node

OTHER = 999  # NVML_ERROR_UNKNOWN
FIRST = "nvmlComputeInstanceDestroy"  # of the calls by which an idle instance is recut
JOURNAL = "var/lib/vgpu-admission/mig.journal"
WHOLE = {NUMBER: 1, MEMORY: 30000}  # a GPU of its own
SLICES = 7  # of a whole GPU
HALVES = {NUMBER: 2, MEMORY: 15000}  # of which a GPU that has a neighbour holds one


@pytest.fixture(scope="module")
def neighbour(gpu_node: GpuNode) -> Iterator[str]:
    """Yield the namespace of a pod that runs through all tests here, so that one GPU is not free.

    On the other one there is an idle instance, for whose slots the next promise has another use.
    """
    with team_of(gpu_node) as team:
        empty(gpu_node)
        gpu_node.site.create(team, hard(name="beside"))
        device_of(gpu_node, running(gpu_node.site, team, "beside"))
        gpu_node.site.create(team, hard(looking(limits=WHOLE), name="first"))
        running(gpu_node.site, team, "first")
        delete(gpu_node.site, team, "first")
        wait_for(lambda: len(gpu_node.promised()) == 1, within=RUN_WITHIN)
        yield team


def other_shape(found: GpuNode) -> Mapping[str, object]:
    """Return what to ask for so that an instance must be destroyed and another be made."""
    machine = found.machine.read()
    whole = any(
        gpu.profiles[instance.profile].slices == SLICES
        for gpu in machine.gpus[: machine.gpu_count]
        for instance in gpu.instances
        if instance.used
    )
    return HALVES if whole else WHOLE


def marked(found: GpuNode) -> set[str | None]:
    """Return the instances that the journal says are whole and ours; no other line may stand."""
    history = parse_journal(
        (found.node.host.folder / JOURNAL).read_bytes(), found.node.host.boot_id
    )
    assert not history.damage
    return {None if mark.pending else mark.uuid for mark in history.marks.values()}


def lines(found: GpuNode, act: JournalAct) -> int:
    """Return how many lines of one kind are in the journal."""
    return (found.node.host.folder / JOURNAL).read_text().count(f'"act":"{act}"')


def allocated(found: GpuNode, team: str) -> bool:
    """Say whether kubelet has all that it needs to start containers, devices first of all."""
    conditions = pod_of(found.site, team)["status"].get("conditions", ())
    return ("PodReadyToStartContainers", "True") in {(c["type"], c["status"]) for c in conditions}


def killed_in(call: str, death: int) -> Callable[[GpuNode], None]:
    """Return what waits until the agent has died in a call that changes the hardware."""

    def wait(found: GpuNode) -> None:
        found.machine.fail(call, death)
        if call != FIRST:
            found.machine.mend(FIRST)
        wait_for(lambda: not found.agent.running, within=RUN_WITHIN)

    return wait


def killed_after(act: JournalAct) -> Callable[[GpuNode], None]:
    """Return what kills the agent once it has concluded something in its journal."""

    def wait(found: GpuNode) -> None:
        before = lines(found, act)
        found.machine.mend(FIRST)
        wait_for(lambda: lines(found, act) > before, within=RUN_WITHIN, every=0.001)
        found.agent.kill()

    return wait


CUTS = [
    *(pytest.param(killed_in(call, DIES_BEFORE), id=f"before-{call}") for call in CALLS),
    *(pytest.param(killed_in(call, DIES_AFTER), id=f"after-{call}") for call in CALLS),
    *(
        pytest.param(killed_after(act), id=f"after-{act}")
        for act in (JournalAct.GONE, JournalAct.COMMIT)
    ),
]


@pytest.mark.parametrize("killed", CUTS)
def test_an_agent_killed_at_a_step(
    gpu_node: GpuNode, team: str, *, neighbour: str, killed: Callable[[GpuNode], None]
) -> None:
    """The pod runs with what it was promised, its neighbour runs on, and no instance is lost.

    The agent dies when kubelet has its devices: it ends a pod by itself whose Allocate breaks off.
    """
    before = device_of(gpu_node, running(gpu_node.site, neighbour, "beside"))
    gpu_node.machine.fail(FIRST, OTHER, nth=0)
    try:
        gpu_node.site.create(team, hard(looking(limits=other_shape(gpu_node))))
        wait_for(lambda: allocated(gpu_node, team), within=RUN_WITHIN)
        killed(gpu_node)
    finally:
        gpu_node.machine.mend()
    gpu_node.start()
    ask_again(gpu_node.site, team)

    found = running(gpu_node.site, team)

    seen = inside(gpu_node.node, found).env[VISIBLE].split(",")
    places = [(g.gpu, g.placed.start) for g in grants_of(gpu_node, found) if g.placed is not None]
    assert sorted(gpu_node.instances()[uuid] for uuid in seen) == sorted(places)
    assert before not in seen
    assert device_of(gpu_node, running(gpu_node.site, neighbour, "beside")) == before
    undisturbed(gpu_node, neighbour, ("beside",))
    wait_for(lambda: marked(gpu_node) == set(gpu_node.instances()), within=RUN_WITHIN)
    assert len(gpu_node.halves()) == len(gpu_node.instances())
