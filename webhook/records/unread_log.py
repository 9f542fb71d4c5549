"""Records of reviews that could not be read, bounded in rate: a tenant may send many of them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from allocator.audit.record_source import UNNAMED, RecordSource, stamp_fields
from allocator.audit.record_writer import RecordSink
from allocator.model.untrusted import LONGEST_NAME, all_shown, inert
from webhook.review.unread_review import UnreadReview

MOST_AT_ONCE: Final = 20  # records
SECONDS_EACH: Final = 5.0  # after which another one may be written
LONGEST_TEXT: Final = 512  # characters
_MOST_GROUPS: Final = 16


@dataclass(slots=True, kw_only=True)
class UnreadLog:
    """Writes them to *sink*; what is beyond the rate is counted, and told by the next record."""

    sink: RecordSink
    source: RecordSource = UNNAMED
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ticks: Callable[[], float] = time.monotonic  # seconds
    _left: float = field(default=MOST_AT_ONCE, init=False)
    _filled: float | None = field(default=None, init=False)  # when, by ticks
    _unrecorded: int = field(default=0, init=False)

    def note(self, review: UnreadReview) -> None:
        """Record *review*, unless it was a dry run, or too many came before it."""
        if review.dry_run:
            return
        if not self._may_write():
            self._unrecorded += 1
            return
        missed, self._unrecorded = self._unrecorded, 0
        self.sink.remember(self._record(review, missed))

    def _may_write(self) -> bool:
        now = self.ticks()
        if self._filled is not None:
            refill = (now - self._filled) / SECONDS_EACH
            self._left = min(float(MOST_AT_ONCE), self._left + refill)
        self._filled = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def _record(self, review: UnreadReview, missed: int) -> Mapping[str, Any]:
        text = inert(review.why[:LONGEST_TEXT])
        if missed:
            text = f"{text}; {missed} more reviews before it could not be read"
        uid, namespace, pod, operation, user, *groups = all_shown(
            (
                *(review.uid, review.namespace, review.name, review.operation, review.user),
                *review.groups[:_MOST_GROUPS],
            ),
            LONGEST_NAME,
        )
        fields: dict[str, Any] = {
            **stamp_fields("admission", self.source.stamp(self.now())),
            "step": review.step,
            "outcome": "error",
            "reason": review.reason,
            "findings": [{"reason": review.reason, "text": text}],
            "review": uid,
            "namespace": namespace,
            "pod": pod,
            "operation": operation,
            "user": user,
            "groups": groups,
            "size_bytes": review.size,
        }
        return {name: value for name, value in fields.items() if value not in ("", [])}
