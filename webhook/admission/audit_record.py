"""The records of decisions about pods, by the schema of :mod:`allocator.audit.record`.

A value of the patch is recorded where it is wholly ours; text that tenants wrote is cut and
escaped.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, assert_never

import orjson
from msgspec.structs import replace

from allocator.audit.record import SCHEMA
from allocator.audit.record_source import RecordStamp
from allocator.catalog.keys import ASKED_KEY
from allocator.model.request import ContainerRequest, Stage
from allocator.model.untrusted import LONGEST_NAME, all_shown, escaped, inert, is_plain
from allocator.model.value import Value
from allocator.replay.decision_fields import LONGEST_TEXT, mode_fields, refusal_fields
from allocator.replay.request_fields import encode_request
from webhook.admission.messages import word
from webhook.admission.outcome import REQUESTING, GpusHidden, Outcome, Refused, Rewritten, Untouched
from webhook.review.admission_review import Request, UserInfo
from webhook.review.json_patch import (
    ANNOTATIONS,
    ASKED_PATH,
    EncodedPatch,
    Operation,
    joined_array,
)
from webhook.review.pod_schema import Metadata

_MOST_CHANGES = 50
_LARGEST_CHANGES = 8 * 1024  # bytes, beyond which only the first are recorded
_BACKSLASH: Final = ord("\\")
_DELETE: Final = 0x7F  # the only ASCII character that JSON leaves and nobody sees
MOST_OWNERS = 4
_FIRST_OWNER = 3  # its place among the texts of a record
MOST_GROUPS = 16
MOST_WARNINGS = 16
_MOST_CONTAINERS = 64
_NOBODY = Metadata()
_ASKED_SHOWN: Final = orjson.dumps({"op": "add", "path": ASKED_PATH})
_ASKED_NEXT: Final = b"," + _ASKED_SHOWN
_STAGES = {Stage.INIT: "init", Stage.SIDECAR: "sidecar", Stage.APP: "main"}


class DecisionContext(Value, frozen=True):
    """What surrounded a decision: when, how long, by which code, on which snapshot.

    ``seconds`` is the duration, ``age`` the snapshot's age in seconds; ``snapshot`` and
    ``settings`` are digests.
    """

    stamp: RecordStamp
    seconds: float
    settings: str
    snapshot: str = ""
    age: float | None = None
    step: str = "mutate"


def record(
    request: Request,
    outcome: Outcome,
    context: DecisionContext,
    *,
    patch: EncodedPatch | None = None,
) -> dict[str, Any]:
    """Return the whole record of a mutating pass, ready to be written as one line."""
    fields = own_fields(request, context)
    fields.update(_circumstances(request, outcome, context))
    fields.update(_reasons(outcome))
    if patch is not None:
        fields["changes"] = orjson.Fragment(changes_json(patch))
    if isinstance(outcome, REQUESTING) and outcome.recorded is not None:
        fields["asked"] = encode_request(outcome.recorded)
    if context.snapshot:
        fields["snapshot"] = context.snapshot
    fields["settings"] = context.settings
    return fields


def metadata_of(request: Request) -> Metadata:
    """Return the metadata of the pod under review; empty where there is no pod."""
    return request.object.metadata if request.object is not None else _NOBODY


def own_fields(request: Request, context: DecisionContext) -> dict[str, Any]:
    """Return what is different in each record, and therefore comes first in its line."""
    metadata = metadata_of(request)
    names = request.uid, request.name or metadata.name or "", metadata.uid or ""
    review, pod, pod_uid = all_shown(names, LONGEST_NAME)
    fields: dict[str, Any] = {
        "kind": "admission",
        "id": context.stamp.id,
        "at": context.stamp.at,
        "review": review,
        "pod": pod,
        "pod_uid": pod_uid,
        "duration_seconds": context.seconds,
    }
    if context.age is not None:
        fields["snapshot_age_seconds"] = round(context.age, 3)
    return fields


def pod_json(request: Request) -> bytes:
    """Return what the record of *request* says of its pod, but for the names of the pod.

    It is the JSON of fields without braces, which the pods of a workload share.
    """
    texts = json_texts(_pod_texts(request))
    owners = [
        f'{{"kind":"{texts[at]}","name":"{texts[at + 1]}","uid":"{texts[at + 2]}"}}'
        for at in range(_FIRST_OWNER, len(texts), 3)
    ]
    fields = (
        f'"operation":"{texts[0]}","namespace":"{texts[1]}","generate_name":"{texts[2]}",'
        f'"owners":[{",".join(owners)}]'
    )
    return fields.encode()


def alike_fields(outcome: Rewritten) -> dict[str, Any]:
    """Return the fields that the records of all pods share that are alike: asked and given."""
    fields = {"outcome": word(outcome), **_given_fields(outcome)}
    if outcome.recorded is not None:
        fields["asked"] = encode_request(outcome.recorded)
    return fields


def confirmation_record(
    request: Request, outcome: Outcome, context: DecisionContext
) -> dict[str, Any]:
    """Return the short record of a validating pass, which knows the final name and UID."""
    fields = own_fields(request, replace(context, age=None))
    fields.update(_circumstances(request, outcome, context))
    if isinstance(outcome, Rewritten):
        fields["digest"] = outcome.digest
        fields["mode"] = str(outcome.choice.mode)
    else:
        fields.update(_reasons(outcome))
    return fields


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


def changes_json(patch: EncodedPatch) -> bytes:
    """Return the operations with the values that are wholly ours: all but what was asked."""
    return joined_array(shown_annotations(patch), shown_rest(patch))


def shown_rest(patch: EncodedPatch) -> bytes:
    """Return the JSON of what :func:`changes_json` has of other operations than on annotations.

    It has no brackets, and is nearly always that of the patch. Some of our values name a container,
    which the API server has not checked yet.
    """
    last = patch.last
    if len(last) > _LARGEST_CHANGES or _has_odd_text(last):
        return _bounded_changes(patch.rest)
    return last


def _has_odd_text(json: bytes) -> bool:
    """Say whether a text in *json* may hold what nobody sees, or is written with an escape."""
    return not json.isascii() or _DELETE in json or _BACKSLASH in json


def shown_annotations(patch: EncodedPatch) -> bytes:
    """Return the JSON of what :func:`changes_json` has of annotations, without brackets."""
    ops, first = patch.annotations, patch.first
    if not ops:
        return b""
    # Most patches write what was asked last, and nothing before it needs an escape.
    if patch.asked and len(ops) <= _MOST_CHANGES and not _has_odd_text(first):
        return first + _ASKED_NEXT if first else _ASKED_SHOWN
    return orjson.dumps([_shown_annotation(op) for op in ops[:_MOST_CHANGES]])[1:-1]


def _bounded_changes(operations: Sequence[Operation]) -> bytes:
    """Return the JSON of the first operations without brackets, and without values not plain."""
    changes: list[bytes] = []
    left = _LARGEST_CHANGES
    for op in operations[:_MOST_CHANGES]:
        change = orjson.dumps(op)
        if _BACKSLASH in change or not is_plain(change.decode()):
            change = orjson.dumps({"op": op["op"], "path": inert(op["path"][:LONGEST_NAME])})
        left -= len(change)
        if left < 0:
            break
        changes.append(change)
    return b",".join(changes)


def _shown_annotation(op: Operation) -> Operation:
    path = op["path"]
    if path == ANNOTATIONS:
        ours = {key: text for key, text in op["value"].items() if key != ASKED_KEY}
        return {"op": op["op"], "path": path, "value": ours}
    if path == ASKED_PATH:
        return {"op": op["op"], "path": path}
    return op if is_plain(path) else {"op": op["op"], "path": inert(path[:LONGEST_NAME])}


def _circumstances(request: Request, outcome: Outcome, context: DecisionContext) -> dict[str, Any]:
    """Return what records of all passes have: who wrote it, and whose request it is."""
    stamp = context.stamp
    texts = _pod_texts(request)
    last = len(texts)
    # Of all at once: nearly always they stay as they are.
    shown = all_shown([*texts, *user_texts(request.user_info)], LONGEST_NAME)
    return {
        "schema": SCHEMA,
        "component": stamp.component,
        "instance": stamp.instance,
        "version": stamp.version,
        "caller": stamp.caller,
        "step": context.step,
        "outcome": word(outcome),
        **_pod_fields(shown[:last]),
        "user": shown[last],
        "groups": shown[last + 1 :],
    }


def _pod_fields(texts: Sequence[str]) -> dict[str, Any]:
    """Return the fields whose *texts* :func:`_pod_texts` returns."""
    return {
        "operation": texts[0],
        "namespace": texts[1],
        "generate_name": texts[2],
        "owners": [
            {"kind": texts[at], "name": texts[at + 1], "uid": texts[at + 2]}
            for at in range(_FIRST_OWNER, len(texts), 3)
        ],
    }


def _pod_texts(request: Request) -> list[str]:
    """Return operation, namespace, prefix of the pod's name, and three texts of each owner."""
    metadata = metadata_of(request)
    texts = [request.operation, request.namespace, metadata.generate_name or ""]
    for owner in (metadata.owner_references or ())[:MOST_OWNERS]:
        texts += (owner.kind, owner.name, owner.uid)
    return texts


