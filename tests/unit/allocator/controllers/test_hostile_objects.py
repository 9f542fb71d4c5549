"""Each duty of the leader serves all others beside an object that was written to harm it."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import pytest

from allocator.catalog.keys import ASSIGNMENT_KEY, REGISTER_KEY
from allocator.catalog.vocabularies import VOCABULARIES
from allocator.cluster.objects import NodeObject, decode_node
from allocator.cluster.pods import Pods
from allocator.config.settings import Settings
from allocator.controllers.drift import LASTING_SECONDS, DriftController
from allocator.controllers.gang import GangController
from allocator.controllers.gpunode import GpuNodeController
from allocator.controllers.reclaim import ReclaimController
from allocator.controllers.requeue import RequeueController
from allocator.controllers.volcano_register import RegisterInputs, VolcanoRegisterController
from allocator.ledger.ledger import Ledger
from allocator.ledger.lifecycle import NodeIdentity
from allocator.ledger.reclaim import UNBOUND_AGE
from allocator.request.pod_summary import PodSummary, pod_summary
from allocator.volcano.register import HANDSHAKE_ANNOTATION, REGISTER_ANNOTATION
from kube.client import CallOptions
from kube.clock import Clock
from kube.errors import NotFoundError
from kube.events import Event
from tests.builders.gpunodes import NOON, Json, entry, gpu_node, ledger
from tests.builders.model import nodes_of, soft_grant
from tests.builders.pods import NUMBER
from tests.builders.summaries import replace_pods
from tests.fakes.api_client import FakeApiClient

HARM = [
    pytest.param("[" * 2000, id="never-ends"),
    pytest.param("[" * 900 + "]" * 900, id="deep"),
    pytest.param('[{"devices":' * 300 + "[]" + "}]" * 300, id="deep-devices"),
    pytest.param("../../../x?y#z", id="a-path"),
    pytest.param('"\\ud800"', id="half-a-character"),
    pytest.param("\x00\n" + "9" * 5000, id="no-text"),
]
GROUP = "scheduling.k8s.io/group-name"
FIELDS = '{"metadata":{"uid":"x","managedFields":%s},"spec":{}}' % ("[" * 2000 + "]" * 2000)


def pod(name: str, annotations: Mapping[str, str], *, node: str = "n0") -> PodSummary:
    """Read a pod that asks, as the watch of all pods does."""
    metadata = {"uid": name, "name": name, "namespace": "team-a", "annotations": annotations}
    limits = {"resources": {"limits": {NUMBER: "1"}}}
    written = {"metadata": metadata, "spec": {"nodeName": node, "containers": [limits]}}
    return pod_summary(json.dumps(written).encode())


def known(*summaries: PodSummary) -> Pods:
    pods = Pods()
    replace_pods(pods, {pod.uid: pod for pod in summaries})
    return pods


@dataclass(slots=True)
class Api(FakeApiClient):
    """An API server in which some objects are odd, and what was written to it."""

    odd: str = "odd"
    objects: dict[str, object] = field(default_factory=dict)
    nodes: dict[str, object] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        name = path.rpartition("/")[2]
        if name == self.odd:
            return FIELDS.encode()
        objects = self.nodes if "/nodes/" in path else self.objects
        if name not in objects:
            raise NotFoundError(404, "NotFound", path)
        return json.dumps(objects[name]).encode()

    async def json_patch(
        self, path: str, ops: Sequence[Mapping[str, object]], **_: Unpack[CallOptions]
    ) -> bytes:
        return await self.merge_patch(path, {"ops": ops})

    async def merge_patch(
        self, path: str, _: Mapping[str, object], **__: Unpack[CallOptions]
    ) -> bytes:
        name = path.rpartition("/")[2]
        if name == self.odd:
            raise RecursionError("nobody foresaw this")
        self.writes.append(name)
        return b"{}"

    async def create(self, path: str, _: bytes, **__: Unpack[CallOptions]) -> bytes:
        return await self.merge_patch(path, {})


def clock(now: Callable[[], float] = lambda: 5.0) -> Clock:
    return Clock(monotonic=now, wall=lambda: NOON + UNBOUND_AGE, random=lambda: 0)


def share(node: str) -> Any:  # noqa: ANN401 -- a grant
    return soft_grant(100, gpu=f"GPU-{node}-0")


def stored(name: str) -> Json:
    return gpu_node(nodes_of(1, name=name), (entry("gone", share(name)),))


def ledgers(*names: str) -> dict[str, Ledger]:
    return {name: ledger(nodes_of(1, name=name), (entry("gone", share(name)),)) for name in names}


ORDERS = pytest.mark.parametrize("names", [("odd", "n0"), ("n0", "odd")], ids="-".join)


@ORDERS
def test_promises_are_taken_back(names: tuple[str, str]) -> None:
    """On every node but the one whose GPUNode cannot be read."""
    machine = {"metadata": {"name": "n0"}, "status": {"nodeInfo": {"bootID": "boot-1"}}}
    api = Api(objects={"n0": stored("n0")}, nodes={"n0": machine})
    controller = ReclaimController(
        api, pods=known(), ledgers=lambda: ledgers(*names), agents_serve=lambda: True, clock=clock()
    )

    asyncio.run(controller.sweep())

    assert api.writes == ["n0"]


@dataclass(slots=True)
class Nodes:
    """Caches that show two Nodes without GPUNodes."""

    names: tuple[str, str]

    def node_identities(self) -> Mapping[str, NodeIdentity]:
        return {name: NodeIdentity(name=name, uid="u", boot="b", agent=True) for name in self.names}

    def node_identity(self, node: NodeObject) -> NodeIdentity:
        return replace(node.identity(), agent=True)

    def ledgers(self) -> Mapping[str, Ledger]:
        return {}


@ORDERS
def test_gpu_nodes_are_kept(names: tuple[str, str]) -> None:
    """Of every Node but the one that cannot be read."""
    api = Api(nodes={"n0": {"metadata": {"name": "n0"}}})

    asyncio.run(GpuNodeController(api, Nodes(names), upstream=lambda: False, clock=clock()).sweep())

    assert api.writes == ["gpunodes"]


@ORDERS
@pytest.mark.parametrize("harm", HARM)
def test_registers_are_written(names: tuple[str, str], harm: str) -> None:
    """Whatever stands in another Node's annotations."""
    annotations = {REGISTER_ANNOTATION: harm, HANDSHAKE_ANNOTATION: harm, REGISTER_KEY: harm}
    written = {"metadata": {"name": "odd", "annotations": annotations}}
    odd = decode_node(json.dumps(written).encode())
    nodes = {"odd": odd, "n0": NodeObject("n0", "")}
    told = pod("gone", {ASSIGNMENT_KEY: harm})
    world = RegisterInputs(
        nodes={name: nodes[name] for name in names},
        ledgers=ledgers(*names),
        pods={"gone": told},
        factor=1,
    )
    api = Api()

    asyncio.run(VolcanoRegisterController(api, lambda: world, clock=clock()).sweep())
    asyncio.run(
        VolcanoRegisterController(
            api, lambda: replace(world, keeps_registers=False), clock=clock()
        ).sweep()
    )

    assert api.writes == ["n0"]


