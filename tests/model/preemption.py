"""What must hold of every answer about preemption, however late the replica's watches are (S15).

Judged by what the replica was sent, by the code that commits, and by nothing that the answer
itself went by.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from zlib import crc32

import orjson

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.ledger.assign import PodClaim
from allocator.placement.choose import PlacementPolicy
from allocator.scheduling.preempt_node import PreemptionNode, preemption_node
from tests.builders.gpunodes import NOON, Json
from tests.model.cluster import over
from tests.model.invariants import BrokenError
from tests.model.replica_caches import Sight
from webhook.binding.scheduler_pod import unbound_pod

Named = Mapping[str, Sequence[str]]  # uids by node
_NOBODY: frozenset[str] = frozenset()
_SOON = 50.0  # seconds: so long everybody waits for who ends, however wrong their clocks are


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """One node of a question, as far as the replica that was asked knows it.

    ``coming`` are the holders whose room is coming anyway: they were deleted, are over, or gone.
    ``soon`` are those of them for whom that is not long ago, so that they are waited for.
    """

    name: str
    there: PreemptionNode
    coming: frozenset[str]
    soon: frozenset[str]
    proposed: frozenset[str]
    named: frozenset[str]

    @property
    def waits(self) -> bool:
        """Say whether room is coming, and is enough; who holds no GPU is there for other ends."""
        ours = self.proposed <= self.there.entries.keys()
        return ours and not self.there.fits(_NOBODY) and self.there.fits(self.soon)

    @property
    def evicted(self) -> frozenset[str]:
        return self.named - self.coming


def judge(sight: Sight, pod: Json, *, proposals: Named, named: Named) -> None:
    """Raise :class:`BrokenError` where an answer evicts whom it must not."""
    for found in _faults(sight, pod, proposals=proposals, named=named):
        raise BrokenError(f"S15 {pod['metadata']['uid']}: {found}")


def judge_budgets(pod: Json, *, before: Mapping[str, int], after: Mapping[str, int]) -> None:
    """Raise :class:`BrokenError` where an answer breaks more disruption budgets than was proposed.

    Both are counts by node.
    """
    for name, count in after.items():
        if count > before.get(name, 0):
            raise BrokenError(f"S15 {pod['metadata']['uid']}: breaks {count} budgets on {name}")


def guarded(uid: str) -> bool:
    """Say whether the eviction of a pod breaks a disruption budget: of every other one it does."""
    return bool(crc32(uid.encode()) & 1)


def _faults(sight: Sight, pod: Json, *, proposals: Named, named: Named) -> Iterator[str]:
    known = _known(sight)
    priorities = {uid: found["spec"]["priority"] for uid, found in known.items()}
    for uid in (uid for uids in named.values() for uid in uids):
        if priorities.get(uid, -1) >= pod["spec"]["priority"]:
            yield f"{uid} of priority {priorities[uid]} is evicted for {pod['spec']['priority']}"
    nodes = list(_nodes(sight, pod, proposals=proposals, named=named))
    if any(node.waits for node in nodes) and any(node.evicted for node in nodes):
        yield f"evicts {dict(named)}, and room is coming"
    for node in nodes:
        yield from _needless(node)


def _needless(node: _Node) -> Iterator[str]:
    """Yield those who could stay; what the scheduler itself proposed may have other reasons."""
    if node.named == node.proposed:
        return
    holders = node.evicted & node.there.entries.keys()
    if not node.proposed <= node.there.entries.keys():
        holders -= node.proposed
    for uid in holders:
        if node.there.fits(node.soon | holders - {uid}):
            yield f"{uid} need not leave {node.name}"


def _nodes(sight: Sight, pod: Json, *, proposals: Named, named: Named) -> Iterator[_Node]:
    asking = unbound_pod(orjson.dumps(pod), VOCABULARIES)
    known, index = _known(sight), sight.index()
    if isinstance(asking.claim, PodClaim):
        for name, proposed in proposals.items():
            there = preemption_node(
                index, name, pod=asking, claim=asking.claim, policy=PlacementPolicy()
            )
            if there is None:
                continue
            coming = frozenset(uid for uid in there.entries if _leaves(known.get(uid)))
            yield _Node(
                name=name,
                there=there,
                coming=coming,
                soon=frozenset(uid for uid in coming if _lately(sight, uid, known.get(uid))),
                proposed=frozenset(proposed),
                named=frozenset(named.get(name, ())),
            )


def _known(sight: Sight) -> Mapping[str, Json]:
    """Return the pods by uid as the extender's watch was last sent them."""
    (stream,) = sight.feeds[1].streams.values()
    return stream.sent


def _leaves(pod: Json | None) -> bool:
    return pod is None or over(pod) or "deletionTimestamp" in pod["metadata"]


def _lately(sight: Sight, uid: str, pod: Json | None) -> bool:
    """Say whether the replica was sent not long ago that a pod ends; a deletion says when."""
    feed = sight.feeds[1]
    now = feed.world.loop.time()
    if pod is None or over(pod):
        return now - feed.ended.get(uid, -inf) < _SOON
    deleted = datetime.fromisoformat(pod["metadata"]["deletionTimestamp"])
    return NOON + timedelta(seconds=now) - deleted < timedelta(seconds=_SOON)
