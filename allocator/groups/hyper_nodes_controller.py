"""Keeps Volcano's HyperNodes as the tree of supernodes has them, and tells PodGroups to obey them.

Both only where the setting ``hyperNodes`` asks for it. vc-scheduler's plugin network-topology-aware
then places each job.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

import msgspec
import structlog

from allocator.groups.hyper_nodes import (
    API_VERSION,
    HIGHEST_TIER,
    SOURCE,
    SOURCE_LABEL,
    HyperNode,
    changes,
    hyper_node_specs,
)
from allocator.groups.members import POD_GROUP_JOB, GroupPod, job_size
from allocator.groups.tree import Tree
from kube.client import ApiClient
from kube.errors import ConflictError, InvalidError, NotFoundError

SWEEP_SECONDS: Final = 5.0
HYPER_NODES: Final = f"/apis/{API_VERSION}/hypernodes"
POD_GROUPS: Final = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups/{}"
_DIGITS: Final = 9  # of a number of GPUs
FIELD_MANAGER: Final = "vgpu-admission-hypernodes"
log = structlog.get_logger(__name__)


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    uid: str = ""
    labels: dict[str, str] | None = None


class _HyperNodeObject(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: dict[str, Any] = {}


class _HyperNodeList(msgspec.Struct, frozen=True):
    items: tuple[_HyperNodeObject, ...] = ()


class _PodGroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    min_resources: dict[str, str | int] | None = None
    network_topology: dict[str, Any] | None = None


class _PodGroupObject(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _PodGroupSpec = _PodGroupSpec()


_LIST: Final = msgspec.json.Decoder(_HyperNodeList)
_POD_GROUP: Final = msgspec.json.Decoder(_PodGroupObject)


class HyperNodesController:
    """Writes HyperNodes; those of other sources are left alone."""

    def __init__(
        self,
        client: ApiClient,
        *,
        tree: Callable[[], Tree | None],
        enabled: Callable[[], bool],
    ) -> None:
        """Write through *client*; *tree* is ``None`` as long as it is not known."""
        self._client = client
        self._tree = tree
        self._enabled = enabled
        self._cleared = False  # ours are gone since the setting is off
        self._taken: tuple[str, ...] = ()

    async def sweep(self) -> None:
        """Make them what they should be; raises :class:`kube.errors.KubeError`."""
        enabled = self._enabled()
        tree = self._tree() if enabled else Tree()
        if tree is None or (not enabled and self._cleared):
            return
        try:
            raw = await self._client.get(HYPER_NODES)
        except NotFoundError:  # no Volcano, or one without HyperNodes
            self._cleared = not enabled
            return
        there = [
            HyperNode(
                name=one.metadata.name,
                ours=(one.metadata.labels or {}).get(SOURCE_LABEL) == SOURCE,
                spec=one.spec,
            )
            for one in _LIST.decode(raw).items
        ]
        plan = changes(hyper_node_specs(tree), there)
        if plan.taken and plan.taken != self._taken:
            log.warning("HyperNodes of another source are in the way", names=plan.taken[:8])
        self._taken = plan.taken
        for name, spec in plan.written.items():
            await self._apply(name, spec)
        for name in plan.deleted:
            await self._delete(name)
        if plan.written or plan.deleted:
            log.info("HyperNodes", written=len(plan.written), deleted=len(plan.deleted))
        self._cleared = not enabled

    async def _apply(self, name: str, spec: object) -> None:
        body = {
            "apiVersion": API_VERSION,
            "kind": "HyperNode",
            "metadata": {"name": name, "labels": {SOURCE_LABEL: SOURCE}},
            "spec": spec,
        }
        path = f"{HYPER_NODES}/{name}"
        await self._client.apply(path, msgspec.json.encode(body), field_manager=FIELD_MANAGER)

    async def _delete(self, name: str) -> None:
        try:
            await self._client.delete(f"{HYPER_NODES}/{name}")
        except NotFoundError:
            return


class PodGroupTopologyController:
    """Tells PodGroups whose pods are one group to stay inside one HyperNode."""

    def __init__(
        self,
        client: ApiClient,
        *,
        waiting: Callable[[], Iterable[tuple[str, Collection[GroupPod]]]],
        counts: Callable[[], Collection[str]],
        enabled: Callable[[], bool],
    ) -> None:
        """Write through *client*.

        *waiting* returns jobs that have groups and pods that wait; *counts* the names of resources
        that count GPUs.
        """
        self._client = client
        self._waiting = waiting
        self._counts = counts
        self._enabled = enabled
        self._judged: frozenset[str] = frozenset()  # jobs

    async def sweep(self) -> None:
        """Judge each PodGroup once; raises :class:`kube.errors.KubeError`."""
        if not self._enabled():
            self._judged = frozenset()
            return
        jobs = {job: pods for job, pods in self._waiting() if POD_GROUP_JOB in job}
        for job, pods in jobs.items():
            if job not in self._judged and await self._judge(job, job_size(pods)):
                self._judged |= {job}
        self._judged &= jobs.keys()

    async def _judge(self, job: str, size: int) -> bool:
        """Write the topology where it is due; return false where it has to be tried again.

        A PodGroup that has one already keeps it. So does one with more GPUs than one group.
        """
        namespace, _, name = job.partition(POD_GROUP_JOB)
        path = POD_GROUPS.format(namespace, name)
        try:
            found = _POD_GROUP.decode(await self._client.get(path))
        except NotFoundError:
            return True
        except msgspec.MsgspecError:
            log.warning("PodGroup not read", job=job)
            return True
        spec = found.spec
        gpus = _gpus(spec.min_resources or {}, self._counts())
        if spec.network_topology is not None or not 0 < gpus <= size:
            return True
        topology = {"mode": "hard", "highestTierAllowed": HIGHEST_TIER}
        change = {"metadata": {"uid": found.metadata.uid}, "spec": {"networkTopology": topology}}
        try:
            await self._client.merge_patch(path, change)
        except (ConflictError, InvalidError, NotFoundError):
            return False
        log.info("PodGroup is kept inside one HyperNode", job=job)
        return True


def _gpus(resources: dict[str, str | int], counts: Collection[str]) -> int:
    """Return the GPUs of *resources*, 0 where a number cannot be read."""
    texts = [str(resources[name]) for name in counts if name in resources]
    return sum(
        int(text) for text in texts if text.isascii() and text.isdigit() and len(text) <= _DIGITS
    )
