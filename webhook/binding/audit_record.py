"""The record of a bind: who bound which pod where, and what it was promised or why not.

It has the schema of :mod:`allocator.audit.record`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, assert_never

from allocator.audit.record_source import UNNAMED, RecordSource, stamp_fields
from allocator.catalog.keys import DECISION_KEY
from allocator.mig.slot_policy import slot_policy
from allocator.model.allocation import Entry
from allocator.model.untrusted import LONGEST_NAME, all_shown, escaped, inert
from allocator.replay.decision_fields import LONGEST_TEXT, given_fields, released_fields
from allocator.replay.node_codec import (
    demand_fields,
    live_rows,
    taken_positions,
    taken_rows,
    taken_shares,
)
from allocator.replay.recorded_request import RecordedRequest
from allocator.replay.request_fields import encode_request
from webhook.binding.batch import Outcome
from webhook.binding.binding_annotations import Commit
from webhook.binding.decide import BindInputs, Denied, ServedUpstream
from webhook.review.admission_review import Refusal
from webhook.review.binding_schema import BindingReview, LivePod

_MOST_GROUPS = 16
_MOST_WISHED = 64


def _no_digest(_: BindInputs) -> str:
    return ""


def _no_settings() -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindRecords:
    """Makes the records of binds.

    ``settings_digest`` returns the digest of the settings in force, and ``snapshot_digest`` that
    of the boards and GPUs that was decided on, which are recorded once.
    """

    source: RecordSource = UNNAMED
    settings_digest: Callable[[], str] = _no_settings
    snapshot_digest: Callable[[BindInputs], str] = _no_digest

    def record(
        self,
        bound: BindingReview,
        outcome: Outcome,
        *,
        live: LivePod | None,
        at: datetime,
        seconds: float,
    ) -> dict[str, Any]:
        """Return the record of a bind that was answered at *at* after *seconds*.

        *live* is the pod as it was then, ``None`` where there was none.
        """
        request = bound.request
        user, review = all_shown((request.user_info.username, request.uid), LONGEST_NAME)
        groups = (request.user_info.groups or ())[:_MOST_GROUPS]
        return {
            **stamp_fields("bind", self.source.stamp(at)),
            **_pod_fields(bound, live),
            "review": review,
            "user": user,
            "groups": all_shown(groups, LONGEST_NAME),
            **self._result(outcome),
            "settings": self.settings_digest(),
            "duration_seconds": round(seconds, 6),
        }

    def late_record(
        self, bound: BindingReview, commit: Commit, *, basis: str, at: datetime
    ) -> dict[str, Any]:
        """Return the record of an entry that was committed after its pod was bound.

        *basis* is what it rests on. Nobody asked for it, so it names no user.
        """
        return {
            **stamp_fields("late-commit", self.source.stamp(at)),
            **_pod_fields(bound, commit.bind.live),
            **self._result(commit),
            "basis": basis,
            "settings": self.settings_digest(),
        }

    def replaced_record(self, node: str, entry: Entry, *, at: datetime) -> dict[str, Any]:
        """Return the record of an entry on *node* that gave way to another bind of its pod."""
        fields = released_fields(node, entry, "replaced")
        return {**stamp_fields("released", self.source.stamp(at)), **fields}

    def _result(self, outcome: Outcome) -> Mapping[str, Any]:
        match outcome:
            case Commit():
                return {**_promise(outcome), **self._inputs(outcome.inputs)}
            case Denied(refusal=refusal, reason=reason, inputs=inputs):
                about = {} if inputs is None else self._inputs(inputs)
                return {**_refusal_fields(refusal), "reason": str(reason), **about}
            case Refusal():
                return _refusal_fields(outcome)
            case ServedUpstream():
                return {"outcome": "elsewhere"}
            case _:
                assert_never(outcome)

    def _inputs(self, inputs: BindInputs) -> dict[str, Any]:
        """Return what an answer rests on, as replay needs it."""
        claim, node = inputs.claim, inputs.node
        recorded = RecordedRequest(
            request=claim.request, namespace=inputs.namespace, final=claim.mode
        )
        return {
            "snapshot": self.snapshot_digest(inputs),
            "wished": all_shown(claim.gpus[:_MOST_WISHED]),
            "ledger": inputs.version,
            "taken": taken_rows(node),
            "taken_positions": taken_positions(node),
            "taken_shares": taken_shares(node),
            "live": live_rows(node),
            "asked": encode_request(recorded),
            "demand": demand_fields(inputs.demand, node),
            "hard_policy": escaped(claim.hard_policy),
            "positions": list(map(all_shown, claim.positions[:_MOST_WISHED])),
            "earlier": inputs.earlier,
        }


UNNAMED_RECORDS: Final = BindRecords()


def _pod_fields(bound: BindingReview, live: LivePod | None) -> dict[str, Any]:
    """Return which pod is bound where, and the digest that admission stamped on it."""
    names = (bound.namespace, bound.pod, bound.node, "" if live is None else live.uid)
    namespace, pod, node, uid = all_shown(names, LONGEST_NAME)
    fields = {"namespace": namespace, "pod": pod, "node": node}
    if live is None:
        return fields
    written = live.pod.metadata.annotations or {}
    return {**fields, "pod_uid": uid, "digest": escaped(written.get(DECISION_KEY, ""))}


def _refusal_fields(refusal: Refusal) -> dict[str, Any]:
    text = inert(refusal.message[:LONGEST_TEXT])
    return {"outcome": "refused", "code": refusal.code, "reason": refusal.reason, "text": text}


def _promise(commit: Commit) -> dict[str, Any]:
    return {
        "outcome": "promised",
        "mode": str(commit.assignment.mode),
        "mode_source": str(commit.bind.source),
        "containers": given_fields(commit.entry.containers),
        "weights": _weights(commit),
    }


def _weights(commit: Commit) -> Mapping[str, Mapping[str, int]]:
    """Return by which weights MIG places were chosen, for each board that something was put on."""
    inputs = commit.inputs
    given = {grant.gpu for held in commit.assignment.containers for grant in held.grants}
    boards = {gpu.board for gpu in inputs.node.gpus if gpu.uuid in given and gpu.board}
    return {board.name: dict(slot_policy(board, inputs.demand).weights) for board in boards}
