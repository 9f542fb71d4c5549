"""One replica that commits late, over one node and one pod, and what came of it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from allocator.cluster.pods import Pods
from allocator.config.settings import NodeAgent, Settings
from allocator.ledger.ledger import parse_ledger
from allocator.model.allocation import Entry
from allocator.model.gpu import Node
from allocator.request.pod_summary import pod_summary
from allocator.volcano.device_list import LIST_ANNOTATION
from kube.clock import Clock
from kube.events import Event
from tests.builders.bindings import stored
from tests.builders.gpunodes import NOON, Json, entry, gpu_node
from tests.builders.model import nodes_of, snapshot, soft_grant
from tests.builders.pods import MEMORY, NUMBER, admitted, container, pod, received
from tests.builders.summaries import replace_pods
from tests.fakes.ledger_server import LedgerServer
from tests.harness.records import KeptRecords
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_server import BindingHandler
from webhook.binding.late_commit_controller import Caches, LateCommitController

NODE = nodes_of(2)
ASKING = pod(container(limits={NUMBER: 1, MEMORY: 3000}))
USED = entry("uid-p", soft_grant(3000, gpu="GPU-n0-1"))
SIX = {"volcano.sh/vgpu-node": "n0", LIST_ANNOTATION: "GPU-n0-1,NVIDIA,3000,0:"}
ASSIGNMENT = "vgpu-admission.io/assignment"


@dataclass(slots=True)
class Scene:
    """One replica that leads, and what it said."""

    server: LedgerServer
    agent: NodeAgent = NodeAgent.OURS
    node: Node = NODE
    events: list[Event] = field(default_factory=list)
    records: KeptRecords = field(default_factory=KeptRecords)
    now: float = 0.0

    def sweep(self, times: int = 2) -> "Scene":
        """Sweep with caches that show all there is."""
        around = AdmissionContext(
            settings=Settings(node_agent=self.agent), snapshot=snapshot(self.node)
        )
        clock = Clock(monotonic=lambda: self.now, wall=lambda: NOON, random=lambda: 0)
        binder = BindingHandler(
            calls=self.server,
            context_of=lambda _: around,
            nodes_with_entry=lambda _: frozenset(),
            clock=clock,
        )
        pods = Pods()
        late = LateCommitController(
            calls=self.server,
            binder=binder,
            caches=Caches(
                pods=pods,
                ledgers=lambda: {"n0": parse_ledger(self.server.gpu_node)},
                context_of=lambda _: around,
            ),
            record_event=self.events.append,
            remember=self.records.append,
            clock=clock,
        )

        async def sweeps() -> None:
            for _ in range(times):
                facts = [pod_summary(orjson.dumps(one)) for one in self.server.pods.values()]
                replace_pods(pods, {one.uid: one for one in facts})
                await late.sweep()

        asyncio.run(sweeps())
        return self

    @property
    def promised(self) -> tuple[Entry, ...]:
        return parse_ledger(self.server.gpu_node).entries

    @property
    def annotations(self) -> dict[str, str]:
        annotations_: dict[str, str] = self.server.pods["p"]["metadata"].get("annotations", {})
        return annotations_

    @property
    def how(self) -> list[str]:
        return [record["basis"] for record in self.records]


def bound(
    annotations: Mapping[str, str],
    agent: NodeAgent = NodeAgent.OURS,
    asking: Json = ASKING,
    *,
    node: Node = NODE,
) -> Json:
    """Make a pod that admission has seen and that is on the node, with further annotations."""
    around = AdmissionContext(settings=Settings(node_agent=agent), snapshot=snapshot(node))
    document = stored(admitted(received(asking), around), name="p", uid="uid-p")
    document["spec"]["nodeName"] = "n0"
    document["metadata"]["annotations"] |= annotations
    return document


def scene(
    found: Json,
    *entries: Entry,
    agent: NodeAgent = NodeAgent.OURS,
    node: Node = NODE,
    **status: Any,  # noqa: ANN401 -- fields of a status
) -> Scene:
    server = LedgerServer(gpu_node=gpu_node(node, entries, **status), pods={"p": found})
    return Scene(server, agent, node)


def wire(one: Entry) -> Json:
    """Write an entry as it stands in a GPUNode."""
    element: Json = gpu_node(NODE, (one,))["spec"]["entries"][0]
    return element


def as_told(one: Entry) -> str:
    return orjson.dumps(wire(one)["containers"]).decode()
