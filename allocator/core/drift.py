"""Drift: where the ledger, the agent and the pods' annotations do not tell the same story.

It is reported and never guessed away: entries are the authority, but what runs is what it is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from allocator.core.ledger import Ledger, wire_of
from allocator.core.podfacts import Seen
from allocator.core.said import said
from allocator.core.wording import quoted
from allocator.model.ledger import Entry

MOST_PROBLEMS: Final = 8  # that are told of one node; nobody mends more at a time


class Kind(StrEnum):
    """How what is there differs from what is promised; a label of a metric."""

    MISSING = "missing"  # promised, and not there
    EXTRA = "extra"  # in use, and not promised
    DIFFERENT = "different"  # told otherwise than promised
    UNREADABLE = "unreadable"  # written, and nobody can tell what


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One difference on *node* about pod *uid*; ``what`` is a sentence about it."""

    kind: Kind
    node: str
    uid: str
    what: str


def drifts(ledger: Ledger, pods: Mapping[str, Seen]) -> Iterator[Drift]:
    """Yield what differs on one node; *pods* are all pods by uid."""
    for entry in ledger.entries:
        who = quoted(f"{entry.namespace}/{entry.pod}")
        if ledger.inventory and not _there(ledger, entry):
            what = f"pod {who} is promised what the node does not have"
            yield _drift(Kind.MISSING, ledger, entry.uid, what=what)
        pod = pods.get(entry.uid)
        if pod is not None and pod.node == ledger.name and pod.told and not _told(pod, entry):
            what = f"pod {who} was told otherwise than it is promised"
            yield _drift(Kind.DIFFERENT, ledger, entry.uid, what=what)
    promised = {entry.uid for entry in (*ledger.entries, *ledger.unread)}
    for uid in sorted(ledger.held - promised):
        what = f"containers of pod {quoted(uid)} may run without a promise"
        yield _drift(Kind.EXTRA, ledger, uid, what=what)
    for entry in ledger.unpromised:
        who = quoted(f"{entry.namespace}/{entry.pod}")
        yield _drift(Kind.EXTRA, ledger, entry.uid, what=f"pod {who} uses what it was not promised")
    yield from _unreadable(ledger)


def _unreadable(ledger: Ledger) -> Iterator[Drift]:
    """Yield what of a GPUNode says nothing to anybody, and for whom."""
    for entry in ledger.unread:
        who = quoted(f"{entry.namespace}/{entry.pod}") if entry.pod else "an unnamed pod"
        what = f"the promise to {who} cannot be read: nothing is promised here until it is gone"
        yield _drift(Kind.UNREADABLE, ledger, entry.uid, what=what)
    for problem in ledger.problems[:MOST_PROBLEMS]:
        yield _drift(Kind.UNREADABLE, ledger, "", what=f"its GPUNode is odd: {problem}")


def _drift(kind: Kind, ledger: Ledger, uid: str, *, what: str) -> Drift:
    return Drift(kind=kind, node=ledger.name, uid=uid, what=what)


def _there(ledger: Ledger, entry: Entry) -> bool:
    """Say whether every GPU of *entry* exists, in the mode that it was promised in."""
    boards = {gpu.uuid: gpu.board for gpu in ledger.node.gpus}
    return all(
        grant.gpu in boards and (grant.placed is None or boards[grant.gpu] is not None)
        for held in entry.containers
        for grant in held.grants
    )


def _told(pod: Seen, entry: Entry) -> bool:
    """Say whether *pod* tells of exactly what *entry* promises."""
    promised: object = msgspec.json.decode(msgspec.json.encode(wire_of(entry)["containers"]))
    return said(pod.told) == promised
