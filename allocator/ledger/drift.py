"""Drift: differences between the ledger, the agent's report and the annotations of pods.

It is reported and never repaired here: entries are the authority, but containers keep running.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from allocator.ledger.commit import wire_of
from allocator.ledger.ledger import Ledger
from allocator.model.allocation import Entry
from allocator.model.untrusted import parse_untrusted_json, quote
from allocator.request.pod_summary import PodSummary

MOST_PROBLEMS: Final = 8  # that are told of one node; nobody mends more at a time


class DriftKind(StrEnum):
    """Kind of difference; a label of a metric."""

    MISSING = "missing"  # an entry for GPUs that are not there
    EXTRA = "extra"  # in use without an entry
    DIFFERENT = "different"  # annotations differ from the entry
    UNREADABLE = "unreadable"  # an entry or a GPUNode that cannot be read


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerDrift:
    """One difference on *node* about pod *uid*; ``what`` is a sentence about it."""

    kind: DriftKind
    node: str
    uid: str
    what: str


def drifts(ledger: Ledger, pods: Mapping[str, PodSummary]) -> Iterator[LedgerDrift]:
    """Yield what differs on one node; *pods* are all pods by uid."""
    for entry in ledger.entries:
        who = quote(f"{entry.namespace}/{entry.pod}")
        if ledger.inventory and not _has_gpus(ledger, entry):
            what = f"pod {who} has an entry for GPUs that the node does not have"
            yield _drift(DriftKind.MISSING, ledger, entry.uid, what=what)
        pod = pods.get(entry.uid)
        if (
            pod is not None
            and pod.node == ledger.name
            and pod.told
            and not _matches_annotation(pod, entry)
        ):
            what = f"annotations of pod {who} differ from its entry"
            yield _drift(DriftKind.DIFFERENT, ledger, entry.uid, what=what)
    promised = {entry.uid for entry in (*ledger.entries, *ledger.unread)}
    for uid in sorted(ledger.held - promised):
        what = f"containers of pod {quote(uid)} may run without an entry"
        yield _drift(DriftKind.EXTRA, ledger, uid, what=what)
    for entry in ledger.unpromised:
        who = quote(f"{entry.namespace}/{entry.pod}")
        yield _drift(
            DriftKind.EXTRA, ledger, entry.uid, what=f"pod {who} uses GPUs without an entry"
        )
    yield from _unreadable_drifts(ledger)


def _unreadable_drifts(ledger: Ledger) -> Iterator[LedgerDrift]:
    """Yield unreadable entries and other problems of a GPUNode."""
    for entry in ledger.unread:
        who = quote(f"{entry.namespace}/{entry.pod}") if entry.pod else "without a name"
        what = f"the entry of pod {who} cannot be read: the node takes no pods until it is removed"
        yield _drift(DriftKind.UNREADABLE, ledger, entry.uid, what=what)
    for problem in ledger.problems[:MOST_PROBLEMS]:
        yield _drift(DriftKind.UNREADABLE, ledger, "", what=f"malformed GPUNode: {problem}")


def _drift(kind: DriftKind, ledger: Ledger, uid: str, *, what: str) -> LedgerDrift:
    return LedgerDrift(kind=kind, node=ledger.name, uid=uid, what=what)


def _has_gpus(ledger: Ledger, entry: Entry) -> bool:
    """Say whether every GPU of *entry* exists, in the mode that it was promised in."""
    boards = {gpu.uuid: gpu.board for gpu in ledger.node.gpus}
    return all(
        grant.gpu in boards and (grant.placed is None or boards[grant.gpu] is not None)
        for held in entry.containers
        for grant in held.grants
    )


def _matches_annotation(pod: PodSummary, entry: Entry) -> bool:
    """Return whether the annotations of *pod* match *entry*."""
    promised: object = msgspec.json.decode(msgspec.json.encode(wire_of(entry)["containers"]))
    return parse_untrusted_json(pod.told) == promised
