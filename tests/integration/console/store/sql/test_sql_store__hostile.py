"""Both engines: hostile texts, times and ids."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allocator.audit.record import AnyRecord, OwnerPart
from console.records.query import EVERYTHING, DecisionFilter, PageRequest, RecordFilter
from console.records.times import rfc3339
from console.store.sql.sql_store import SqlStore, now_ms
from console.store.store import StoreError
from tests.builders.records import (
    MINUTE,
    bound,
    health,
    mutated,
    refused,
    started,
    stored,
    uid,
    validated,
    waiting,
    workload,
)

TEXTS = [
    "'; DROP TABLE record; --",
    '" OR 1=1 --',
    "<script>alert(1)</script>",
    "a\0b",
    "\0",
    "%s ? {id} %(x)s :name $1",
    "\u202eevil\u2066",
    "#7",
    "##",
    "-",
    "*",
    "\\u0000",
    "🦄" * 50,
    "x" * 253,
]


def everywhere(text: str) -> list[AnyRecord]:
    """Return records that have *text* wherever somebody else's text may stand."""
    owner = (OwnerPart(kind=text, name=text, uid=text),)
    names: dict[str, Any] = {"namespace": text, "digest": text, "instance": text, "version": text}
    return [
        mutated(**names, generate_name=text, user=text, groups=(text,), owners=owner, mode=text),
        validated(1, **names, user=text, owners=owner) if text else validated(1),
        refused(2, **names, reason=text, user=text, generate_name=text),
        replace(bound(3, namespace=text), node=text, mode=text, text=text),
        replace(started(4), pod=text, pod_uid=text, namespace=text, node=text),
        replace(waiting(5, namespace=text), reason=text, text=text),
        replace(health(6), node=text, gpu=text, text=text),
        replace(workload(7, namespace=text, user=text, template=text), owners=owner),
    ]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_text_is_only_a_text(store: SqlStore, text: str) -> None:
    """It comes back as it was, is found by filters, and changes no table."""
    records = everywhere(text)
    assert store.append(stored(*records, sender=text)) == len(records)
    assert store.append(stored(*records, sender=text)) == 0
    found = {one.record.id: one.record for one in store.export(EVERYTHING, RecordFilter())}
    assert found == {one.id: one for one in records}
    for query in (
        DecisionFilter(namespace=text),
        DecisionFilter(requester=text),
        DecisionFilter(reason=text),
        DecisionFilter(owner=text),
        DecisionFilter(digest=text),
        DecisionFilter(node=text),
    ):
        listed = store.decisions(EVERYTHING, query, PageRequest()).rows
        for row in listed:
            store.life(EVERYTHING, row)
    assert store.decisions(EVERYTHING, DecisionFilter(digest=text), PageRequest()).rows
    assert store.records(EVERYTHING, RecordFilter(namespace=text), PageRequest()).rows
    assert store.facets(EVERYTHING, DecisionFilter())["namespace"]
    assert store.overview(EVERYTHING, "2026-11-20T00:00:00Z").unhealthy


@given(st.text(max_size=30).filter(lambda text: text.isascii() or text.isprintable()))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_filter_may_be_asked(store: SqlStore, text: str) -> None:
    """Whatever is typed into a search field is an answer, or an error that says what would do."""
    names = ("namespace", "pod", "owner", "requester", "verdict", "mode", "digest", "node", "state")
    for name in names:
        store.decisions(EVERYTHING, DecisionFilter(**{name: text}), PageRequest())
    for name in ("namespace", "pod", "pod_uid", "node", "digest"):
        more: dict[str, Any] = {name: text}
        store.records(EVERYTHING, RecordFilter(**more), PageRequest())


DEFECTS = {
    "no hex": ({"id": "z" * 32}, "accepted: 32 digits of 0-9a-f"),
    "short id": ({"id": "abc"}, "accepted: 32 digits"),
    "capital id": ({"id": "A" * 32}, "accepted: 32 digits"),
    "1970": ({"at": "1970-01-01T00:00:00Z"}, "is before 2020"),
    "9999": ({"at": "9999-12-31T23:59:59Z"}, "is in the future"),
    "tomorrow": ({"at": rfc3339(now_ms() + 24 * 60 * MINUTE)}, "is in the future"),
    "no time": ({"at": "yesterday"}, "is not a time"),
    "no offset": ({"at": "2026-11-20T12:00:00"}, "is not a time with an offset"),
    "empty time": ({"at": ""}, "is not a time"),
    "year 10000": ({"at": "10000-01-01T00:00:00Z"}, "is not a time"),
    "long name": ({"pod": "x" * 300}, "pod is longer than 253 characters"),
    "large": ({"user": "x" * 3_000_000}, "accepted: at most 2097152"),
    "half a character": ({"user": "\ud800"}, "cannot be encoded"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_record_that_cannot_be_kept_keeps_the_whole_batch_out(store: SqlStore, name: str) -> None:
    """The error says which record, what is wrong with it and what would do; nothing is stored."""
    change, expected = DEFECTS[name]
    bad = replace(mutated(), **change)
    with pytest.raises(StoreError, match=rf"record 1 of the batch: .*{expected}"):
        store.append(stored(mutated(), bad, mutated()))
    assert store.figures().records == 0
    assert store.append(stored(mutated())) == 1


def test_a_text_of_a_mebibyte_is_kept(store: SqlStore) -> None:
    """Only what lists are filtered by is cut."""
    record = refused(user="u" * 2**20, generate_name="g" * 2**19, digest="big")
    store.append(stored(record))
    [one] = store.export(EVERYTHING, RecordFilter())
    assert one.record == record
    [row] = store.decisions(EVERYTHING, DecisionFilter(digest="big"), PageRequest()).rows
    assert row.requester == "u" * 255 + "…"
    assert store.decisions(EVERYTHING, DecisionFilter(requester="u" * 2**20), PageRequest()).rows


def test_other_times_of_day_are_the_same_moment(store: SqlStore) -> None:
    """A time with an offset is kept in UTC."""
    store.append(stored(replace(validated(), at="2026-11-20T14:00:00.123456+02:00")))
    [one] = store.export(EVERYTHING, RecordFilter(pod_uid=uid(1)))
    assert one.record.at == "2026-11-20T12:00:00.123Z"
