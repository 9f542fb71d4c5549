"""Drift: differences between the ledger, the agent's report and the annotations of pods.

Drift is reported, never corrected here: the entries are authoritative, but running containers keep
the GPUs they were started with.
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

MOST_PROBLEMS: Final = 8  # reported of one node at a time


class DriftKind(StrEnum):
    """How something differs from the ledger; the value is a label of a metric."""

    MISSING = "missing"  # an entry names a GPU that the node does not have
    EXTRA = "extra"  # in use without an entry
    DIFFERENT = "different"  # the pod's annotation differs from its entry
    UNREADABLE = "unreadable"  # part of the GPUNode cannot be decoded


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerDrift:
    """One difference on one node."""

    kind: DriftKind
    node: str
    uid: str  # of the pod, empty where none is known
    what: str  # a sentence for the node's owner


def find_drifts(ledger: Ledger, pods: Mapping[str, PodSummary]) -> Iterator[LedgerDrift]:
    """Yield the differences on one node; *pods* are all pods by uid."""
    for entry in ledger.entries:
        pod_name = quote(f"{entry.namespace}/{entry.pod}")
        if ledger.inventory and not _has_gpus(ledger, entry):
            what = f"pod {pod_name} has an entry for GPUs that the node does not have"
            yield _drift(DriftKind.MISSING, ledger, entry.uid, what=what)
        pod = pods.get(entry.uid)
        if (
            pod is not None
            and pod.node == ledger.name
            and pod.assignment_json
            and not _matches_annotation(pod, entry)
        ):
            what = f"annotations of pod {pod_name} differ from its entry"
            yield _drift(DriftKind.DIFFERENT, ledger, entry.uid, what=what)
    promised = {entry.uid for entry in (*ledger.entries, *ledger.unreadable)}
    for uid in sorted(ledger.held - promised):
        what = f"containers of pod {quote(uid)} may run without an entry"
        yield _drift(DriftKind.EXTRA, ledger, uid, what=what)
    for entry in ledger.unpromised:
        pod_name = quote(f"{entry.namespace}/{entry.pod}")
        yield _drift(
            DriftKind.EXTRA, ledger, entry.uid, what=f"pod {pod_name} uses GPUs without an entry"
        )
    yield from _unreadable_drifts(ledger)


def _unreadable_drifts(ledger: Ledger) -> Iterator[LedgerDrift]:
    """Yield a difference for each unreadable entry and each problem of the GPUNode."""
    for entry in ledger.unreadable:
        who = quote(f"{entry.namespace}/{entry.pod}") if entry.pod else "without a name"
        what = f"the entry of pod {who} cannot be read: the node takes no pods until it is removed"
        yield _drift(DriftKind.UNREADABLE, ledger, entry.uid, what=what)
    for problem in ledger.problems[:MOST_PROBLEMS]:
        yield _drift(DriftKind.UNREADABLE, ledger, "", what=f"malformed GPUNode: {problem}")


def _drift(kind: DriftKind, ledger: Ledger, uid: str, *, what: str) -> LedgerDrift:
    return LedgerDrift(kind=kind, node=ledger.name, uid=uid, what=what)


def _has_gpus(ledger: Ledger, entry: Entry) -> bool:
    """Say whether every GPU of *entry* exists and is in the mode of its grant."""
    boards = {gpu.uuid: gpu.board for gpu in ledger.node.gpus}
    return all(
        grant.gpu in boards and (grant.placed is None or boards[grant.gpu] is not None)
        for container in entry.containers
        for grant in container.grants
    )


def _matches_annotation(pod: PodSummary, entry: Entry) -> bool:
    """Say whether the annotation of *pod* has exactly the grants of *entry*."""
    promised: object = msgspec.json.decode(msgspec.json.encode(wire_of(entry)["containers"]))
    return parse_untrusted_json(pod.assignment_json) == promised
