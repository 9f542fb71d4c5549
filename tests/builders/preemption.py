"""Preemption for tests: the pods on a node, the preemptor, and the proposal of the scheduler."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType

import msgspec

from allocator.extender.index import Index, IndexBuilder
from allocator.extender.pod import SchedulingPod
from allocator.extender.schema import ExtenderPreemptionArgs, MetaPod, MetaVictims
from allocator.ledger.assign import PodClaim
from allocator.model.allocation import Grant
from allocator.model.gpu import Node
from allocator.model.request import PodRequest
from allocator.placement.choose import PlacementPolicy
from allocator.scheduling.preempt import select_victims
from tests.builders.gpunodes import entry

Named = dict[str, list[str]]

RAW = b"{}"  # the preemptor as JSON; select_victims gets it decoded as well


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """A pod with a ledger entry."""

    uid: str
    grants: tuple[tuple[int, Grant], ...]  # each with the index of its GPU
    priority: int = 0
    created: str = "2026-11-21T12:00:00Z"
    deleting: bool = False
    leaves: datetime | None = None
    over: bool = False
    gone: bool = False  # its object is deleted
    bound: bool = True

    @property
    def stays(self) -> bool:
        return not (self.deleting or self.over or self.gone)


def resident(uid: str, *grants: tuple[int, Grant], **fields: object) -> Resident:
    """Build a resident of priority 0 unless *fields* say otherwise."""
    return replace(Resident(uid=uid, grants=grants), **fields)  # type: ignore[arg-type]  # a test's


def preemptor(
    request: PodRequest, *, priority: int = 100, nominated: str = "", uid: str = "high"
) -> SchedulingPod:
    """Build the pod that preempts others."""
    return SchedulingPod(
        uid=uid,
        namespace="team-a",
        name=uid,
        priority=priority,
        nominated=nominated,
        claim=PodClaim(uid=uid, request=request),
    )


def cluster(
    *sites: tuple[Node, Iterable[Resident]], nominees: Iterable[SchedulingPod] = ()
) -> Index:
    """Return the index of nodes without grants of their own, with the pods on them."""
    indexer = IndexBuilder()
    pods: dict[str, SchedulingPod] = {}
    for node, residents in sites:
        entries = []
        gpus = list(node.gpus)
        for one in residents:
            grants = [msgspec.structs.replace(g, gpu=gpus[i].uuid) for i, g in one.grants]
            entries.append(entry(one.uid, *grants))
            for (i, _), grant in zip(one.grants, grants, strict=True):
                gpus[i] = replace(gpus[i], grants=(*gpus[i].grants, grant))
            if not one.gone:
                pods[one.uid] = _pod(one, node.name)
        indexer.put(replace(node, gpus=tuple(gpus)), entries)
    nominations: dict[str, tuple[SchedulingPod, ...]] = {}
    for pod in nominees:
        pods[pod.uid] = pod
        nominations[pod.nominated] = (*nominations.get(pod.nominated, ()), pod)
    index = indexer.index(version="1", complete=True)
    return replace(index, pods=MappingProxyType(pods), nominations=MappingProxyType(nominations))


def _pod(one: Resident, node: str) -> SchedulingPod:
    return SchedulingPod(
        uid=one.uid,
        namespace="team-a",
        name=one.uid,
        priority=one.priority,
        created=one.created,
        node=node if one.bound else "",
        deleting=one.deleting,
        deadline=one.leaves,
        over=one.over,
    )


def offer(uids: Iterable[str] = (), violations: int = 0) -> MetaVictims:
    """Write what the scheduler proposes for one node."""
    pods = tuple(MetaPod(uid=uid) for uid in uids)
    return MetaVictims(pods=pods, num_pdb_violations=violations)


def args(**offers: MetaVictims) -> ExtenderPreemptionArgs:
    """Write the question of a scheduler that sends names only."""
    return ExtenderPreemptionArgs(pod=RAW, node_name_to_meta_victims=offers)  # type: ignore[arg-type]  # bytes are raw JSON


def named(index: Index, pod: SchedulingPod, question: ExtenderPreemptionArgs) -> Named:
    """Return the uids of the victims in the answer, by node."""
    answer = select_victims(
        index, pod, question, policy=PlacementPolicy()
    ).node_name_to_meta_victims
    return {name: [meta.uid for meta in one.pods or ()] for name, one in answer.items()}