def user_texts(user: UserInfo) -> list[str]:
    """Return the name of *user*, and those of the groups that are recorded."""
    return [user.username, *(user.groups or ())[:MOST_GROUPS]]


def json_texts(texts: list[str]) -> list[str]:
    """Return *texts* as they are recorded, to stand between the quotes of JSON.

    It is the same list where they stay as they are, as nearly always.
    """
    shown = all_shown(texts, LONGEST_NAME)
    if shown is texts:
        return texts
    # Some were escaped, with backslashes.
    return [orjson.dumps(text).decode()[1:-1] for text in shown]


def _reasons(outcome: Outcome) -> Mapping[str, Any]:
    match outcome:
        case Untouched(warnings=warnings):
            return {"warnings": _sentences(warnings)}
        case GpusHidden(warnings=warnings):
            return {"hidden": True, "warnings": _sentences(warnings)}
        case Refused(findings=findings, digest=digest, warnings=warnings):
            return {
                "digest": digest,
                **refusal_fields(findings),
                "warnings": _sentences(warnings),
            }
        case Rewritten():
            return {"digest": outcome.digest, **_given_fields(outcome)}
        case _:
            assert_never(outcome)


def _given_fields(outcome: Rewritten) -> dict[str, Any]:
    choice, request = outcome.choice, outcome.request
    return {
        "vocabulary": request.vocabulary,
        **mode_fields(choice),
        "mode_asked": escaped(outcome.asked.mode or ""),
        "containers": [_asked_fields(one) for one in request.containers[:_MOST_CONTAINERS]],
        "constraints": all_shown(request.constraints),
        "priority": request.priority.name.lower(),
        "warnings": _sentences(outcome.warnings),
    }


def _sentences(texts: Sequence[str]) -> Sequence[str]:
    return [inert(text[:LONGEST_TEXT]) for text in texts[:MOST_WARNINGS]] if texts else texts


def _asked_fields(container: ContainerRequest) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": escaped(container.name),
        "stage": _STAGES[container.stage],
        "count": container.count,
        "cores_percent": container.cores,
    }
    if container.memory is not None:
        fields["memory_mib"] = container.memory
    if container.percent is not None:
        fields["memory_percent"] = container.percent
    return fields
