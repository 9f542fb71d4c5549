"""A pod bound past the hook is promised what it uses, or what it may yet use, or nothing."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from allocator.core.ledger import read
from allocator.core.podfacts import seen
from allocator.core.settings import NodeAgent, Settings
from allocator.model.ledger import Entry
from allocator.shell.reconciler import Pods
from kube.clock import Clock
from kube.events import Event
from tests.bindings import stored
from tests.builders import nodes_of, snapshot, soft_grant
from tests.fakes.ledger_server import LedgerServer
from tests.gpunodes import NOON, Json, entry, gpu_node
from tests.pods import MEMORY, NUMBER, admitted, container, pod, received
from webhook.core.mutate import Surroundings
from webhook.shell.binding import Binder
from webhook.shell.late import Caches, LateCommits

NODE = nodes_of(2)
ASKING = pod(container(limits={NUMBER: 1, MEMORY: 3000}))
USED = entry("uid-p", soft_grant(3000, gpu="GPU-n0-1"))
IDS = "volcano.sh/vgpu-ids-new"
ASSIGNMENT = "vgpu-admission.io/assignment"


@dataclass(slots=True)
class Scene:
    """One replica that leads, and what it said."""

    server: LedgerServer
    agent: NodeAgent = NodeAgent.OURS
    events: list[Event] = field(default_factory=list)
    records: list[Mapping[str, Any]] = field(default_factory=list)
    now: float = 0.0

    def sweep(self, times: int = 2) -> "Scene":
        """Sweep with caches that show all there is."""
        around = Surroundings(settings=Settings(node_agent=self.agent), snapshot=snapshot(NODE))
        clock = Clock(monotonic=lambda: self.now, wall=lambda: NOON, random=lambda: 0)
        binder = Binder(
            calls=self.server,
            around=lambda _: around,
            reserved=lambda _: frozenset(),
            clock=clock,
        )
        pods = Pods()
        late = LateCommits(
            calls=self.server,
            binder=binder,
            caches=Caches(
                pods=pods,
                ledgers=lambda: {"n0": read(self.server.gpu_node)},
                around=lambda _: around,
            ),
            tell=self.events.append,
            remember=self.records.append,
            clock=clock,
        )

        async def sweeps() -> None:
            for _ in range(times):
                facts = [seen(orjson.dumps(one)) for one in self.server.pods.values()]
                pods.know({one.uid: one for one in facts})
                await late.sweep()

        asyncio.run(sweeps())
        return self

    @property
    def promised(self) -> tuple[Entry, ...]:
        return read(self.server.gpu_node).entries

    @property
    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.server.pods["p"]["metadata"].get("annotations", {})
        return found

    @property
    def how(self) -> list[str]:
        return [record["late"] for record in self.records]


def bound(annotations: Mapping[str, str], agent: NodeAgent = NodeAgent.OURS) -> Json:
    """Make a pod that admission has seen and that is on the node, with further annotations."""
    around = Surroundings(settings=Settings(node_agent=agent), snapshot=snapshot(NODE))
    found = stored(admitted(received(ASKING), around), name="p", uid="uid-p")
    found["spec"]["nodeName"] = "n0"
    found["metadata"]["annotations"] |= annotations
    return found


def scene(found: Json, *entries: Entry, agent: NodeAgent = NodeAgent.OURS, **status: Any) -> Scene:  # noqa: ANN401 -- fields of a status
    return Scene(LedgerServer(gpu_node=gpu_node(NODE, entries, **status), pods={"p": found}), agent)


def wire(one: Entry) -> Json:
    """Write an entry as it stands in a GPUNode."""
    found: Json = gpu_node(NODE, (one,))["spec"]["entries"][0]
    return found


def as_told(one: Entry) -> str:
    return orjson.dumps(wire(one)["containers"]).decode()


def test_a_pod_that_uses_nothing_yet_is_given_something() -> None:
    """It is promised by the same choice as at the door, and told."""
    found = scene(bound({})).sweep()

    (one,) = found.promised
    assert (one.uid, found.how) == ("uid-p", ["chosen"])
    assert orjson.loads(found.annotations[ASSIGNMENT]) == orjson.loads(as_told(one))
    assert found.annotations["volcano.sh/bind-phase"] == "success"
    assert [event.reason for event in found.events] == ["VgpuAssigned"]


def test_a_second_look_changes_nothing() -> None:
    """What is promised and told is left alone."""
    found = scene(bound({})).sweep(times=5)

    assert (found.server.writes, len(found.records)) == (1, 1)


def test_one_look_is_not_enough() -> None:
    """The entry of a pod that was just bound may be on its way to the cache."""
    assert scene(bound({})).sweep(times=1).server.writes == 0


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"metadata": {"deletionTimestamp": "now"}}, id="deleting"),
        pytest.param({"status": {"phase": "Failed"}}, id="over"),
        pytest.param({"spec": {"nodeName": ""}}, id="unbound"),
        pytest.param({"spec": {"nodeName": "n7"}}, id="no-ledger-there"),
        pytest.param({"spec": {"containers": [container()]}}, id="asks-for-nothing"),
    ],
)
def test_others_are_left_alone(change: Json) -> None:
    """Only a living pod that asks, on a node with a ledger, is promised anything."""
    found = bound({})
    for part, fields in change.items():
        found[part] = {**found.get(part, {}), **fields}

    assert scene(found).sweep().promised == ()


def test_a_node_that_is_not_accounted_for_is_waited_for() -> None:
    """Nobody knows yet what runs there, so nobody is told that a pod does not start."""
    found = scene(bound({}), inventory="").sweep()

    assert (found.promised, found.events) == ((), [])


def test_what_the_agent_found_in_use_is_promised_again() -> None:
    """Where the pod was told the same: neither witness alone is believed."""
    told = {ASSIGNMENT: as_told(USED)}

    found = scene(bound(told), unpromised=[wire(USED)]).sweep()

    assert [one.containers for one in found.promised] == [USED.containers]
    assert found.how == ["confirmed"]


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(
            {ASSIGNMENT: as_told(entry("uid-p", soft_grant(9, gpu="GPU-n0-0")))}, id="other"
        ),
        pytest.param({ASSIGNMENT: "{"}, id="unreadable"),
        pytest.param({}, id="nothing"),
    ],
)
def test_witnesses_that_differ_are_reported(told: Mapping[str, str]) -> None:
    """Nothing is guessed: an Event says so, and the slots stay taken as the agent found them."""
    found = scene(bound(told), unpromised=[wire(USED)]).sweep()

    assert found.promised == ()
    assert [event.reason for event in found.events] == ["VgpuUnpromised"]
    assert "use devices that its annotations do not tell of" in found.events[0].note


def test_what_it_uses_may_have_been_given_away() -> None:
    """Then it is not given something else, on which it does not run."""
    whole = soft_grant(NODE.gpus[1].memory - 1000, gpu="GPU-n0-1")
    told = {ASSIGNMENT: as_told(USED)}

    found = scene(bound(told), entry("b", whole), unpromised=[wire(USED)]).sweep()

    assert [one.uid for one in found.promised] == ["b"]
    assert "what it uses is promised to others" in found.events[0].note


def test_a_pod_that_was_not_told_is_told_what_stands() -> None:
    """Whoever committed died before the pod heard of it."""
    found = scene(bound({}), USED).sweep()

    assert [one.containers for one in found.promised] == [USED.containers]
    assert (found.how, found.annotations[ASSIGNMENT]) == (["kept"], as_told(USED))


def test_a_full_node_is_told_and_asked_again_later() -> None:
    """One sentence, less and less often, for as long as there is no room."""
    full = [
        entry(uuid, soft_grant(NODE.gpus[0].memory, gpu=uuid)) for uuid in ("GPU-n0-0", "GPU-n0-1")
    ]

    found = scene(bound({}), *full).sweep(times=4)

    assert {event.reason for event in found.events} == {"VgpuUnpromised"}
    assert len(found.events) == 1
    assert 'does not start: node "n0": container "main"' in found.events[0].note


def test_another_plugins_word_is_taken() -> None:
    """Where it serves the node, its scheduler's list says what is in use; its keys stay."""
    six = {
        "volcano.sh/vgpu-node": "n0",
        IDS: "GPU-n0-1,NVIDIA,3000,0:",
        "volcano.sh/bind-phase": "success",
    }
    upstream = NodeAgent.UPSTREAM

    found = scene(bound(six, upstream), agent=upstream).sweep()

    assert [g.gpu for g in found.promised[0].containers[0].grants] == ["GPU-n0-1"]
    assert found.how == ["told"]
    assert found.annotations["volcano.sh/bind-phase"] == "success"
    assert found.annotations["vgpu-admission.io/served-by"] == "upstream"


