"""The decision record: one JSON line per decision, without values of variables.

Values of variables are never recorded, only which pointers changed; text that tenants wrote
is cut and escaped.
"""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from allocator.model.decision import Finding
from allocator.model.request import ContainerRequest
from allocator.model.untrusted import all_shown, escaped
from allocator.model.value import Value
from webhook.admission.messages import word
from webhook.admission.outcome import GpusHidden, Outcome, Refused, Rewritten, Untouched
from webhook.review.admission_review import Request
from webhook.review.json_patch import Operation
from webhook.review.pod_schema import Metadata, OwnerReference

_MOST_FINDINGS = 8
_MOST_CHANGES = 50
_MOST_OWNERS = 4
_MOST_GROUPS = 16
_NOBODY = Metadata()


class DecisionContext(Value, frozen=True):
    """What surrounded a decision: when, how long, by which code, on which snapshot.

    ``at`` is RFC 3339 in UTC, ``seconds`` the duration, ``age`` the snapshot's age in seconds.
    """

    at: str
    seconds: float
    version: str
    snapshot: str
    settings: str
    age: float | None = None
    step: str = "mutate"


def record(
    request: Request,
    outcome: Outcome,
    circumstances: DecisionContext,
    *,
    operations: Sequence[Operation] = (),
) -> dict[str, Any]:
    """Return the whole record of a mutating pass, ready to be written as one line."""
    return {
        "event": "decision",
        "at": circumstances.at,
        "pass": circumstances.step,
        **_identity(request),
        "decision": word(outcome),
        **_reasons(outcome),
        "changes": _changes(operations),
        "snapshot": {"version": circumstances.snapshot, "age_seconds": circumstances.age},
        "settings": circumstances.settings,
        "version": circumstances.version,
        "duration_seconds": circumstances.seconds,
    }


def confirmation_record(
    request: Request, outcome: Outcome, circumstances: DecisionContext
) -> dict[str, Any]:
    """Return the short record of a validating pass, which knows the final name and UID."""
    return {
        "event": "confirmed" if not isinstance(outcome, Refused) else "decision",
        "at": circumstances.at,
        "pass": circumstances.step,
        **_identity(request),
        "decision": word(outcome),
        **_reasons(outcome),
        "duration_seconds": circumstances.seconds,
    }


def audit(request: Request, outcome: Outcome) -> dict[str, str]:
    """Return the short values for the API server's audit log."""
    values = {"decision": word(outcome), "requester": escaped(request.user_info.username)}
    match outcome:
        case Rewritten(digest=digest, choice=choice):
            values["digest"] = digest
            values["mode"] = str(choice.mode)
        case Refused(findings=findings, digest=digest):
            values["reason"] = str(findings.first.reason)
            if digest:
                values["digest"] = digest
        case Untouched() | GpusHidden():
            pass
        case _:
            assert_never(outcome)
    return values


def _changes(operations: Sequence[Operation]) -> list[str]:
    """Return which pointers change; a list that grows by twenty entries is named once."""
    changed = {op["path"]: op["op"] for op in operations}
    return [f"{verb} {path}" for path, verb in changed.items()][:_MOST_CHANGES]


def _identity(request: Request) -> dict[str, Any]:
    """Return whose request it is."""
    metadata = request.object.metadata if request.object is not None else _NOBODY
    user, owners = request.user_info, metadata.owner_references or ()
    names = (
        request.uid,
        request.operation,
        request.namespace,
        request.name or metadata.name or "",
        metadata.generate_name or "",
        metadata.uid or "",
        user.username,
    )
    groups = (user.groups or ())[:_MOST_GROUPS]
    review, operation, namespace, name, generated, uid, username = all_shown(names)
    return {
        "review": review,
        "operation": operation,
        "namespace": namespace,
        "name": name,
        "generate_name": generated,
        "pod_uid": uid,
        "owners": [_owner(owner) for owner in owners[:_MOST_OWNERS]],
        "user": username,
        "groups": all_shown(groups),
    }


def _owner(owner: OwnerReference) -> dict[str, str]:
    kind, name, uid = all_shown((owner.kind, owner.name, owner.uid))
    return {"kind": kind, "name": name, "uid": uid}


def _reasons(outcome: Outcome) -> Mapping[str, Any]:
    match outcome:
        case Untouched(warnings=warnings) | GpusHidden(warnings=warnings):
            return {"warnings": list(warnings)}
        case Refused(findings=findings, digest=digest, warnings=warnings):
            return {
                "digest": digest,
                "reason": findings.first.reason,
                "findings": [_finding(f) for f in findings.all[:_MOST_FINDINGS]],
                "warnings": list(warnings),
            }
        case Rewritten():
            choice, request = outcome.choice, outcome.request
            return {
                "digest": outcome.digest,
                "vocabulary": request.vocabulary,
                "mode": str(choice.mode),  # an encoder takes far longer over an enum
                "mode_source": str(choice.source),
                "mode_asked": outcome.asked.mode,
                "costs_per_mille": choice.costs,
                "rule": choice.why,
                "containers": [_asked_fields(container) for container in request.containers],
                "constraints": all_shown(request.constraints),
                "priority": request.priority.name.lower(),
                "warnings": list(outcome.warnings),
            }
        case _:
            assert_never(outcome)


def _finding(finding: Finding) -> dict[str, str]:
    return {"reason": finding.reason, "field": finding.field, "text": str(finding)}


def _asked_fields(container: ContainerRequest) -> dict[str, Any]:
    return {
        "name": escaped(container.name),
        "stage": str(container.stage),
        "count": container.count,
        "memory_mib": container.memory,
        "memory_percent": container.percent,
        "cores_percent": container.cores,
    }
