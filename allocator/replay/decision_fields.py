"""What a decision said, in the fields of its record: the same words when it is decided again."""

from collections.abc import Iterable
from typing import Any, Final

from allocator.model.allocation import ContainerGrants, Grant
from allocator.model.decision import Findings, ModeChoice

MOST_FINDINGS: Final = 8  # of one decision


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
            {"reason": str(one.reason), "text": str(one), "field": one.field}
            for one in findings.all[:MOST_FINDINGS]
        ],
    }


def given_fields(containers: Iterable[ContainerGrants]) -> list[dict[str, Any]]:
    """Return what containers are given, as the field ``containers`` of a bind's record."""
    return [
        {"name": one.name, "devices": [_device_fields(grant) for grant in one.grants]}
        for one in containers
    ]


def _device_fields(grant: Grant) -> dict[str, Any]:
    placed = grant.placed
    fields: dict[str, Any] = {
        "gpu": grant.gpu,
        "mode": str(grant.mode),
        "memory_mib": grant.memory,
        "cores_percent": grant.cores,
    }
    if placed is not None:
        fields |= {"profile": placed.profile.name, "start": placed.start}
    return fields
