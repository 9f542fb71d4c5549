"""When an entry may be removed, so that no Binding in flight can rely on it.

The entry of a pod that is not bound expires, sooner where the pod has newer ones on other nodes
(docs/design.md, commit rule 3). The entry of a pod that has ended may be removed once the agent no
longer holds it and has seen this generation of the GPUNode in this boot (commit rule 4).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from allocator.ledger.ledger import Ledger, describes_node
from allocator.ledger.lifecycle import NodeIdentity, is_read_from_node
from allocator.model.allocation import Entry
from allocator.request.pod_summary import PodSummary

# The API server gives up a Binding after 34 s; clocks of replicas differ by some seconds.
UNBOUND_AGE: Final = timedelta(seconds=90)
MOST_PROMISES: Final = 2  # entries of one pod that is not bound yet
# Of one entry more. Its Binding, if there is one, has landed by then unless the API server is slow.
SURPLUS_AGE: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimEvidence:
    """Objects read from the API server, not from a cache, after the ledger was read."""

    pod: PodSummary | None  # with the name in the entry; None: it does not exist
    node: NodeIdentity | None  # None: it does not exist
    now: datetime  # taken before all reads
    agent_serves: bool  # our agent serves the node; without it, an ended pod is released at once
    # Other nodes have so many newer entries of the pod that it needs this one no more.
    surplus: bool = False


def may_be_reclaimable(
    since: datetime, pod: PodSummary | None, *, node: str, now: datetime, surplus: bool = False
) -> bool:
    """Say whether an entry made at *since* on *node* is worth an uncached check.

    *pod* and *surplus* come from a cache, which never suffices to remove an entry.
    """
    if pod is None or pod.over:
        return True
    age = now - since
    if surplus and not pod.node:
        return age >= SURPLUS_AGE
    return pod.node != node and age >= UNBOUND_AGE


def is_surplus(entry: Entry, node: str, others: Iterable[Ledger]) -> bool:
    """Say whether *others*, ledgers of other nodes, have all newer entries that a pod may have.

    A write that lands after its review was answered with 503 makes such an entry.
    """
    mine = entry.since, node
    entries = ((ledger.entry(entry.uid), ledger.name) for ledger in others)
    newer = sum(one is not None and (one.since, name) > mine for one, name in entries)
    return newer >= MOST_PROMISES


def is_settled(pod: PodSummary | None, *, node: str) -> bool:
    """Say whether an entry on *node* cannot become removable before *pod*, its pod, changes."""
    return pod is not None and not pod.over and pod.node == node


def is_reclaimable(ledger: Ledger, entry: Entry, evidence: ReclaimEvidence) -> bool:
    """Say whether *entry* of *ledger* may be removed from this version of it."""
    pod = evidence.pod
    if pod is None or pod.uid != entry.uid or pod.over:
        agent_serves = evidence.agent_serves and not is_read_from_node(ledger)
        return not agent_serves or _is_released(ledger, entry.uid, evidence.node)
    if pod.node == ledger.name or (pod.deleting and not pod.node):
        return False
    age = evidence.now - entry.since
    if evidence.surplus and not pod.node and entry.uid not in ledger.held:
        return age >= SURPLUS_AGE
    return age >= UNBOUND_AGE


def reclaim_reason(entry: Entry, evidence: ReclaimEvidence) -> str:
    """Return why *entry* may be removed, as records say it: what has become of its pod."""
    pod = evidence.pod
    if pod is None or pod.uid != entry.uid or pod.over:
        return "over"
    if pod.node:
        return "elsewhere"
    return "unbound" if evidence.now - entry.since >= UNBOUND_AGE else "replaced"


def possible_owner(
    ledger: Ledger, entry: Entry, pods: Mapping[str, PodSummary]
) -> PodSummary | None:
    """Return a running pod that may own *entry*, which lacks a name or a uid.

    For an entry without a uid, that is any pod on the node that has no entry; it is returned with
    the entry's uid. *pods* come from a cache; a pod missing there still gets an entry of its own by
    a late commit.
    """
    if entry.uid:
        return pods.get(entry.uid)
    uids_with_entry = ledger.entry_uids or ()
    for pod in pods.values():
        runs_here = pod.node == ledger.name and pod.extended and not pod.over
        if runs_here and pod.uid not in uids_with_entry:
            return replace(pod, uid=entry.uid)
    return None


def _is_released(ledger: Ledger, uid: str, node: NodeIdentity | None) -> bool:
    """Say whether no container of pod *uid* can still run on the GPUs of its entry.

    The agent must have reported that for this generation and this boot. An entry without a uid may
    belong to any held pod without an entry. Without a Node, or on one that our agent has left,
    nobody reports: the entry may be removed once the GPUNode is closed, because an agent that
    returns reports live instances before the GPUNode opens again.
    """
    if node is None or not (node.agent or ledger.inventory):
        return not ledger.inventory
    if not describes_node(ledger, node_uid=node.uid, boot=node.boot):
        return False
    owners = {uid} if uid else ledger.held.difference(ledger.entry_uids or ())
    return owners.isdisjoint(ledger.held) and ledger.observed_generation >= ledger.generation