def test_another_plugins_word_for_what_is_taken_is_reported() -> None:
    """It is not promised another GPU than the one that its scheduler gave it."""
    six = {"volcano.sh/vgpu-node": "n0", IDS: "GPU-n0-1,NVIDIA,3000,0:"}
    full = entry("b", soft_grant(NODE.gpus[1].memory, gpu="GPU-n0-1"))
    upstream = NodeAgent.UPSTREAM

    found = scene(bound(six, upstream), full, agent=upstream).sweep()

    assert [one.uid for one in found.promised] == ["b"]
    assert [event.reason for event in found.events] == ["VgpuUnpromised"]


def test_a_list_for_another_node_is_no_word() -> None:
    """It is left over from an attempt that failed."""
    six = {"volcano.sh/vgpu-node": "n7", IDS: "GPU-n0-1,NVIDIA,3000,0:"}
    upstream = NodeAgent.UPSTREAM

    assert scene(bound(six, upstream), agent=upstream).sweep().how == ["chosen"]


def test_an_assignment_of_ours_is_kept_to_the_letter() -> None:
    """On a node of another plugin it is all that is left of a lost ledger."""
    upstream = NodeAgent.UPSTREAM
    told = {ASSIGNMENT: as_told(USED)}

    found = scene(bound(told, upstream), agent=upstream).sweep()

    assert [one.containers for one in found.promised] == [USED.containers]
