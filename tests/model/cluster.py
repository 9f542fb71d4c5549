"""A cluster in memory whose every call waits until a seeded scheduler lets it go on.

Time stands still unless it is told to pass, so a run depends on its seed alone. What the API
server does to a GPUNode, a pod and a Binding is done here as it does it; all else is our own code.
"""

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Unpack

import jsonpatch
import orjson

from allocator.controllers.requeue import FREED_KEY
from allocator.ledger.decode import DecodedGpuNode, decode
from allocator.ledger.schema import FORMER_FINALIZER
from allocator.model.request import PodRequest
from kube.client import CallOptions
from kube.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    InvalidError,
    NotFoundError,
    UnreachableError,
)
from tests.builders.gpunodes import Json, patched
from tests.fakes.api_client import FakeApiClient
from tests.model.history import Past, Write
from tests.model.pending_calls import StillLoop, Ticket

GPU_NODES = "/apis/vgpu-admission.io/v1alpha1/gpunodes/"
NODES = "/api/v1/nodes/"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/vgpu/leases/"
PODS = "/api/v1/namespaces/team-a/pods/"
REQUEST_CAP = 34.0  # seconds after which the API server gives a request up


@dataclass(slots=True)
class World(FakeApiClient):
    """The API server's objects, and the calls that are on their way to it or back."""

    rng: random.Random
    loop: StillLoop
    gpu_nodes: dict[str, Json] = field(default_factory=dict)
    machines: dict[str, Json] = field(default_factory=dict)
    pods: dict[str, Json] = field(default_factory=dict)
    leases: dict[str, Json] = field(default_factory=dict)
    tickets: list[Ticket] = field(default_factory=list)
    changes: int = 0
    stirred: int = 0  # changes that make schedulers look again: all but those of GPUNodes
    read: dict[str, tuple[Json, DecodedGpuNode]] = field(default_factory=dict)
    born: int = 0  # GPUNodes made so far
    candidates: int = 0  # replicas that stood for the lease so far
    bypassed: set[str] = field(default_factory=set)  # uids of pods that were bound past the hook
    asked: dict[str, PodRequest] = field(default_factory=dict)  # by uid of whoever asked
    forged: set[str] = field(default_factory=set)  # uids of pods whose annotations a tenant wrote
    metax: bool = False  # one of the nodes is MetaX's, and some pods ask for its GPUs
    past: Past = field(default_factory=Past)
    write: Write | None = None  # that is being carried out
    replaces: bool = False  # whether reviews replace what an unbound pod has on another node
    committed: Callable[["World", Json, Json], None] = lambda _world, _old, _new: None

    async def call(self, act: Callable[[], bytes]) -> bytes:
        """Wait until the call has been carried out and its answer has come back."""
        ticket = Ticket(act, self.loop.create_future())
        self.tickets.append(ticket)
        try:
            return await ticket.answer
        finally:
            if ticket.outcome is not None and ticket in self.tickets:
                self.tickets.remove(ticket)

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        if path == GPU_NODES.rstrip("/"):
            listed = await self.call(self._list_gpu_nodes)
            for item in orjson.loads(listed)["items"]:
                self.past.show(GPU_NODES + item["metadata"]["name"], orjson.dumps(item))
            return listed
        found = await self.call(lambda: self._read(path))
        self.past.show(path, found)
        return found

    def _list_gpu_nodes(self) -> bytes:
        return orjson.dumps({"items": list(self.gpu_nodes.values())})

    async def _send(self, path: str, act: Callable[[], bytes]) -> bytes:
        """Make a call that changes something, and keep in mind what it can rest on."""
        write = self.past.writing(path, self.changes)

        def acting() -> bytes:
            self.write = write
            return act()

        return await self.call(acting)

    async def json_patch(
        self, path: str, ops: Sequence[Mapping[str, object]], **_: Unpack[CallOptions]
    ) -> bytes:
        sent = orjson.loads(orjson.dumps(list(ops)))
        return await self._send(path, lambda: self._patch(path, sent))

    async def merge_patch(
        self, path: str, changes: Mapping[str, Any], **_: Unpack[CallOptions]
    ) -> bytes:
        sent = orjson.loads(orjson.dumps(changes))
        return await self._send(path, lambda: self._merged(path, sent))

    async def create(self, path: str, body: bytes, **_: Unpack[CallOptions]) -> bytes:
        sent = orjson.loads(body)
        leases = path == LEASES.rstrip("/")
        assert leases or path == GPU_NODES.rstrip("/")
        return await self._send(path, lambda: self._leased(sent) if leases else self._created(sent))

    async def delete(
        self, path: str, *, body: bytes | None = None, **_: Unpack[CallOptions]
    ) -> bytes:
        sent = orjson.loads(body or b"{}")
        return await self._send(path, lambda: self._deleted(path, sent["preconditions"]))

    def _created(self, found: Json) -> bytes:
        name = found["metadata"]["name"]
        if name in self.gpu_nodes:
            raise AlreadyExistsError(409, "AlreadyExists", name)
        self.born += 1
        version = {"uid": f"ledger-{self.born}", "generation": 1, "resourceVersion": "100"}
        self._keep({**found, "metadata": found["metadata"] | version, "status": {}})
        return b"{}"

    def _leased(self, sent: Json, old: Json | None = None) -> bytes:
        """Keep a Lease as it is sent, new or instead of *old*."""
        name = sent["metadata"]["name"] if old is None else old["metadata"]["name"]
        kept = self.leases.get(name)
        if kept is not old:
            raise AlreadyExistsError(409, "AlreadyExists", name)
        version = 1 if old is None else int(old["metadata"]["resourceVersion"]) + 1
        spec = {**(old or {}).get("spec", {}), **sent["spec"]}
        self.leases[name] = {
            "metadata": {"name": name, "resourceVersion": str(version)},
            "spec": spec,
        }
        return orjson.dumps(self.leases[name])

    def _deleted(self, path: str, preconditions: Json) -> bytes:
        old = self._unchanged(path, preconditions)
        if old["metadata"]["uid"] != preconditions["uid"]:
            raise ConflictError(409, "Conflict", path)
        assert not old["spec"].get("entries"), "a ledger was deleted with its entries"
        del self.gpu_nodes[old["metadata"]["name"]]
        self.changes += 1
        return b"{}"

    def _merged(self, path: str, changes: Json) -> bytes:
        if path.startswith(NODES):
            return self._marked(path, changes["metadata"])
        if path.startswith(PODS):
            return self._annotated(path, changes["metadata"])
        old = self._unchanged(path.removesuffix("/status"), changes["metadata"])
        if path.startswith(LEASES):
            return self._leased(changes, old)
        if path.endswith("/status"):
            status = {**old["status"], **changes["status"]}
            found = {key: value for key, value in status.items() if value is not None}
            self._write({**old, "status": found}, old["metadata"])
            self.committed(self, old, self.gpu_nodes[old["metadata"]["name"]])
        else:
            self._write(old, {**old["metadata"], "finalizers": changes["metadata"]["finalizers"]})
        return b"{}"

    def _annotated(self, path: str, metadata: Json) -> bytes:
        pod = self.pods.get(path.rpartition("/")[2])
        if pod is None:
            raise NotFoundError(404, "NotFound", path)
        if pod["metadata"]["uid"] != metadata["uid"]:
            raise ConflictError(409, "Conflict", path)
        found = copy.deepcopy(pod)
        found["metadata"].setdefault("annotations", {}).update(metadata["annotations"])
        self.place(found)
        return b"{}"

    def _marked(self, path: str, metadata: Json) -> bytes:
        name = path.rpartition("/")[2]
        if name not in self.machines:
            raise NotFoundError(404, "NotFound", path)
        found = copy.deepcopy(self.machines[name])
        version = found["metadata"]["resourceVersion"]
        if metadata.get("resourceVersion", version) != version:
            raise ConflictError(409, "Conflict", path)
        annotations = {**found["metadata"].get("annotations", {}), **metadata["annotations"]}
        found["metadata"]["annotations"] = {k: v for k, v in annotations.items() if v is not None}
        self.past.reached["wake-ups"] += FREED_KEY in metadata["annotations"]
        self.attach(found)
        return b"{}"

    def _unchanged(self, path: str, preconditions: Json) -> Json:
        kind, _, name = path.rpartition("/")
        old = (self.leases if f"{kind}/" == LEASES else self.gpu_nodes).get(name)
        if old is None:
            raise NotFoundError(404, "NotFound", path)
        if old["metadata"]["resourceVersion"] != preconditions["resourceVersion"]:
            raise ConflictError(409, "Conflict", path)
        return old

    def _write(self, found: Json, metadata: Json, *, bump: bool = False) -> None:
        version = str(int(metadata["resourceVersion"]) + 1)
        generation = metadata["generation"] + bump
        metadata = {**metadata, "resourceVersion": version, "generation": generation}
        self._keep({**found, "metadata": metadata})

    def _keep(self, found: Json) -> None:
        self.gpu_nodes[found["metadata"]["name"]] = found
        self.changes += 1
        self.past.kept(found, self.changes)

    def _read(self, path: str) -> bytes:
        kind, _, name = path.rpartition("/")
        stores = {GPU_NODES: self.gpu_nodes, NODES: self.machines, LEASES: self.leases}
        found = stores.get(f"{kind}/", self.pods).get(name)
        if found is None:
            raise NotFoundError(404, "NotFound", path)
        return orjson.dumps(found)

    def _patch(self, path: str, ops: list[Json]) -> bytes:
        name = path.rpartition("/")[2]
        old = self.gpu_nodes.get(name)
        if old is None:
            raise NotFoundError(404, "NotFound", path)
        try:
            new = patched(old, ops)
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
            raise InvalidError(422, "Invalid", "a test failed") from error
        self._keep(new)
        self.committed(self, old, new)
        self.past.written(old, new, self.bound(name))
        if self.replaces:
            self.past.replaced(old, new, living=self.living())
        return orjson.dumps(new)

    def step(self, ticket: Ticket, *, faults: bool) -> None:
        """Carry one call one step further, or lose it or its answer."""
        if ticket.outcome is None:
            if faults and self.rng.random() < 0.04:
                ticket.outcome = UnreachableError("lost on the way there", sent=True)
                return
            try:
                ticket.outcome = ticket.act()
            except ApiError as error:
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
        """Let the agent of node *name* write its whole status."""
        self._write({**self.gpu_nodes[name], "status": status}, self.gpu_nodes[name]["metadata"])

    def lose(self, name: str) -> None:
        """Lose a GPUNode, as a restored backup does, and make an empty one of that name."""
        old = self.gpu_nodes.pop(name)
        self.past.lost(old, self.bound(name))
        former = [FORMER_FINALIZER] if self.born % 3 else []  # of an earlier release
        metadata = {"name": name, "finalizers": former}
        self._created({"metadata": metadata, "spec": {"entries": []}})

    def bound(self, name: str) -> list[str]:
        """Return the uids of the pods that are bound to a node and have not ended."""
        return [
            pod["metadata"]["uid"]
            for pod in self.pods.values()
            if pod["spec"].get("nodeName") == name and not over(pod)
        ]

    def living(self) -> set[str]:
        """Return the uids of the pods that have not ended."""
        return {pod["metadata"]["uid"] for pod in self.pods.values() if not over(pod)}

    def decoded(self, name: str) -> DecodedGpuNode:
        """Read a GPUNode as it is now; objects are replaced, never edited."""
        stored = self.gpu_nodes[name]
        known = self.read.get(name)
        if known is None or known[0] is not stored:
            known = self.read[name] = (stored, decode(stored))
        return known[1]

    def place(self, pod: Json) -> None:
        """Store a pod, instead of one that has its name."""
        self.pods[pod["metadata"]["name"]] = self._versioned(pod)

    def attach(self, machine: Json) -> None:
        """Store a Node, instead of one that has its name."""
        self.machines[machine["metadata"]["name"]] = self._versioned(machine)

    def detach(self, name: str) -> None:
        """Remove a Node."""
        if self.machines.pop(name, None) is not None:
            self.changes += 1
            self.stirred += 1

    def _versioned(self, found: Json) -> Json:
        self.changes += 1
        self.stirred += 1
        return {**found, "metadata": {**found["metadata"], "resourceVersion": str(self.changes)}}

    def land(self, binding: Json, ops: list[Json], *, asked_at: float) -> bytes:
        """Do what the registry does with a Binding that the hook let pass, changed by *ops*."""
        final = jsonpatch.apply_patch(binding, ops)  # a copy
        pod = self.pods.get(binding["metadata"]["name"])
        uid = final["metadata"].get("uid")
        if pod is None or uid not in {None, pod["metadata"]["uid"]} or pod["spec"].get("nodeName"):
            return b"409"
        if self.loop.time() - asked_at > REQUEST_CAP:
            self.past.reached["504s"] += 1
            return b"504"
        changed = copy.deepcopy(pod)
        changed["spec"]["nodeName"] = final["target"]["name"]
        annotations = changed["metadata"].setdefault("annotations", {})
        annotations.update(final["metadata"].get("annotations") or {})
        self.place(changed)
        return b"201"

    def elapsed(self, skew: float) -> timedelta:
        """Return the time since the beginning on a clock that is wrong by *skew* seconds."""
        return timedelta(seconds=self.loop.time() + skew)


def over(pod: Json) -> bool:
    """Say whether the containers of a pod have ended for good."""
    return bool(pod.get("status", {}).get("phase"))