@pytest.mark.parametrize("harm", HARM)
def test_gangs_are_looked_after(harm: str) -> None:
    """Whatever another pod says that its group is, and whatever stands in a group."""
    group: Json = {"metadata": {"uid": "g"}, "spec": {"minMember": 9}}
    api, events, now = Api(objects={"good": group}), list[Event](), [0.0]
    pods = known(
        *(pod(f"{g}-0", {GROUP: g}) for g in (harm, "odd", "good")),
        *(pod(f"{g}-1", {GROUP: g}, node="") for g in (harm, "odd", "good")),
    )
    gangs = GangController(
        api,
        pods,
        vocabularies=lambda: VOCABULARIES,
        record=events.append,
        clock=clock(lambda: now[0]),
    )
    settings = Settings()

    async def sweeps() -> None:
        await gangs.sweep(settings)
        now[0] += settings.gang_timeout_seconds
        await gangs.sweep(settings)
        for uid in (f"{harm}-1", "odd-1", "good-1"):
            await gangs.report_refusal(uid, "no", "Conflict")

    asyncio.run(sweeps())

    assert [(e.regarding.name, e.reason) for e in events] == [
        ("good", "VgpuGangStuck"),
        ("good", "VgpuGangShort"),
    ]


def test_refusals_are_told_after_one_that_could_not_be() -> None:
    """Every replica tells them, so every replica would end by it."""
    events: list[Event] = []
    api = Api(objects={"good": {"metadata": {"uid": "g"}, "spec": {"minMember": 9}}})
    pods = known(pod("a", {GROUP: "good"}, node=""), pod("b", {GROUP: "good"}, node=""))
    failing = iter((True, False))

    def tell(event: Event) -> None:
        if next(failing):
            raise RuntimeError("nobody foresaw this")
        events.append(event)

    async def told() -> None:
        gangs = GangController(
            api,
            pods,
            vocabularies=lambda: VOCABULARIES,
            record=tell,
            clock=clock(),
        )
        gangs.note_refusal("a", "no", "Conflict")
        gangs.note_refusal("b", "no", "Conflict")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await gangs.run()

    asyncio.run(told())

    assert [event.reason for event in events] == ["VgpuGangShort"]


@pytest.mark.parametrize("harm", HARM)
def test_drift_is_told(harm: str) -> None:
    """Of the pod that says nonsense, and of the others too."""
    now, events = [0.0], list[Event]()
    pods = known(pod("gone", {ASSIGNMENT_KEY: harm}, node="n0"))
    report = DriftController(
        lambda: ledgers("n0", "n1"),
        pods,
        record=events.append,
        count=lambda *_: None,
        clock=clock(lambda: now[0]),
    )

    async def sweeps() -> None:
        await report.sweep()
        now[0] += LASTING_SECONDS
        await report.sweep()

    asyncio.run(sweeps())

    assert [event.note for event in events] == [
        'annotations of pod "team-a/gone" differ from its entry'
    ]


@ORDERS
def test_schedulers_are_woken(names: tuple[str, str]) -> None:
    """About every node but the one whose annotation cannot be written."""
    api, now = Api(), [0.0]
    freed = [ledgers(*names), {n: ledger(nodes_of(1, name=n)) for n in names}]
    waker = RequeueController(
        api,
        known(pod("w", {}, node="")),
        ledgers=lambda: freed[0],
        vocabularies=lambda: VOCABULARIES,
        clock=clock(lambda: now[0]),
    )

    async def sweeps() -> None:
        await waker.sweep(1)
        api.writes.clear()
        del freed[0]
        await waker.sweep(1)
        await waker.sweep(1)

    asyncio.run(sweeps())

    assert api.writes == ["n0"]
