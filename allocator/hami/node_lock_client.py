"""Takes and releases HAMi's node lock, each time on the version of the Node that was read."""

from dataclasses import dataclass, field
from typing import Final

import msgspec
import structlog

from allocator.catalog.hami_keys import LOCK_ANNOTATION, PHASE_KEY
from allocator.hami.node_lock import (
    BIND_WITHIN,
    LockHolder,
    NodeLock,
    is_lock_needed,
    parse_node_lock,
)
from allocator.request.pod_fields import NodeNameSpec, PodPhase
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import ConflictError, NotFoundError

NODE_PATH: Final = "/api/v1/nodes"
ATTEMPTS: Final = 5  # writes that may meet another writer of the Node, as in HAMi
# A lock of the pod's own from an earlier attempt is renewed, so that it lasts until the Binding.
REFRESH_AFTER: Final = BIND_WITHIN / 3
_PENDING: Final = "Pending"
log = structlog.get_logger(__name__)


class _Metadata(msgspec.Struct, frozen=True):
    version: str = msgspec.field(name="resourceVersion", default="")
    annotations: dict[str, str] | None = None


class _State(msgspec.Struct, frozen=True):
    running: dict[str, msgspec.Raw] | None = None
    terminated: dict[str, msgspec.Raw] | None = None


class _ContainerStatus(msgspec.Struct, frozen=True):
    state: _State | None = None


class _Status(PodPhase, frozen=True, rename="camel"):
    init_container_statuses: tuple[_ContainerStatus, ...] | None = None

    @property
    def has_started(self) -> bool:
        """Say whether kubelet has admitted the pod: it has asked the plugin for all by then."""
        states = [s.state for s in self.init_container_statuses or () if s.state is not None]
        begun = any(s.running is not None or s.terminated is not None for s in states)
        return begun or self.phase not in {"", _PENDING}


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: NodeNameSpec = NodeNameSpec()


class _Pod(_Object, frozen=True):
    status: _Status = _Status()


_NODE: Final = msgspec.json.Decoder(_Object)
_POD: Final = msgspec.json.Decoder(_Pod)


@dataclass(slots=True, kw_only=True)
class NodeLockClient:
    """The locks of all nodes; any number of replicas may take and release them."""

    calls: ApiClient
    clock: Clock = field(default=SYSTEM)

    async def take(self, node: str, namespace: str, pod: str) -> bool:
        """Take the lock of *node* for a pod; say whether that has it now.

        It is not taken from another pod that needs it. Raises :class:`KubeError`.
        """
        for attempt in range(1, ATTEMPTS + 1):
            metadata = await self._read(node)
            lock = parse_node_lock((metadata.annotations or {}).get(LOCK_ANNOTATION, ""))
            now = self.clock.wall()
            mine = lock is not None and lock.is_of(namespace, pod)
            if lock is not None and mine and abs(now - lock.at) < REFRESH_AFTER:
                return True
            if lock is not None and not mine and await self.is_needed(node, lock):
                return False
            text = str(NodeLock(at=now, namespace=namespace, pod=pod))
            if await self._write(node, metadata.version, text):
                return True
            await self.clock.sleep(self.clock.backoff(attempt, first=0.02, most=0.3))
        return False

    async def release(self, node: str, namespace: str, pod: str) -> None:
        """Release the lock of *node* if the pod holds it; raises :class:`KubeError`."""
        for attempt in range(1, ATTEMPTS + 1):
            metadata = await self._read(node)
            lock = parse_node_lock((metadata.annotations or {}).get(LOCK_ANNOTATION, ""))
            if lock is None or not lock.is_of(namespace, pod):
                return
            if await self._write(node, metadata.version, None):
                return
            await self.clock.sleep(self.clock.backoff(attempt, first=0.02, most=0.3))

    async def release_if_stale(self, node: str) -> bool:
        """Remove a lock that protects nobody; say whether there was one to remove.

        One that HAMi cannot read blocks its scheduler for ever, so it goes too. Raises
        :class:`KubeError`.
        """
        metadata = await self._read(node)
        text = (metadata.annotations or {}).get(LOCK_ANNOTATION)
        if text is None:
            return False
        lock = parse_node_lock(text)
        if lock is not None and await self.is_needed(node, lock):
            return False
        return await self._write(node, metadata.version, None)

    async def is_needed(self, node: str, lock: NodeLock) -> bool:
        """Say whether the pod that *lock* of *node* names waits; raises :class:`KubeError`."""
        holder = await self._holder(lock) if lock.pod else None
        return is_lock_needed(lock, holder, node=node, now=self.clock.wall())

    async def _holder(self, lock: NodeLock) -> LockHolder | None:
        try:
            raw = await self.calls.get(f"/api/v1/namespaces/{lock.namespace}/pods/{lock.pod}")
        except NotFoundError:
            return None
        pod = _POD.decode(raw)
        return LockHolder(
            node=pod.spec.node_name,
            over=pod.status.over,
            started=pod.status.has_started,
            phase=(pod.metadata.annotations or {}).get(PHASE_KEY, ""),
        )

    async def _read(self, node: str) -> _Metadata:
        return _NODE.decode(await self.calls.get(f"{NODE_PATH}/{node}")).metadata

    async def _write(self, node: str, version: str, text: str | None) -> bool:
        """Write the lock, ``None`` to remove it; return false where the Node has changed."""
        metadata = {"resourceVersion": version, "annotations": {LOCK_ANNOTATION: text}}
        try:
            await self.calls.merge_patch(f"{NODE_PATH}/{node}", {"metadata": metadata})
        except ConflictError:
            return False
        log.info("node lock written", node=node, lock=text or "")
        return True
