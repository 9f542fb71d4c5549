"""Keeps Volcano's HyperNodes as the tree of supernodes has them, and tells PodGroups to obey them.

Both only where the setting ``hyperNodes`` asks for it. vc-scheduler's plugin network-topology-aware
then places each job.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import msgspec
import structlog

from allocator.catalog.keys import GROUP_LABEL
from allocator.groups.hyper_nodes import (
    API_VERSION,
    HIGHEST_TIER,
    SOURCE,
    SOURCE_LABEL,
    HyperNode,
    changes,
    hyper_node_specs,
)
from allocator.groups.members import POD_GROUP_JOB, Group, GroupPod, groups_of, job_size
from allocator.groups.tree import Tree
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import ApiError, ConflictError, InvalidError, NotFoundError

SWEEP_SECONDS: Final = 5.0
# Where vc-scheduler 1.14 sees a policy before the labels of all pods, it may bind some pods of a
# group and take the whole cluster for the HyperNode of that group. No rule allows that one, so it
# never places the rest. It works out the HyperNode anew when the policy changes.
PARTLY_BOUND_SECONDS: Final = 5.0  # after which it is told again of a group that is bound in part
REPEAT_SECONDS: Final = 30.0  # between two times, as long as that lasts
HYPER_NODES: Final = f"/apis/{API_VERSION}/hypernodes"
POD_GROUPS: Final = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups/{}"
PODS: Final = "/api/v1/namespaces/{}/pods/{}"
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


class _SubGroupPolicy(msgspec.Struct, frozen=True):
    name: str = ""


class _PodGroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    min_member: int | None = None
    network_topology: dict[str, Any] | None = None
    sub_group_policy: tuple[_SubGroupPolicy, ...] | None = None


class _PodGroupObject(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _PodGroupSpec = _PodGroupSpec()


_NOTHING: Final[dict[str, Any]] = {"networkTopology": None, "subGroupPolicy": None}
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
        except ApiError as error:
            # The component hyper-nodes grants the right. Without it nothing can be removed.
            if enabled or error.status != HTTPStatus.FORBIDDEN:
                raise
            self._cleared = True
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


@dataclass(slots=True)
class _Known:
    """What is known of a job that waits."""

    judged: frozenset[str] = frozenset()  # the uids of its pods then
    has_topology: bool = False  # its PodGroup has one of ours
    groups: list[frozenset[str]] = field(default_factory=list)  # the uids of each labelled group
    due: float | None = None  # monotonic seconds when to tell again; None: no group bound in part


class PodGroupTopologyController:
    """Tells vc-scheduler which pods of a PodGroup must be inside one HyperNode.

    Where the PodGroup is one group, its topology says so. Where it is several, a label on each pod
    names its group, and a policy of the PodGroup keeps pods with equal labels together.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        waiting: Callable[[], Iterable[tuple[str, Collection[GroupPod]]]],
        counts: Callable[[], Collection[str]],
        enabled: Callable[[], bool],
        clock: Clock = SYSTEM,
    ) -> None:
        """Write through *client*.

        *waiting* returns jobs that have groups and pods that wait; *counts* the names of resources
        that count GPUs.
        """
        self._clock = clock
        self._client = client
        self._waiting = waiting
        self._counts = counts
        self._enabled = enabled
        self._known: dict[str, _Known] = {}  # by job

    async def sweep(self) -> None:
        """Judge each PodGroup, again with new pods; raises :class:`kube.errors.KubeError`."""
        if not self._enabled():
            self._known = {}
            return
        jobs = {job: pods for job, pods in self._waiting() if POD_GROUP_JOB in job}
        self._known = {job: self._known.get(job) or _Known() for job in jobs}
        for job, pods in jobs.items():
            known = self._known[job]
            uids = frozenset(pod.uid for pod in pods)
            again = uids <= known.judged
            if again and not self._is_due(known, pods):
                continue
            if again:
                log.warning("group bound in part, vc-scheduler is told again", job=job)
            known.judged = frozenset()  # a failure here is tried again
            if await self._judge(job, pods, again=again):
                known.judged = uids

    def _is_due(self, known: _Known, pods: Collection[GroupPod]) -> bool:
        """Say whether to tell again now; the time begins when a group is first bound in part."""
        if not _is_partly_bound(known.groups, pods):
            known.due = None
            return False
        now = self._clock.monotonic()
        if known.due is None:
            known.due = now + PARTLY_BOUND_SECONDS
        if now < known.due:
            return False
        known.due = now + REPEAT_SECONDS
        return True

    async def _judge(self, job: str, pods: Collection[GroupPod], *, again: bool) -> bool:
        """Write what is due; return false where it has to be tried again.

        *again* withdraws first what was told before.
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
        known = self._known[job]
        if _is_of_others(known, found.spec):
            return True
        wanted, labelled = _wanted(pods, self._counts(), found.spec.min_member or 0)
        known.groups = [frozenset(pod.uid for pod in group.members) for group in labelled]
        metadata = {"uid": found.metadata.uid}
        try:
            if again:
                await self._client.merge_patch(path, {"metadata": metadata, "spec": _NOTHING})
            else:
                for group in labelled:
                    await self._label(namespace, group)
            if again or _differs(found.spec, wanted):
                await self._client.merge_patch(path, {"metadata": metadata, "spec": wanted})
                log.info("network topology of a PodGroup", job=job, spec=wanted)
        except (ConflictError, InvalidError, NotFoundError):
            return False
        known.has_topology = wanted["networkTopology"] is not None
        return True

    async def _label(self, namespace: str, group: Group) -> None:
        for pod in group.members:
            metadata = {"uid": pod.uid, "labels": {GROUP_LABEL: str(group.number)}}
            await self._client.merge_patch(PODS.format(namespace, pod.name), {"metadata": metadata})


def _is_partly_bound(groups: Iterable[frozenset[str]], pods: Iterable[GroupPod]) -> bool:
    """Say whether of one of *groups*, by uid, some *pods* have a node and others wait."""
    bound, waiting = set[str](), set[str]()
    for pod in pods:
        (bound if pod.node else waiting).add(pod.uid)
    return any(group & bound and group & waiting for group in groups)


def _is_of_others(known: _Known, spec: _PodGroupSpec) -> bool:
    """Say whether somebody else wrote a topology, who knows better."""
    policies = spec.sub_group_policy or ()
    if any(policy.name != SOURCE for policy in policies):
        return True
    return spec.network_topology is not None and not known.has_topology


def _wanted(
    pods: Collection[GroupPod], counts: Collection[str], min_member: int
) -> tuple[dict[str, Any], list[Group]]:
    """Return what a PodGroup's spec should say of topology, and the groups to be labelled.

    *counts* are the resources that count GPUs; a pod may ask in several vocabularies at once.
    Several groups are told only once all are complete: Volcano places no part of one.
    """
    gpus = max((n for pod in pods for name, n in pod.limits if name in counts), default=0)
    hard = {"mode": "hard", "highestTierAllowed": HIGHEST_TIER}
    each = job_size(pods) // gpus if gpus else 0
    if each < 2:  # noqa: PLR2004 -- a pod is never apart from itself
        return dict(_NOTHING), []
    if max(len(pods), min_member) <= each:
        return _NOTHING | {"networkTopology": hard}, []
    groups = groups_of(pods, gpus=gpus)
    if len(pods) < min_member or any(len(group.members) != each for group in groups):
        return dict(_NOTHING), []
    policy = {
        "name": SOURCE,
        "matchLabelKeys": [GROUP_LABEL],
        "subGroupSize": each,
        "networkTopology": hard,
    }
    return _NOTHING | {"subGroupPolicy": [policy]}, groups


def _differs(spec: _PodGroupSpec, wanted: Mapping[str, Any]) -> bool:
    """Say whether a PodGroup has what is *wanted* not yet, or something else."""
    has = spec.network_topology is not None, bool(spec.sub_group_policy)
    return has != (wanted["networkTopology"] is not None, bool(wanted["subGroupPolicy"]))
