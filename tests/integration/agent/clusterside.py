"""A node as a small API server knows it, and the parts of an agent that speak to that server."""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from agent.driver.driver import Device
from agent.node.capacity_controller import CapacityController
from agent.node.node_informer import NodeInformer
from agent.node.status import Hardware
from agent.node.status_controller import StatusController, StatusFacts
from allocator.ledger.schema import spec_of
from allocator.model.allocation import Entry, Grant
from kube.client import Client
from kube.config import Access
from tests.builders.gpunodes import entry
from tests.builders.model import device, soft_grant
from tests.fakes.api_objects import parsed
from tests.fakes.api_rules import Json
from tests.fakes.api_server import ApiServer, Request
from tests.fakes.kube_clock import FakeClock
from tests.integration.waiting import until

NODE = "/api/v1/nodes"
GPU_NODES = "/apis/vgpu-admission.io/v1alpha1/gpunodes"
PODS = "/api/v1/namespaces/team-a/pods"
SETTINGS = "/api/v1/namespaces/system/configmaps"
STATUS = f"{GPU_NODES}/n/status"
BOOT = "boot-1"
SLOT, MEMORY = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"


def gpu(index: int = 0) -> Device:
    return device(index=index)


class Scene:
    """One node called ``n`` with two GPUs, and its agent's writers over it."""

    def __init__(self, server: ApiServer, client: Client) -> None:
        self.server = server
        self.client = client
        self.time = FakeClock()
        self.hardware: Hardware | None = Hardware(devices=(gpu(0), gpu(1)))
        self.alive: set[str] = set()
        self.serving = True
        self.informer = NodeInformer(client, "n", "system")
        self.status_controller = self.new_status_controller()
        self.capacity_controller = CapacityController(
            client, self.informer, lambda: self.hardware, version="1"
        )

    def new_status_controller(self) -> StatusController:
        """Return the writer of an agent that has just started."""
        facts = StatusFacts(BOOT, lambda: self.hardware, self._alive, serving=lambda: self.serving)
        return StatusController(self.client, self.informer, facts, clock=self.time.clock())

    async def _alive(self) -> set[str]:
        return self.alive

    @property
    def stored(self) -> Json:
        return self.server.objects.read(parsed(f"{GPU_NODES}/n"))

    @property
    def status(self) -> Json:
        return dict(self.stored.get("status") or {})

    @property
    def node(self) -> Json:
        return self.server.objects.read(parsed(f"{NODE}/n"))

    def change(self, path: str, **parts: Any) -> None:  # noqa: ANN401 -- any JSON
        """Replace top-level parts of an object, as somebody else would."""
        stored = copy.deepcopy(self.server.objects.read(parsed(path)))
        self.server.objects.replace(parsed(path), stored | parts)

    def promise(self, *entries: Entry) -> None:
        self.change(f"{GPU_NODES}/n", spec=spec_of(entries))

    def bind(self, name: str, **status: object) -> str:
        """Add a pod that is bound here, or change its status; return its uid."""
        limits = {SLOT: "1", MEMORY: "1000"}
        container = {"name": "main", "resources": {"limits": limits}}
        body = {"spec": {"nodeName": "n", "containers": [container]}, "status": status}
        place = parsed(f"{PODS}/{name}")
        if place in self.server.objects.kept:
            self.change(f"{PODS}/{name}", **body)
        else:
            self.server.objects.create(parsed(PODS), {"metadata": {"name": name}, **body})
        return str(self.server.objects.read(place)["metadata"]["uid"])

    def remove(self, name: str) -> None:
        self.server.objects.delete(parsed(f"{PODS}/{name}"))

    async def caught_up(self) -> None:
        """Return once the watches have told of all that there is."""
        await until(lambda: self.informer.synced)
        known = self.server.objects

        def current() -> bool:
            here = self.informer.gpu_node
            version = "" if here is None else here.ledger.resource_version
            pods = {
                item["metadata"]["uid"]: item.get("status", {}).get("phase", "")
                for place, item in known.kept.items()
                if place.resource == "pods"
            }
            seen = {uid: "over" if t.ended else "" for uid, t in self.informer.pods.items()}
            wanted = {u: "over" if p in {"Failed", "Succeeded"} else "" for u, p in pods.items()}
            return version == self.stored["metadata"]["resourceVersion"] and seen == wanted

        await until(current)

    async def told(self) -> None:
        """Let the watches tell of all that there is, and the agent write what it makes of it."""
        await self.caught_up()
        await self.status_controller.flush()

    async def held(self, name: str) -> str:
        """Bind a pod and let its container start on a share; return the pod's uid."""
        uid = self.bind(name)
        self.promise(promised(uid))
        await self.caught_up()
        await self.status_controller.flush({uid})
        return uid

    def writes(self, path: str) -> list[Request]:
        return [r for r in self.server.requests if r.method == "PATCH" and r.path == path]


@contextlib.asynccontextmanager
async def writing(scene: Scene) -> AsyncIterator[None]:
    task = asyncio.create_task(scene.status_controller.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def play(act: Callable[[Scene], Awaitable[None]], **node: Any) -> None:  # noqa: ANN401 -- any JSON
    """Run *act* on a node of which the API server knows as much as of any new one."""

    async def run() -> None:
        async with ApiServer() as server, Client(Access(url=server.url)) as client:
            body = {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "2"}}}
            server.objects.create(parsed(NODE), body | node)
            server.objects.create(
                parsed(GPU_NODES), {"metadata": {"name": "n"}, "spec": {"entries": []}}
            )
            scene = Scene(server, client)
            following = asyncio.create_task(scene.informer.run())
            try:
                await scene.caught_up()
                await act(scene)
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    asyncio.run(run())


def promised(uid: str, grant: Grant | None = None) -> Entry:
    return entry(uid, grant or soft_grant(1000, gpu="GPU-0"))
