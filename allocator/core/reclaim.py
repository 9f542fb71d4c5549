"""Reclaiming: when a promise may be taken back, by the rules that no Binding can slip through.

DESIGN.md §5: a promise to a pod that is not bound ages (rule 3); one to a pod that is over goes
when the agent no longer holds it, and has seen the version that says so (rule 4).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec

from allocator.core.ledger import Ledger
from allocator.model.ledger import Entry

# The API server gives a Binding up after 34 s; clocks of replicas are some seconds apart.
AGE: Final = timedelta(seconds=90)
_OVER: Final = frozenset({"Succeeded", "Failed"})


class _Metadata(msgspec.Struct, rename="camel", gc=False):
    uid: str
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, rename="camel", gc=False):
    node_name: str = ""


class _Status(msgspec.Struct, gc=False):
    phase: str = ""


class _Pod(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_POD: Final = msgspec.json.Decoder(_Pod)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What decides about a pod's promises; ``node`` is empty until it is bound."""

    uid: str
    node: str
    deleting: bool
    over: bool


def seen(raw: bytes) -> Seen:
    """Read a pod that the API server sent; raises ``ValueError`` where it is none."""
    found = _POD.decode(raw)
    return Seen(
        uid=found.metadata.uid,
        node=found.spec.node_name,
        deleting=found.metadata.deletion_timestamp is not None,
        over=found.status.phase in _OVER,
    )


def doubtful(since: datetime, pod: Seen | None, *, node: str, now: datetime) -> bool:
    """Say whether a promise made *since* on *node* is worth a closer look.

    *pod* comes from a cache, so nothing may be taken back on its word.
    """
    if pod is None or pod.over:
        return True
    return pod.node != node and now - since >= AGE


def reclaimable(
    ledger: Ledger, entry: Entry, pod: Seen | None, *, now: datetime, agent: bool
) -> bool:
    """Say whether *entry* of *ledger* may be removed from this version of it.

    *pod* was read after *ledger*, past all caches, by the entry's name; ``None`` was not found.
    *now* was taken before both.
    *agent* says that an agent of ours serves the node: without one a pod is over when it is gone.
    """
    if pod is None or pod.uid != entry.uid or pod.over:
        return not agent or _released(ledger, entry.uid)
    if pod.node == ledger.name or (pod.deleting and not pod.node):
        return False
    return now - entry.since >= AGE


def _released(ledger: Ledger, uid: str) -> bool:
    """Say whether the agent has seen this very ledger and holds nothing of pod *uid*."""
    return uid not in ledger.held and ledger.observed_generation >= ledger.generation
