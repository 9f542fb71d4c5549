"""The API server as MetaX's device plugin uses it: its Node, and the pod that holds its lock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from agent.metax.allocation import AllocationError, LockedPod
from agent.node.node_informer import SELECTOR_LABEL, SELECTOR_VALUE
from allocator.catalog.hami_keys import LOCK_ANNOTATION
from allocator.catalog.keys import AGENT_LABEL, NOT_READY_TAINT
from allocator.cluster.inventory import NODES
from allocator.hami.node_lock import parse_node_lock
from allocator.model.untrusted import quote
from kube.client import ApiClient
from kube.errors import ApiError, NotFoundError

_POD: Final = "/api/v1/namespaces/{}/pods/{}"
_LOCK_PATH: Final = f"/metadata/annotations/{LOCK_ANNOTATION.replace('/', '~1')}"
# What the API server answers where a test of a patch fails.
_CHANGED: Final = frozenset({409, 422})


class _Metadata(msgspec.Struct):
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _NodeStatus(msgspec.Struct):
    allocatable: dict[str, str] | None = None


class _Taint(msgspec.Struct):
    key: str


class _NodeSpec(msgspec.Struct):
    taints: tuple[_Taint, ...] | None = None


class _Node(msgspec.Struct):
    metadata: _Metadata
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


class _PodSpec(msgspec.Struct):
    node: str = msgspec.field(name="nodeName", default="")


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaxNode:
    """What the simulation reads of its Node."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    allocatable: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()  # keys, in order

    @property
    def is_selected(self) -> bool:
        """Say whether it has the label by which the DaemonSet of the base selects nodes."""
        return self.labels.get(SELECTOR_LABEL) == SELECTOR_VALUE

    @property
    def has_agent(self) -> bool:
        """Say whether an agent with NVIDIA's GPUs has marked it as its own."""
        return AGENT_LABEL in self.labels


class MetaxNodeClient:
    """Calls about the Node *name*. Each raises KubeError."""

    def __init__(self, api_client: ApiClient, name: str) -> None:
        """Call nobody yet."""
        self._calls = api_client
        self.name = name

    async def read(self) -> MetaxNode:
        """Return the Node as it is now."""
        node = msgspec.json.decode(await self._calls.get(f"{NODES}/{self.name}"), type=_Node)
        return MetaxNode(
            labels=node.metadata.labels or {},
            annotations=node.metadata.annotations or {},
            allocatable=node.status.allocatable or {},
            taints=tuple(taint.key for taint in node.spec.taints or ()),
        )

    async def write(self, metadata: Mapping[str, object]) -> None:
        """Merge *metadata* into that of the Node."""
        await self._calls.merge_patch(f"{NODES}/{self.name}", {"metadata": metadata})

    async def remove_taint(self, node: MetaxNode) -> None:
        """Remove from *node*, as it was read, the taint of a node whose agent is not ready."""
        path = f"/spec/taints/{node.taints.index(NOT_READY_TAINT)}"
        operations = (
            {"op": "test", "path": f"{path}/key", "value": NOT_READY_TAINT},
            {"op": "remove", "path": path},
        )
        await self._calls.json_patch(f"{NODES}/{self.name}", operations)

    async def locked_pod(self, node: MetaxNode) -> LockedPod:
        """Return the pod that holds the lock of *node*; raises AllocationError where none does."""
        text = node.annotations.get(LOCK_ANNOTATION)
        if text is None:
            raise AllocationError("no pod holds the lock of the node")
        lock = parse_node_lock(text)
        if lock is None or not lock.pod:
            raise AllocationError(f"the lock of the node names no pod: {quote(text)}")
        try:
            raw = await self._calls.get(_POD.format(lock.namespace, lock.pod))
        except NotFoundError as error:
            gone = f"{lock.namespace}/{lock.pod}, which holds the lock of the node, is gone"
            raise AllocationError(gone) from error
        pod = msgspec.json.decode(raw, type=_Pod)
        return LockedPod(
            uid=pod.metadata.uid,
            node=pod.spec.node,
            annotations=pod.metadata.annotations or {},
        )

    async def release_lock(self, node: MetaxNode) -> None:
        """Remove the lock that *node* has; one that somebody else took meanwhile stays."""
        text = node.annotations.get(LOCK_ANNOTATION, "")
        operations = (
            {"op": "test", "path": _LOCK_PATH, "value": text},
            {"op": "remove", "path": _LOCK_PATH},
        )
        try:
            await self._calls.json_patch(f"{NODES}/{self.name}", operations)
        except ApiError as error:
            if error.status not in _CHANGED:
                raise
