"""Identifiers of records: each is another one, in the order of time, and says who wrote it."""

import uuid
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from allocator.audit.record import Component
from allocator.audit.record_source import (
    ENTROPY_BITS,
    RecordSource,
    content_id,
    milliseconds_of,
    stamp_fields,
)

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 -- bounds have none


@given(at=MOMENTS, entropy=st.integers(min_value=0, max_value=2**80))
def test_an_identifier_is_a_uuid_of_version_7(at: datetime, entropy: int) -> None:
    """Its first 48 bits are the milliseconds since 1970."""
    stamp = RecordSource(Component.AGENT, entropy=entropy).stamp(at)
    found = uuid.UUID(hex=stamp.id)

    assert (found.hex, found.version, found.variant) == (stamp.id, 7, uuid.RFC_4122)
    assert int(stamp.id[:12], 16) == milliseconds_of(at)
    assert stamp.at == at.isoformat(timespec="milliseconds")


def test_no_two_records_of_a_program_share_one() -> None:
    """Also those of one moment, and more of them than its first counter holds."""
    source = RecordSource(Component.WEBHOOK, entropy=7)
    reviews = source.reviewed_by(lambda: ("path",))
    ids = [(source if n % 2 else reviews).stamp(NOON).id for n in range(10_000)]

    assert len(set(ids)) == len(ids)
    assert ids[:4096] == sorted(ids[:4096])


@given(st.integers(0, 2**ENTROPY_BITS - 1), st.integers(0, 2**ENTROPY_BITS - 1))
def test_no_two_programs_share_one(one: int, other: int) -> None:
    """As long as their random bits differ."""
    first, second = (RecordSource(Component.AGENT, entropy=n).stamp(NOON).id for n in (one, other))

    assert (first == second) == (one == other)


def test_a_stamp_names_program_and_caller() -> None:
    """What is not known is absent."""
    source = RecordSource(Component.WEBHOOK, instance="pod-1", version="1.2")
    fields = stamp_fields("bind", source.reviewed_by(lambda: ("path",)).stamp(NOON))
    plain = stamp_fields("health", RecordSource(Component.AGENT).stamp(NOON))

    assert fields == {
        "kind": "bind",
        "id": fields["id"],
        "schema": 1,
        "at": "2026-05-04T12:00:00.000+00:00",
        "component": "webhook",
        "instance": "pod-1",
        "version": "1.2",
        "caller": ("path",),
    }
    assert plain.keys() == {"kind", "id", "schema", "at", "component"}


@given(st.lists(st.text(), max_size=3), st.lists(st.text(), max_size=3))
def test_content_has_one_identifier(one: list[str], other: list[str]) -> None:
    """The same for the same parts, whoever asks, and another one for any others."""
    found = uuid.UUID(hex=content_id(*one))

    assert (found.version, found.variant) == (8, uuid.RFC_4122)
    assert (content_id(*one) == content_id(*other)) == (one == other)


def test_time_goes_on() -> None:
    """A later record sorts after an earlier one."""
    source = RecordSource(Component.WEBHOOK, entropy=2**ENTROPY_BITS - 1)
    ids = [source.stamp(NOON + timedelta(milliseconds=n)).id for n in range(100)]

    assert ids == sorted(ids)


def test_a_time_is_written_in_utc_whatever_came_before() -> None:
    """Of the same millisecond in another zone, of another millisecond, and earlier again."""
    source = RecordSource(Component.WEBHOOK)
    elsewhere = NOON.astimezone(timezone(timedelta(hours=2)))
    steps = (1, 255, 256, 999, 1000, 86_400_000)
    later = [NOON + timedelta(milliseconds=step) for step in steps]
    moments = [NOON, elsewhere, NOON, *later, NOON, NOON]

    stamps = [source.stamp(at) for at in moments]

    written = [at.astimezone(UTC).isoformat(timespec="milliseconds") for at in moments]
    assert [one.at for one in stamps] == written
    starts = [int(one.id[:12], 16) for one in stamps]
    assert starts == [milliseconds_of(at) for at in moments]
    assert len({one.id for one in stamps}) == len(stamps)
