"""The cluster of the demo: objects in memory, called as an API server is.

It knows pods, Nodes and GPUNodes. Of a node's agent it does what the ledger needs: it reports the
MIG instances that entries name, and that it has seen the last change.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Unpack

import orjson

from allocator.cluster.inventory import GPU_NODES, NODES
from allocator.ledger.ledger import Ledger, parse_ledger_text
from allocator.ledger.schema import API_VERSION, KIND, spec_of, status_of
from allocator.model.gpu import Gpu, Node
from demo.objects import Json, made_uid
from demo.patches import PatchError, patched
from kube.client import CallOptions
from kube.errors import ApiError, InvalidError, NotFoundError

_DRIVER: Final = "570.133.20"
_PODS: Final = "/api/v1/namespaces/"
PodKey = tuple[str, str]  # namespace and name


class DemoCluster:
    """Satisfies :class:`kube.client.ApiClient` for the calls that decisions make."""

    def __init__(self, nodes: Iterable[Node], *, created: str) -> None:
        """Make a GPUNode of each of *nodes*; what is granted on them is left out."""
        self.pods: dict[PodKey, Json] = {}
        self.nodes: dict[str, Json] = {}
        self.gpu_nodes: dict[str, Json] = {}
        self._idle: dict[str, Sequence[Gpu]] = {}
        self._ledgers: dict[str, Ledger] = {}
        self._versions = 1000
        for node in nodes:
            free = _without_grants(node)
            self._idle[node.name] = free.gpus
            self.nodes[node.name] = _node_object(node.name, created)
            self.gpu_nodes[node.name] = _gpu_node(free, created)

    def ledgers(self) -> Mapping[str, Ledger]:
        """Return the ledger of each node."""
        for name, document in self.gpu_nodes.items():
            known = self._ledgers.get(name)
            if known is None or known.resource_version != document["metadata"]["resourceVersion"]:
                self._ledgers[name] = parse_ledger_text(orjson.dumps(document))[0]
        return self._ledgers

    def ledger(self, name: str) -> Ledger | None:
        """Return the ledger of one node."""
        return self.ledgers().get(name)

    def nodes_with_entry(self, uid: str) -> frozenset[str]:
        """Return the nodes on which pod *uid* has an entry."""
        return frozenset(name for name, one in self.ledgers().items() if one.entry(uid))

    def break_gpu(self, node: str, index: int, reason: str) -> str:
        """Report a GPU of *node* as broken, and return its UUID; empty where there is none."""
        document = self.gpu_nodes.get(node)
        if document is None or index >= len(document["status"]["gpus"]):
            return ""
        gpus = [{**gpu} for gpu in document["status"]["gpus"]]
        gpus[index] |= {"healthy": False, "reason": reason}
        self._store(node, {**document, "status": {**document["status"], "gpus": gpus}})
        return str(gpus[index]["uuid"])

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        """Read one object."""
        return orjson.dumps(self._object(path))

    async def json_patch(
        self, path: str, ops: Sequence[Mapping[str, object]], **_: Unpack[CallOptions]
    ) -> bytes:
        """Apply *ops* to a GPUNode, and return it as its agent reports on it then."""
        name = path.removeprefix(f"{GPU_NODES}/")
        before = self._object(path)
        if name not in self.gpu_nodes:
            raise _refused(405, "MethodNotAllowed", path)
        try:
            after = patched(before, ops)
        except PatchError as error:
            raise InvalidError(422, "Invalid", str(error), place=path) from error
        if after["spec"] != before["spec"]:
            after["metadata"]["generation"] = before["metadata"]["generation"] + 1
        return orjson.dumps(self._store(name, after))

    def _store(self, name: str, document: Json) -> Json:
        self._versions += 1
        metadata = {**document["metadata"], "resourceVersion": str(self._versions)}
        ledger = parse_ledger_text(orjson.dumps(document))[0]
        status = {
            **document["status"],
            "instances": _instances(self._idle[name], ledger),
            "observedGeneration": metadata["generation"],
        }
        self.gpu_nodes[name] = {**document, "metadata": metadata, "status": status}
        return self.gpu_nodes[name]

    def _object(self, path: str) -> Json:
        found: Json | None = None
        if path.startswith(f"{GPU_NODES}/"):
            found = self.gpu_nodes.get(path.removeprefix(f"{GPU_NODES}/"))
        elif path.startswith(f"{NODES}/"):
            found = self.nodes.get(path.removeprefix(f"{NODES}/"))
        elif path.startswith(_PODS):
            namespace, _, name = path.removeprefix(_PODS).partition("/pods/")
            found = self.pods.get((namespace, name))
        if found is None:
            raise NotFoundError(404, "NotFound", "there is no such object", place=path)
        return found

    async def create(self, path: str, _body: bytes, **_: Unpack[CallOptions]) -> bytes:
        """Refuse: no part of the demo creates objects."""
        raise _refused(405, "MethodNotAllowed", path)

    async def merge_patch(
        self, path: str, _changes: Mapping[str, object], **_: Unpack[CallOptions]
    ) -> bytes:
        """Refuse: no part of the demo merges."""
        raise _refused(405, "MethodNotAllowed", path)

    async def apply(
        self, path: str, _body: bytes, *, field_manager: str, **_: Unpack[CallOptions]
    ) -> bytes:
        """Refuse: no part of the demo applies."""
        raise _refused(405, "MethodNotAllowed", f"{path} by {field_manager}")

    async def delete(
        self, path: str, *, body: bytes | None = None, **_: Unpack[CallOptions]
    ) -> bytes:
        """Refuse: pods of the demo end by themselves."""
        raise _refused(405, "MethodNotAllowed", f"{path}, {len(body or b'')} bytes")


def _refused(status: int, reason: str, place: str) -> ApiError:
    return ApiError(status, reason, "the demo's API server does not do this", place=place)


def _without_grants(node: Node) -> Node:
    """Return *node* without grants; its idle instances stay."""
    gpus = tuple(replace(gpu, grants=()) for gpu in node.gpus)
    return replace(node, gpus=gpus)


def _node_object(name: str, created: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": made_uid("node", name), "creationTimestamp": created},
        "spec": {},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"bootID": made_uid("boot", name)},
            "allocatable": {"volcano.sh/vgpu-number": "80"},
        },
    }


def _gpu_node(node: Node, created: str) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": node.name,
            "uid": made_uid("gpunode", node.name),
            "generation": 1,
            "resourceVersion": "1",
            "creationTimestamp": created,
        },
        "spec": spec_of(()),
        "status": {
            **status_of(node),
            "bootID": made_uid("boot", node.name),
            "nodeUID": made_uid("node", node.name),
            "driver": _DRIVER,
            "observedGeneration": 1,
            "held": [],
        },
    }


def _instances(idle: Sequence[Gpu], ledger: Ledger) -> list[Json]:
    """Return the MIG instances that entries name, and those idle ones that they leave room for."""
    grants = {gpu.uuid: gpu for gpu in ledger.node.gpus}
    found = []
    for gpu in idle:
        held = [grant.placed for grant in grants[gpu.uuid].grants if grant.placed is not None]
        free = [one for one in gpu.instances if not any(one.mask & each.mask for each in held)]
        found += [
            {
                "gpu": gpu.uuid,
                "profile": placed.profile.name,
                "start": placed.start,
                "uuid": f"MIG-{made_uid(gpu.uuid, placed.profile.name, placed.start)}",
            }
            for placed in (*held, *free)
        ]
    return found
