"""Records of reviews that could not be read: what is known, few at a time, and harmless."""

from datetime import UTC, datetime

import msgspec
import pytest

from allocator.audit.record import AdmissionRecord, parse_record
from tests.harness.records import KeptRecords
from webhook.records.unread_log import MOST_AT_ONCE, SECONDS_EACH, UnreadLog
from webhook.review.unread_review import UnreadReview

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
KNOWN = UnreadReview(
    step="mutate",
    why="Expected `str`, got `int` - at `$.request.object.metadata.name`",
    reason="UnreadablePod",
    size=1234,
    uid="r-1",
    operation="CREATE",
    name="p",
    namespace="team-a",
    user="amy",
    groups=("devs",),
)


class Log:
    """A log whose clock is moved by hand."""

    def __init__(self) -> None:
        self.kept = KeptRecords()
        self.seconds = 50.0
        self.log = UnreadLog(sink=self.kept, now=lambda: NOW, ticks=lambda: self.seconds)

    def parsed(self) -> list[AdmissionRecord]:
        found = [parse_record(msgspec.json.encode(record)) for record in self.kept]
        assert all(isinstance(record, AdmissionRecord) for record in found)
        return found  # type: ignore[return-value]  # as was just seen


def test_what_is_known_is_recorded() -> None:
    """By the schema, so that a console stores it."""
    written = Log()

    written.log.note(KNOWN)

    (record,) = written.parsed()
    assert (record.step, record.outcome, record.reason) == ("mutate", "error", "UnreadablePod")
    assert (record.review, record.namespace, record.pod) == ("r-1", "team-a", "p")
    assert (record.user, record.groups, record.operation) == ("amy", ("devs",), "CREATE")
    assert record.size_bytes == 1234
    assert record.findings[0].text == KNOWN.why


def test_what_is_unknown_is_absent() -> None:
    """Neither empty nor a guess."""
    written = Log()

    written.log.note(UnreadReview(step="validate", why="body is no review", reason="X", size=0))

    (record,) = written.kept
    assert not {"review", "namespace", "pod", "user", "groups", "operation"} & record.keys()
    assert record["size_bytes"] == 0


def test_a_dry_run_leaves_no_record() -> None:
    """As everywhere, and it takes no other's place."""
    written = Log()
    for _ in range(2 * MOST_AT_ONCE):
        written.log.note(msgspec.structs.replace(KNOWN, dry_run=True))

    written.log.note(KNOWN)

    assert len(written.kept) == 1


def test_a_flood_is_counted() -> None:
    """A tenant who sends a thousand of them fills no spool, and the next record says how many."""
    written = Log()
    for _ in range(1000):
        written.log.note(KNOWN)
    assert len(written.kept) == MOST_AT_ONCE

    written.seconds += SECONDS_EACH - 0.5
    written.log.note(KNOWN)
    assert len(written.kept) == MOST_AT_ONCE
    written.seconds += 0.5
    written.log.note(KNOWN)

    *_, last = written.parsed()
    assert len(written.kept) == MOST_AT_ONCE + 1
    missed = 1000 - MOST_AT_ONCE + 1
    assert last.findings[0].text.endswith(f"; {missed} more reviews before it could not be read")


def test_patience_is_bounded() -> None:
    """After a quiet year there are no more at once than at first."""
    written = Log()
    written.log.note(KNOWN)
    written.seconds += 1e9
    for _ in range(100):
        written.log.note(KNOWN)

    assert len(written.kept) == MOST_AT_ONCE + 1


HOSTILE = (
    "\x1b[2J", "\x00", "a\nb", "\r\n", "\u202eabc", "\u2066", "\x9b", "<script>alert(1)</script>",
    "'; DROP TABLE record; --", "x" * 100_000, "\ud83d", "${jndi:ldap://x}", "\ufeff", "\u2028",
)  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE, ids=ascii)
def test_hostile_texts_are_cut_and_escaped(value: str) -> None:
    """They come from whoever may create pods, or reached the port."""
    written = Log()

    written.log.note(
        UnreadReview(
            step="mutate",
            why=value,
            reason="UnreadablePod",
            size=1,
            uid=value,
            operation=value,
            name=value,
            namespace=value,
            user=value,
            groups=(value,) * 1000,
        )
    )

    (record,) = written.kept
    line = msgspec.json.encode(record)
    assert len(line) < 16 * 1024
    parse_record(line)
    texts = [str(each) for key, each in record.items() if key not in ("groups", "findings")]
    assert all(text.isprintable() for text in (*texts, *record.get("groups", ())))
    assert record["findings"][0]["text"].isprintable()
