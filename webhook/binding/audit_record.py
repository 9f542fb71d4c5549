"""The record of a bind: who bound which pod where, and what it was promised or why not."""

from collections.abc import Mapping
from typing import Any, assert_never

import msgspec

from allocator.ledger.commit import wire_of
from allocator.mig.slot_policy import slot_policy
from allocator.model.untrusted import escaped
from webhook.binding.batch import Outcome
from webhook.binding.binding_annotations import Commit
from webhook.binding.decide import Denied, ServedUpstream
from webhook.review.admission_review import Refusal
from webhook.review.binding_schema import BindingReview


class BindTiming(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When it was answered, as RFC 3339 in UTC, after how many seconds.

    ``late`` says what an entry rests on that was committed after its pod was bound.
    """

    at: str
    seconds: float
    late: str = ""


def record(bound: BindingReview, outcome: Outcome, circumstances: BindTiming) -> Mapping[str, Any]:
    """Return the whole record of one bind, ready to be written as one line."""
    request = bound.request
    return {
        "event": "bind",
        "at": circumstances.at,
        "review": escaped(request.uid),
        "namespace": escaped(bound.namespace),
        "name": escaped(bound.pod),
        "node": escaped(bound.node),
        "user": escaped(request.user_info.username),
        "groups": [escaped(group) for group in (request.user_info.groups or ())[:16]],
        **_result(outcome),
        **({"late": circumstances.late} if circumstances.late else {}),
        "duration_seconds": circumstances.seconds,
    }


def _weights(commit: Commit) -> Mapping[str, Mapping[str, int]]:
    """Return by which weights MIG places were chosen, for each board that something was put on."""
    given = {grant.gpu for held in commit.assignment.containers for grant in held.grants}
    boards = {gpu.board for gpu in commit.node.gpus if gpu.uuid in given and gpu.board}
    return {board.name: dict(slot_policy(board, commit.demand).weights) for board in boards}


def _result(outcome: Outcome) -> Mapping[str, Any]:
    match outcome:
        case Commit(bind=wish):
            return {
                "decision": "promised",
                "pod_uid": outcome.entry.uid,
                "mode": str(outcome.assignment.mode),
                "mode_source": str(wish.source),
                "wished": list(wish.wanted.gpus),
                "containers": wire_of(outcome.entry)["containers"],
                "weights": _weights(outcome),
                "ledger": outcome.version,
            }
        case Denied(refusal=refusal, reason=reason):
            return {**_result(refusal), "reason": reason}
        case Refusal(code=code, message=message):
            return {"decision": "refused", "code": code, "text": message}
        case ServedUpstream():
            return {"decision": "left to another plugin"}
        case _:
            assert_never(outcome)
