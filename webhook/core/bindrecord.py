"""The record of a bind: who bound which pod where, and what it was promised or why not."""

from collections.abc import Mapping
from typing import Any, assert_never

import msgspec

from allocator.core.ledger import wire_of
from allocator.core.placement import tables
from allocator.core.wording import shown
from webhook.core.binding import Denied, Elsewhere
from webhook.core.bindingreview import Bound
from webhook.core.bound import Promise
from webhook.core.review import Refusal
from webhook.core.served import Outcome


class Circumstances(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When it was answered, as RFC 3339 in UTC, after how many seconds.

    ``late`` says what an entry rests on that was committed after its pod was bound.
    """

    at: str
    seconds: float
    late: str = ""


def record(bound: Bound, outcome: Outcome, circumstances: Circumstances) -> Mapping[str, Any]:
    """Return the whole record of one bind, ready to be written as one line."""
    request = bound.request
    return {
        "event": "bind",
        "at": circumstances.at,
        "review": shown(request.uid),
        "namespace": shown(bound.namespace),
        "name": shown(bound.pod),
        "node": shown(bound.node),
        "user": shown(request.user_info.username),
        "groups": [shown(group) for group in (request.user_info.groups or ())[:16]],
        **_result(outcome),
        **({"late": circumstances.late} if circumstances.late else {}),
        "duration_seconds": circumstances.seconds,
    }


def _weights(promise: Promise) -> Mapping[str, Mapping[str, int]]:
    """Return by which weights MIG places were chosen, for each board that something was put on."""
    given = {grant.gpu for held in promise.assignment.containers for grant in held.grants}
    boards = {gpu.board for gpu in promise.node.gpus if gpu.uuid in given and gpu.board}
    return {board.name: dict(tables(board, promise.demand).weights) for board in boards}


def _result(outcome: Outcome) -> Mapping[str, Any]:
    match outcome:
        case Promise(wish=wish):
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
        case Elsewhere():
            return {"decision": "left to another plugin"}
        case _:
            assert_never(outcome)
