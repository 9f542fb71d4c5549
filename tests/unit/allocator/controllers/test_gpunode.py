"""Upkeep takes one step at a time, each decided on what was just read and written on that."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack

from allocator.cluster.objects import NodeObject
from allocator.controllers.gpunode import GpuNodeController
from allocator.ledger.ledger import Ledger, parse_ledger
from allocator.ledger.lifecycle import NodeIdentity
from kube.client import CallOptions
from kube.clock import Clock
from kube.errors import ConflictError, NotFoundError, UnreachableError
from tests.builders.gpunodes import Json, entry, gpu_node
from tests.builders.model import T4, nodes_of, soft_grant
from tests.fakes.api_client import FakeApiClient

NODE = nodes_of(1, T4)
LABELS = {"vgpu-admission.io/agent": "0.1.0"}
NODE_OBJECT: Json = {"metadata": {"name": "n0", "uid": "u", "labels": LABELS}}


@dataclass(slots=True)
class Cluster(FakeApiClient):
    """An API server with one Node and its GPUNode, and caches that are up to date unless told."""

    machine: bool = True
    stored: Json | None = None
    seen: Json | None = None  # what the cache has, where it differs
    moves: bool = False  # somebody writes between our read and our write
    down: bool = False
    now: float = 0.0
    calls: list[str] = field(default_factory=list)

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        if self.down:
            raise UnreachableError("down", sent=True)
        document = self.stored if "gpunodes" in path else NODE_OBJECT if self.machine else None
        if document is None:
            raise NotFoundError(404, "NotFound", path)
        return json.dumps(document).encode()

    async def create(self, path: str, body: bytes, **_: Unpack[CallOptions]) -> bytes:
        self.calls.append(f"create {path.rpartition('/')[2]}")
        made = json.loads(body)
        made["metadata"] |= {"resourceVersion": "1", "uid": "g", "generation": 1}
        self.stored = made
        return b"{}"

    async def merge_patch(
        self, path: str, changes: Mapping[str, Any], **_: Unpack[CallOptions]
    ) -> bytes:
        self.calls.append(f"patch {path.rpartition('/')[2]} {json.dumps(changes, sort_keys=True)}")
        self._check(changes["metadata"])
        assert self.stored is not None
        if path.endswith("/status"):
            status = {**self.stored.get("status", {}), **changes["status"]}
            self.stored["status"] = {k: v for k, v in status.items() if v is not None}
        else:
            self.stored["metadata"]["finalizers"] = changes["metadata"]["finalizers"]
            if (
                self.stored["metadata"].get("deletionTimestamp")
                and not self.stored["metadata"]["finalizers"]
            ):
                self.stored = None
        return b"{}"

    async def delete(
        self, path: str, *, body: bytes | None = None, **_: Unpack[CallOptions]
    ) -> bytes:
        self.calls.append(f"delete {path.rpartition('/')[2]}")
        preconditions = json.loads(body or b"{}")["preconditions"]
        self._check(preconditions)
        assert self.stored is not None
        assert preconditions["uid"] == self.stored["metadata"]["uid"]
        self.stored = None
        return b"{}"

    def _check(self, preconditions: Mapping[str, object]) -> None:
        assert self.stored is not None
        if self.moves or preconditions["resourceVersion"] != self.version:
            raise ConflictError(409, "Conflict", "it moved")

    @property
    def version(self) -> str:
        assert self.stored is not None
        return str(self.stored["metadata"]["resourceVersion"])

    def node_identities(self) -> Mapping[str, NodeIdentity]:
        there = NodeIdentity(name="n0", uid="u", boot="", agent=True)
        return {"n0": there} if self.machine else {}

    def machine_of(self, node: NodeObject) -> NodeIdentity:
        return node.identity()

    def ledgers(self) -> Mapping[str, Ledger]:
        document = self.seen or self.stored
        return {} if document is None else {"n0": parse_ledger(document)}


@dataclass(frozen=True, slots=True)
class Known:
    """The caches of a cluster, under the names that upkeep asks for."""

    cluster: Cluster
    blind: bool = False

    def node_identities(self) -> Mapping[str, NodeIdentity] | None:
        return None if self.blind else self.cluster.node_identities()

    def node_identity(self, node: NodeObject) -> NodeIdentity:
        return self.cluster.machine_of(node)

    def ledgers(self) -> Mapping[str, Ledger] | None:
        return self.cluster.ledgers()


def swept(cluster: Cluster, times: int = 1, *, blind: bool = False) -> list[str]:
    """Sweep some times, two seconds apart, and return what was called."""
    clock = Clock(monotonic=lambda: cluster.now, random=lambda: 0)
    upkeep = GpuNodeController(cluster, Known(cluster, blind), upstream=lambda: False, clock=clock)

    async def sweeps() -> None:
        for _ in range(times):
            await upkeep.sweep()
            cluster.now += 2

    asyncio.run(sweeps())
    return cluster.calls


@dataclass(slots=True)
class Steady:
    """Caches that hand out the same objects until something changes, as ours do."""

    nodes: dict[str, NodeIdentity]
    held: dict[str, Ledger]

    def node_identities(self) -> Mapping[str, NodeIdentity]:
        return self.nodes

    def node_identity(self, node: NodeObject) -> NodeIdentity:
        return node.identity()

    def ledgers(self) -> Mapping[str, Ledger]:
        return self.held


def test_what_was_in_order_is_looked_at_again_once_it_changes() -> None:
    """As long as nothing moves nothing is done, and what moves is noticed."""
    cluster = Cluster(stored=gpu_node(NODE))
    there = NodeIdentity(name="n0", uid="u", boot="", agent=True)
    caches = Steady(nodes={"n0": there}, held={"n0": parse_ledger(gpu_node(NODE))})
    upkeep = GpuNodeController(cluster, caches, upstream=lambda: False)

    async def sweeps() -> list[str]:
        await upkeep.sweep()
        await upkeep.sweep()
        before = list(cluster.calls)
        caches.nodes, cluster.machine = {}, False
        await upkeep.sweep()
        return before

    assert asyncio.run(sweeps()) == []
    assert [call.partition(" {")[0] for call in cluster.calls] == ["patch status"]


def test_a_missing_gpu_node_is_made_once() -> None:
    """Empty and without a finalizer, which nobody could remove later; the next sweep finds it."""
    cluster = Cluster()

    assert swept(cluster, times=3) == ["create gpunodes"]
    assert cluster.stored is not None
    assert "finalizers" not in cluster.stored["metadata"]
    assert cluster.stored["spec"] == {"entries": []}


def test_nothing_is_done_while_not_all_is_known() -> None:
    """Without a picture of all Nodes every GPUNode would look left behind."""
    assert swept(Cluster(machine=False, stored=gpu_node(NODE)), blind=True) == []


def test_a_node_that_went_is_shut_then_let_go() -> None:
    """In that order: no commit may land while its GPUNode is on its way out."""
    cluster = Cluster(machine=False, stored=gpu_node(NODE))

    calls = swept(cluster, times=3)

    assert [call.split()[0] for call in calls] == ["patch", "delete"]
    assert '"inventory": null' in calls[0]
    assert cluster.stored is None


def test_an_entry_of_the_last_moment_keeps_the_ledger() -> None:
    """The delete names the version that was read, and the sweep after it sees the entry."""
    cluster = Cluster(machine=False, stored=gpu_node(NODE, inventory=""), moves=True)

    assert swept(cluster) == ["delete n0"]
    assert cluster.stored is not None

    cluster.moves = False
    cluster.stored = gpu_node(NODE, (entry("a", soft_grant(1, gpu="GPU-n0-0")),), inventory="")
    assert swept(cluster) == ["delete n0"]  # the first one; no other followed


def test_a_ledger_of_an_earlier_release_loses_its_finalizer() -> None:
    """Its entries stay, and it is in order afterwards."""
    stored = gpu_node(NODE, (entry("a", soft_grant(1, gpu="GPU-n0-0")),), nodeUID="u")
    stored["metadata"]["finalizers"] = _FINALIZERS
    entries = stored["spec"]["entries"]
    cluster = Cluster(stored=stored)

    assert [call.split()[:2] for call in swept(cluster, times=3)] == [["patch", "n0"]]
    assert cluster.stored is not None
    assert cluster.stored["metadata"]["finalizers"] == []
    assert cluster.stored["spec"]["entries"] == entries


def test_a_ledger_whose_definition_is_being_deleted_goes_at_once() -> None:
    """Its entries hold up no uninstallation."""
    stored = gpu_node(NODE, (entry("a", soft_grant(1, gpu="GPU-n0-0")),), nodeUID="u")
    stored["metadata"] |= {"finalizers": _FINALIZERS, "deletionTimestamp": "now"}
    cluster = Cluster(stored=stored)

    swept(cluster)

    assert cluster.stored is None


def test_foreign_finalizers_stay() -> None:
    """Somebody else may have reasons to keep it."""
    stored = gpu_node(NODE, inventory="")
    stored["metadata"] |= {"deletionTimestamp": "now", "finalizers": ["a", *_FINALIZERS]}
    cluster = Cluster(machine=False, stored=stored)

    assert '"finalizers": ["a"]' in swept(cluster, times=3)[0]
    assert len(cluster.calls) == 1


_FINALIZERS = ["vgpu-admission.io/ledger"]


def test_what_moved_is_looked_at_again() -> None:
    """A write that lost its race changes nothing, and is not repeated at once."""
    cluster = Cluster(machine=False, stored=gpu_node(NODE), moves=True)

    assert len(swept(cluster, times=2)) == 2


def test_a_cache_that_is_behind_makes_no_call() -> None:
    """What was just read decides: the Node is as it should be."""
    cluster = Cluster(stored=gpu_node(NODE, nodeUID="u"), seen=gpu_node(NODE, nodeUID="v"))

    assert swept(cluster) == []


def test_a_silent_api_server_ends_nothing() -> None:
    """The next sweep tries again."""
    cluster = Cluster(down=True)

    assert swept(cluster) == []
    cluster.down = False
    assert swept(cluster) == ["create gpunodes"]
