"""Reclaiming: when a promise may be taken back, by the rules that no Binding can slip through.

A promise to a pod that is not bound ages (docs/design.md, commit rule 3). One to a pod that is over
goes when the agent no longer holds it, and has seen the version that says so under the boot of now
(commit rule 4).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from allocator.ledger.ledger import Ledger, is_accounted
from allocator.ledger.lifecycle import NodeIdentity
from allocator.model.allocation import Entry
from allocator.request.pod_summary import PodSummary

# The API server gives a Binding up after 34 s; clocks of replicas are some seconds apart.
UNBOUND_AGE: Final = timedelta(seconds=90)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimEvidence:
    """What was read after the ledger, past all caches; ``None`` was not found.

    *pod* was read by the entry's name, *machine* is the Node. *now* was taken before all reads.
    *agent* says that an agent of ours serves the node: without one a pod is over when it is gone.
    """

    pod: PodSummary | None
    node: NodeIdentity | None
    now: datetime
    agent: bool


def may_be_reclaimable(
    since: datetime, pod: PodSummary | None, *, node: str, now: datetime
) -> bool:
    """Say whether a promise made *since* on *node* is worth a closer look.

    *pod* comes from a cache, so nothing may be taken back on its word.
    """
    if pod is None or pod.over:
        return True
    return pod.node != node and now - since >= UNBOUND_AGE


def is_reclaimable(ledger: Ledger, entry: Entry, evidence: ReclaimEvidence) -> bool:
    """Say whether *entry* of *ledger* may be removed from this version of it."""
    pod = evidence.pod
    if pod is None or pod.uid != entry.uid or pod.over:
        return not evidence.agent or _is_released(ledger, entry.uid, evidence.node)
    if pod.node == ledger.name or (pod.deleting and not pod.node):
        return False
    return evidence.now - entry.since >= UNBOUND_AGE


def possible_owner(
    ledger: Ledger, entry: Entry, pods: Mapping[str, PodSummary]
) -> PodSummary | None:
    """Return a living pod that *entry*, which names none, may be of, as if it were the one.

    Of an entry without a uid that is any pod on the node that has no other. *pods* come from a
    cache: whoever is missed there is on its way here, and gets its promise late.
    """
    if entry.uid:
        return pods.get(entry.uid)
    written = ledger.entry_uids or ()
    for pod in pods.values():
        stays = pod.node == ledger.name and pod.extended and not pod.over
        if stays and pod.uid not in written:
            return replace(pod, uid=entry.uid)
    return None


def _is_released(ledger: Ledger, uid: str, node: NodeIdentity | None) -> bool:
    """Say whether nothing of pod *uid* can run any more on what it was promised.

    An entry without a uid may be of anybody who is held and has no other.
    The agent says so of this very ledger and this boot. Without a Node there is nobody to say it:
    then nothing else may be promised either, until an agent has accounted for what is live.
    """
    if node is None:
        return not ledger.inventory
    if not is_accounted(ledger, node_uid=node.uid, boot=node.boot):
        return False
    owners = {uid} if uid else ledger.held.difference(ledger.entry_uids or ())
    return owners.isdisjoint(ledger.held) and ledger.observed_generation >= ledger.generation
