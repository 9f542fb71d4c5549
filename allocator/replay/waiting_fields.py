"""What records say of a pod that no node took."""

from enum import StrEnum
from typing import Any

from allocator.audit.record_source import content_id
from allocator.model.untrusted import escaped, inert
from allocator.replay.decision_fields import LONGEST_TEXT


class WaitingState(StrEnum):
    """How far the waiting of a pod has come, as records name it."""

    BEGUN = "begun"
    CHANGED = "changed"
    OVER = "over"


def waiting_fields(state: WaitingState, reason: str, text: str) -> dict[str, Any]:
    """Return the fields that say for which *reason* a pod waits, or waits no longer."""
    fields = {"state": str(state), "reason": escaped(reason), "text": inert(text[:LONGEST_TEXT])}
    return {name: value for name, value in fields.items() if value}


def waiting_id(state: WaitingState, uid: str) -> str:
    """Return the identifier of a record that is stored once for each pod; empty for a change."""
    return "" if state is WaitingState.CHANGED else content_id("waiting", state, uid)
