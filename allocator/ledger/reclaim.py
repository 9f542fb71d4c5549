"""When an entry may be removed, so that no Binding in flight can rely on it.

The entry of a pod that is not bound expires (docs/design.md, commit rule 3). The entry of a pod
that is over goes once the agent does not hold it any more, and has seen this generation of the
GPUNode in this boot (commit rule 4).
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
    """What was read from the API server, without caches, after the ledger."""

    pod: PodSummary | None  # by the name in the entry; None: not found
    node: NodeIdentity | None  # None: not found
    now: datetime  # taken before all reads
    agent: bool  # our agent serves the node; without it, an ended pod is released at once


def may_be_reclaimable(
    since: datetime, pod: PodSummary | None, *, node: str, now: datetime
) -> bool:
    """Say whether an entry of *since* on *node* is worth reading everything about.

    *pod* comes from a cache, which is never enough to remove an entry.
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
    """Return a running pod that may own *entry*, which lacks a name or a uid, with its uid.

    For an entry without a uid, that is any pod on the node that has no entry. *pods* come from a
    cache; a pod that it lacks still gets its own entry by a late commit.
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
    """Say whether no container of pod *uid* can still run on the GPUs of its entry.

    The agent has to say so for this generation and this boot. An entry without a uid may belong to
    any held pod without an entry. Without a Node there is no agent: the entry may go once the
    GPUNode is closed, and an agent that returns accounts for what is live before it opens again.
    """
    if node is None:
        return not ledger.inventory
    if not is_accounted(ledger, node_uid=node.uid, boot=node.boot):
        return False
    owners = {uid} if uid else ledger.held.difference(ledger.entry_uids or ())
    return owners.isdisjoint(ledger.held) and ledger.observed_generation >= ledger.generation
