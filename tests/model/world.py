"""A cluster in memory whose every call waits until a seeded scheduler lets it go on.

Time stands still unless it is told to pass, so a run depends on its seed alone. What the API
server does to a GPUNode, a pod and a Binding is done here as it does it; all else is our own code.
"""

import asyncio
import copy
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import jsonpatch

from kube.errors import InvalidError, NotFoundError, UnreachableError
from tests.gpunodes import NOON, Json, patched

GPU_NODES = "/apis/vgpu-admission.io/v1alpha1/gpunodes/"
PODS = "/api/v1/namespaces/team-a/pods/"
REQUEST_CAP = 34.0  # seconds after which the API server gives a request up


class StillLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock only moves when it is pushed."""

    now = 0.0

    def time(self) -> float:
        return self.now


@dataclass(eq=False, slots=True)
class Ticket:
    """One call on its way: not carried out yet, carried out and not answered yet, answered."""

    act: Callable[[], bytes]
    answer: "asyncio.Future[bytes]"
    outcome: bytes | Exception | None = None


class Api(Protocol):
    """What a replica calls: the world's own line, or one that was tampered with."""

    async def get(self, path: str, **options: float) -> bytes: ...

    async def json_patch(
        self, path: str, ops: Sequence[Mapping[str, object]], **options: float
    ) -> bytes: ...


@dataclass(slots=True)
class World:
    """The API server's objects, and the calls that are on their way to it or back."""

    rng: random.Random
    loop: StillLoop
    gpu_nodes: dict[str, Json] = field(default_factory=dict)
    pods: dict[str, Json] = field(default_factory=dict)
    tickets: list[Ticket] = field(default_factory=list)
    changes: int = 0
    unsound: bool = False  # GPUs have changed since: annotations may tell of an older promise
    committed: Callable[[Json, Json], None] = lambda _old, _new: None

    async def call(self, act: Callable[[], bytes]) -> bytes:
        """Wait until the call has been carried out and its answer has come back."""
        ticket = Ticket(act, self.loop.create_future())
        self.tickets.append(ticket)
        try:
            return await ticket.answer
        finally:
            if ticket.outcome is not None and ticket in self.tickets:
                self.tickets.remove(ticket)

    async def get(self, path: str, **_: float) -> bytes:
        return await self.call(lambda: self._read(path))

    async def json_patch(self, path: str, ops: Sequence[Mapping[str, object]], **_: float) -> bytes:
        sent = json.loads(json.dumps(list(ops)))
        return await self.call(lambda: self._patch(path, sent))

    def _read(self, path: str) -> bytes:
        store = self.gpu_nodes if path.startswith(GPU_NODES) else self.pods
        found = store.get(path.rpartition("/")[2])
        if found is None:
            raise NotFoundError(404, "NotFound", path)
        return json.dumps(found).encode()

    def _patch(self, path: str, ops: list[Json]) -> bytes:
        name = path.rpartition("/")[2]
        old = self.gpu_nodes[name]
        try:
            new = patched(old, ops)
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
            raise InvalidError(422, "Invalid", "a test failed") from error
        self.gpu_nodes[name] = new
        self.changes += 1
        self.committed(old, new)
        return json.dumps(new).encode()

    def step(self, ticket: Ticket, *, faults: bool) -> None:
        """Carry one call one step further, or lose it or its answer."""
        if ticket.outcome is None:
            if faults and self.rng.random() < 0.04:
                ticket.outcome = UnreachableError("lost on the way there", sent=True)
                return
            try:
                ticket.outcome = ticket.act()
            except (InvalidError, NotFoundError) as error:
                ticket.outcome = error
            return
        self.tickets.remove(ticket)
        if ticket.answer.done():
            return
        if faults and self.rng.random() < 0.04:
            ticket.answer.set_exception(UnreachableError("lost on the way back", sent=True))
        elif isinstance(ticket.outcome, Exception):
            ticket.answer.set_exception(ticket.outcome)
        else:
            ticket.answer.set_result(ticket.outcome)

    def report(self, name: str, status: Json) -> None:
        """Let the agent of node *name* write its status."""
        old = self.gpu_nodes[name]
        version = str(int(old["metadata"]["resourceVersion"]) + 1)
        metadata = {**old["metadata"], "resourceVersion": version}
        self.gpu_nodes[name] = {**old, "metadata": metadata, "status": {**old["status"], **status}}
        self.changes += 1

    def observe(self, name: str, *, lingering: float = 0.5) -> None:
        """Let the agent of a node say what it has seen, and hold what may run there.

        Containers of a pod that is gone linger with that probability, and it holds them longer.
        """
        stored = self.gpu_nodes[name]
        alive = {
            pod["metadata"]["uid"]
            for pod in self.pods.values()
            if pod["spec"].get("nodeName") == name
        }
        before = set(stored["status"].get("held", ()))
        late = {uid for uid in sorted(before - alive) if self.rng.random() < lingering}
        promised = {entry["pod"]["uid"] for entry in stored["spec"]["entries"]}
        held = sorted((alive & promised) | late)
        self.report(name, {"observedGeneration": stored["metadata"]["generation"], "held": held})

    def place(self, pod: Json) -> None:
        """Store a pod, instead of one that has its name."""
        self.pods[pod["metadata"]["name"]] = pod
        self.changes += 1

    def land(self, binding: Json, ops: list[Json], *, asked_at: float) -> bytes:
        """Do what the registry does with a Binding that the hook let pass, changed by *ops*."""
        final = jsonpatch.apply_patch(copy.deepcopy(binding), ops)
        pod = self.pods.get(binding["metadata"]["name"])
        uid = final["metadata"].get("uid")
        if pod is None or uid not in {None, pod["metadata"]["uid"]} or pod["spec"].get("nodeName"):
            return b"409"
        if self.loop.time() - asked_at > REQUEST_CAP:
            return b"504"
        changed = copy.deepcopy(pod)
        changed["spec"]["nodeName"] = final["target"]["name"]
        annotations = changed["metadata"].setdefault("annotations", {})
        annotations.update(final["metadata"].get("annotations") or {})
        self.place(changed)
        return b"201"

    def wall(self) -> Any:  # noqa: ANN401 -- a datetime
        return NOON + timedelta(seconds=self.loop.time())
