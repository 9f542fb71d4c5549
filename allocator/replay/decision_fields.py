"""What a decision said, in the fields of its record: the same words when it is decided again."""

from collections.abc import Iterable
from datetime import UTC
from typing import Any, Final

from allocator.model.allocation import ContainerGrants, Entry, Grant
from allocator.model.decision import Findings, ModeChoice
from allocator.model.untrusted import LONGEST_NAME, all_shown, escaped, inert

MOST_FINDINGS: Final = 8  # of one decision
LONGEST_TEXT: Final = (
    1000  # characters of a sentence of ours, which quotes 64 of a tenant's at once
)


def mode_fields(choice: ModeChoice) -> dict[str, Any]:
    """Return the mode and why, as fields of an admission record."""
    return {
        "mode": str(choice.mode),  # an encoder takes far longer over an enum
        "mode_source": str(choice.source),
        "costs_per_mille": choice.costs,
        "rule": choice.why,
    }


def refusal_fields(findings: Findings) -> dict[str, Any]:
    """Return the reasons of a refusal, as fields of an admission record."""
    return {
        "reason": str(findings.first.reason),
        "findings": [
            {
                "reason": str(one.reason),
                "text": inert(str(one)[:LONGEST_TEXT]),
                "field": escaped(one.field, LONGEST_NAME),
            }
            for one in findings.all[:MOST_FINDINGS]
        ],
    }


def given_fields(containers: Iterable[ContainerGrants]) -> list[dict[str, Any]]:
    """Return what containers are given, as the field ``containers`` of a bind's record."""
    return [
        {
            "name": escaped(one.name, LONGEST_NAME),
            "devices": [device_fields(grant) for grant in one.grants],
        }
        for one in containers
    ]


def released_fields(node: str, entry: Entry, why: str) -> dict[str, Any]:
    """Return the fields of the record of *entry*, which was removed from the ledger of *node*."""
    names = (node, entry.namespace, entry.pod, entry.uid)
    shown_node, namespace, pod, uid = all_shown(names, LONGEST_NAME)
    return {
        "node": shown_node,
        "namespace": namespace,
        "pod": pod,
        "pod_uid": uid,
        "why": why,
        "since": entry.since.astimezone(UTC).isoformat(timespec="milliseconds"),
        "containers": given_fields(entry.containers),
    }


def device_fields(grant: Grant) -> dict[str, Any]:
    """Return *grant* as one of the ``devices`` of a record."""
    placed = grant.placed
    fields: dict[str, Any] = {
        "gpu": escaped(grant.gpu),
        "mode": str(grant.mode),
        "memory_mib": grant.memory,
        "cores_percent": grant.cores,
    }
    if placed is not None:
        fields |= {"profile": escaped(placed.profile.name), "start": placed.start}
    return fields
