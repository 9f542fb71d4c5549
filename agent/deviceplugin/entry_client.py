"""Entries: looks up the ledger entry of a starting container and marks it as held."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from agent.deviceplugin.shares import StillRunsError, share_of
from agent.driver.driver import Device
from agent.node.node_informer import NodeInformer, decode_gpu_node
from agent.node.pods import NodePod, parse_pod
from agent.share import NotYetError, Owner, Share
from allocator.cluster.inventory import GPU_NODES
from allocator.model.allocation import Entry
from kube.client import ApiClient
from kube.errors import KubeError, NotFoundError

INIT_CHECKS: Final = 20  # of a pod whose init container still runs, it seems
INIT_INTERVAL: Final = 0.25  # seconds between them; all together far less than kubelet's 30


class HoldRecorder(Protocol):
    """Records that containers may have started."""

    async def hold(self, uid: str) -> None:
        """Return once it is stored; raises NotYetError."""


class EntryClient:
    """Answers from the informer; asks the API server for what the informer lacks.

    ``unguarded`` says that nothing but admission's injection keeps a container to its share.
    """

    def __init__(
        self,
        calls: ApiClient,
        informer: NodeInformer,
        holder: HoldRecorder,
        *,
        devices: Callable[[], Collection[Device]],
        unguarded: bool = False,
    ) -> None:
        """Read through *calls* what *informer* lacks; *devices* returns the node's GPUs."""
        self._calls = calls
        self._informer = informer
        self._recorder = holder
        self._unguarded = unguarded
        self._devices = devices

    async def share(self, owner: Owner) -> Share:
        """Return what the container of *owner* that starts was promised; raises NotYetError."""
        try:
            pod = self._informer.pods.get(owner.uid) or await self._pod(owner)
            entry = await self._entry(owner.uid)
            return await self._wait_for_share(owner, pod, entry)
        except KubeError as error:
            raise NotYetError(f"the entry cannot be read from the API server: {error}") from error

    async def hold(self, uid: str) -> None:
        """Return once the entry of pod *uid* is recorded as held; raises NotYetError."""
        await self._recorder.hold(uid)

    async def annotate(self, owner: Owner, values: Mapping[str, str]) -> None:
        """Write annotations on the pod, if it is still the same; raises NotYetError."""
        changes = {"metadata": {"uid": owner.uid, "annotations": dict(values)}}
        try:
            await self._calls.merge_patch(_path(owner), changes)
        except KubeError as error:
            raise NotYetError(f"the pod cannot be annotated with its devices: {error}") from error

    async def _wait_for_share(
        self, owner: Owner, pod: NodePod | None, entry: Entry | None
    ) -> Share:
        """Return the share; read the pod again while an earlier container seems to run."""
        for _ in range(INIT_CHECKS):
            try:
                return self._share_of(owner, pod, entry)
            except StillRunsError:
                await asyncio.sleep(INIT_INTERVAL)
                pod = await self._pod(owner)
        return self._share_of(owner, pod, entry)

    def _share_of(self, owner: Owner, pod: NodePod | None, entry: Entry | None) -> Share:
        here = pod if pod is not None and pod.node == self._informer.name else None
        return share_of(owner, here, entry, devices=self._devices(), unguarded=self._unguarded)

    async def _pod(self, owner: Owner) -> NodePod | None:
        try:
            return parse_pod(await self._calls.get(_path(owner)))
        except NotFoundError:
            return None

    async def _entry(self, uid: str) -> Entry | None:
        """Return the entry of pod *uid*, from the API server where the informer lacks it."""
        known = self._informer.gpu_node
        entry = None if known is None else known.ledger.entry(uid)
        if entry is not None:
            return entry
        try:
            read = decode_gpu_node(await self._calls.get(f"{GPU_NODES}/{self._informer.name}"))
        except NotFoundError:
            return None
        return self._informer.learn(read).ledger.entry(uid)


def _path(owner: Owner) -> str:
    return f"/api/v1/namespaces/{owner.namespace}/pods/{owner.pod}"
