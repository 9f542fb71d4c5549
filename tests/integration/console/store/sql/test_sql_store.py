"""Both engines: what is stored is answered, in any order of arrival, once."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allocator.audit.record import AnyRecord, ChangePart, OwnerPart, SnapshotRecord
from console.records.query import (
    EVERYTHING,
    BadCursorError,
    DecisionFilter,
    PageRequest,
    PodOutcome,
    RecordFilter,
    Scope,
)
from console.records.rows import DecisionRow
from console.store.opening import open_store
from console.store.sql.schema import KINDS
from console.store.sql.sql_store import SqlStore
from console.store.store import StoreError
from tests.builders.records import (
    MINUTE,
    bound,
    health,
    histories,
    mutated,
    refused,
    released,
    settings_of,
    snapshot_of,
    started,
    stored,
    uid,
    validated,
    waiting,
    workload,
)

ALL = DecisionFilter()
LIFE: tuple[AnyRecord, ...] = (
    mutated(),
    validated(3),
    bound(10),
    started(20),
    released(90 * MINUTE),
)


def rows(store: SqlStore, **query: str) -> list[DecisionRow]:
    return list(store.decisions(EVERYTHING, DecisionFilter(**query), PageRequest()).rows)


def test_a_batch_sent_twice_is_stored_once(store: SqlStore) -> None:
    """A record is known by its id, within a batch and across batches."""
    assert store.append([*stored(*LIFE), *stored(*LIFE)]) == len(LIFE)
    assert store.append(stored(*LIFE)) == 0
    assert store.figures().records == len(LIFE)
    assert len(rows(store)) == 1


def test_an_id_is_its_senders(store: SqlStore) -> None:
    """An agent that sends the id that settings will have hides nothing; both are kept, once."""
    true = settings_of()
    forged = replace(health(), id=true.id)
    long = f"agent of node {'n' * 250}"  # as long as a text may be, and cut

    for sender in ("agent of node gpu-1", "agent of node gpu-2", f"{long}1", f"{long}2"):
        store.append(stored(forged, forged, sender=sender))
    assert store.append(stored(true, true, sender="webhook")) == 1
    assert store.append(stored(true, sender="webhook")) == 0

    assert store.settings(true.content_digest) == true
    found = list(store.export(EVERYTHING, RecordFilter()))
    senders = Counter(one.sender for one in found)
    assert senders["agent of node gpu-1"] == senders["agent of node gpu-2"] == 1
    assert [one.record for one in found if one.sender == "webhook"] == [true]


def test_binds_say_on_which_nodes_a_pod_may_be(store: SqlStore) -> None:
    """Nothing is known of a pod without a bind, whatever else is known of it."""
    bind = bound(10)
    store.append(stored(*LIFE, replace(bound(11), id="f" * 32, node="gpu-9")))
    store.append(stored(started(20, pod=7)))

    found = store.bound_nodes([bind.pod_uid, uid(7), "x" * 9000, "", "\0"])

    assert found == {bind.pod_uid: frozenset({bind.node, "gpu-9"})}


def test_records_come_back_as_they_were(store: SqlStore) -> None:
    """Nothing of a record is lost by how it is kept, and neither is who delivered it."""
    records = [*LIFE, refused(), health(), settings_of(), snapshot_of(), workload(), waiting()]
    store.append(stored(*records, sender="node gpu-1"))
    found = list(store.export(EVERYTHING, RecordFilter()))
    assert {one.record.id: one.record for one in found} == {one.id: one for one in records}
    assert {one.sender for one in found} == {"node gpu-1"}
    assert [one.record.at for one in found] == sorted(one.at for one in records)


def test_a_row_shows_what_was_asked_and_given(store: SqlStore) -> None:
    """The request comes from the mutating pass, the name and uid from the validating one."""
    store.append(stored(*LIFE[:4]))
    [row] = rows(store)
    assert (row.pod, row.pod_uid, row.digest) == ("train-1", uid(1), "digest-a")
    assert row.asked[0].memory_mib == row.given[0].devices[0].memory_mib == 4096
    assert (row.state, row.verdict, row.vocabulary) == (PodOutcome.RUNNING, "rewritten", "volcano")
    assert store.decision(EVERYTHING, "digest-a", uid(1)) == row
    assert store.decision(EVERYTHING, "digest-a", uid(2)) is None


def test_a_life_holds_every_record_of_the_pod(store: SqlStore) -> None:
    """The review before the uid was known is part of it, that of another pod is not."""
    store.append(stored(*LIFE, mutated(MINUTE), validated(MINUTE + 1, pod=2)))
    [row] = rows(store, pod="train-1")
    assert [one.record for one in store.life(EVERYTHING, row)] == list(LIFE)


def test_pods_of_a_template_have_reviews_of_their_own(store: SqlStore) -> None:
    """Also where they were created at the same moment, and some never became pods."""
    patch = (ChangePart(op="add", path="/metadata/annotations"),)
    first, second, third, refused_by_others = (mutated(n, changes=patch) for n in (0, 1, 40, 30))
    again = mutated(41)
    lone = mutated(20, changes=patch, user="bo")
    ends = [validated(5), validated(6, pod=2), validated(45, pod=3)]
    store.append(stored(first, second, third, refused_by_others, again, lone, *ends))

    lives = {
        row.pod: [one.record for one in store.life(EVERYTHING, row)]
        for row in rows(store)
        if row.pod_uid
    }

    assert lives["train-1"] == [first, ends[0]]
    assert lives["train-2"] == [second, ends[1]]
    assert lives["train-3"] == [third, again, ends[2]]


def test_a_review_by_a_clock_that_is_behind_is_not_lost(store: SqlStore) -> None:
    """Of a pod that was confirmed long after, the latest review of its request is shown."""
    early, late = mutated(0), validated(MINUTE)
    store.append(stored(early, late))
    [row] = [row for row in rows(store) if row.pod_uid]

    assert [one.record for one in store.life(EVERYTHING, row)] == [early, late]


def test_a_long_life_keeps_its_begin_and_its_end(store: SqlStore) -> None:
    """Of a request refused 700 times the first and the last ones are shown."""
    times = [refused(n * 1000) for n in range(700)]
    store.append(stored(*times))
    [row] = rows(store)
    assert row.times == 700
    life = [one.record for one in store.life(EVERYTHING, row)]
    assert len(life) == 500
    assert (life[0], life[-1]) == (times[0], times[-1])


FILTERS = [
    {"namespace": "team-b"},
    {"pod": "train-1"},
    {"pod": "train-*"},
    {"owner": "job-90"},
    {"requester": "cy"},
    {"verdict": "refused"},
    {"reason": "GpuMemoryShort"},
    {"mode": "mig"},
    {"digest": "digest-b"},
    {"node": "gpu-1"},
    {"state": "running"},
    {"since": "2026-11-20T12:10:00Z"},
    {"until": "2026-11-20T12:10:00Z"},
    {"state": "over", "node": "gpu-1", "mode": "hami-core", "verdict": "rewritten"},
    {"verdict": "nothing"},
]


def matches(row: DecisionRow, field: str, wanted: str) -> bool:
    match field:
        case "owner":
            return row.owner is not None and row.owner.name == wanted
        case "since":
            return row.last >= wanted.replace("Z", ".000Z")
        case "until":
            return row.last < wanted.replace("Z", ".000Z")
        case "pod" if wanted.endswith("*"):
            return row.pod.startswith(wanted[:-1])
        case _:
            return str(getattr(row, field)) == wanted


def mixture() -> list[AnyRecord]:
    """Return decisions of every kind in two namespaces."""
    job = (OwnerPart(kind="Job", name="job-90", uid=uid(90)),)
    return [
        *LIFE,
        workload(user="cy"),
        validated(MINUTE, pod=2, digest="digest-b", owners=job, mode="mig"),
        bound(2 * MINUTE, pod=2, digest="digest-b", mode="mig", node="gpu-2"),
        started(3 * MINUTE, pod=2, node="gpu-2"),
        validated(20 * MINUTE, pod=3, namespace="team-b", user="di"),
        waiting(21 * MINUTE, pod=3, namespace="team-b"),
        refused(22 * MINUTE),
        refused(23 * MINUTE, namespace="team-b", digest="digest-s", reason="GpuCoresShort"),
        mutated(24 * MINUTE, digest="digest-c", generate_name="lost-"),
    ]


@pytest.mark.parametrize("query", FILTERS, ids=str)
def test_a_filter_finds_what_matches_and_nothing_else(
    store: SqlStore, query: dict[str, str]
) -> None:
    """Filters agree with the rows that they return."""
    store.append(stored(*mixture()))
    every = rows(store)
    expected = [row for row in every if all(matches(row, *one) for one in query.items())]
    assert rows(store, **query) == expected
    assert (query == {"verdict": "nothing"}) == (expected == [])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_pages_hold_each_row_once(store: SqlStore, size: int) -> None:
    """Pages follow each other without gaps or repetition, also of equal times."""
    store.append(stored(*mixture(), *(refused(digest=f"same-{n}") for n in range(5))))
    for query in (ALL, DecisionFilter(verdict="refused")):
        every, after = list[DecisionRow](), ""
        while True:
            page = store.decisions(EVERYTHING, query, PageRequest(size=size, after=after))
            every += page.rows
            after = page.after
            if not after:
                break
        one_page = store.decisions(EVERYTHING, query, PageRequest(size=1000)).rows
        assert tuple(every) == one_page
        assert [row.last for row in every] == sorted((row.last for row in every), reverse=True)


def test_pages_of_records_hold_each_record_once(store: SqlStore) -> None:
    """The same for records, by every filter that they have."""
    records = mixture()
    store.append(stored(*records))
    queries = {
        RecordFilter(): records,
        RecordFilter(node="gpu-2"): [one for one in records if one.node == "gpu-2"],
        RecordFilter(namespace="team-b"): [one for one in records if one.namespace == "team-b"],
        RecordFilter(pod_uid=uid(2)): [one for one in records if one.pod_uid == uid(2)],
        RecordFilter(pod="train-2"): [one for one in records if one.pod == "train-2"],
        RecordFilter(digest="digest-r"): [one for one in records if one.digest == "digest-r"],
        RecordFilter(kinds=frozenset({"bind", "waiting"})): [
            one for one in records if type(one).__name__ in {"BindRecord", "WaitingRecord"}
        ],
    }
    for query, expected in queries.items():
        found, after = list[AnyRecord](), ""
        while True:
            page = store.records(EVERYTHING, query, PageRequest(size=2, after=after))
            found += [one.record for one in page.rows]
            after = page.after
            if not after:
                break
        assert sorted(one.id for one in found) == sorted(one.id for one in expected), query
        assert [one.at for one in found] == sorted((one.at for one in found), reverse=True)


@pytest.mark.parametrize("cursor", ["x", "AAAA", "é", "A" * 5000, "\0", "1 1"])
def test_a_cursor_that_no_page_returned_is_refused(store: SqlStore, cursor: str) -> None:
    """So is one that was changed, or that another list returned."""
    store.append(stored(*mixture()))
    page = PageRequest(size=1, after=cursor)
    with pytest.raises(BadCursorError):
        store.decisions(EVERYTHING, ALL, page)
    good = store.decisions(EVERYTHING, ALL, PageRequest(size=1)).after
    changed = good[:-2] + ("AA" if good[-2:] != "AA" else "BB")
    with pytest.raises(BadCursorError):
        store.decisions(EVERYTHING, ALL, PageRequest(size=1, after=changed))
    with pytest.raises(BadCursorError):
        store.records(EVERYTHING, RecordFilter(), PageRequest(after=good))


def test_facets_count_each_decision_once(store: SqlStore) -> None:
    """However many records it has."""
    store.append(stored(*mixture()))
    assert store.facets(EVERYTHING, ALL)["verdict"] == {"rewritten": 4, "refused": 2}


HOUR = 60 * MINUTE
MIDNIGHT = 12 * HOUR  # after the first record
PERIODS = [
    {"since": f"2026-11-{since}Z", "until": f"2026-11-{until}Z"}
    for since, until in (
        ("20T12:00:00", "20T12:20:00"),
        ("20T23:59:59.999", "21T00:00:00.001"),
        ("21T00:00:00", "22T00:00:00"),
        ("21T00:00:00", "21T00:00:00"),
        ("20T18:00:00", "22T06:00:00"),
        ("22T00:00:00", "21T00:00:00"),
        ("20T20:00:00", "20T10:00:00"),
    )
]
MORE = [
    {"namespace": "team-a", "mode": "hami-core"},
    {"since": "2026-11-21T00:00:00Z", "verdict": "refused"},
    {"since": "2026-11-21T00:00:00.001Z"},
    {"until": "2026-11-21T00:00:00Z"},
    {"until": "2026-11-22T00:00:00Z", "namespace": "team-b"},
]


@pytest.mark.parametrize("query", [{}, *FILTERS, *PERIODS, *MORE], ids=str)
def test_facets_are_what_the_lists_have(store: SqlStore, query: dict[str, str]) -> None:
    """A facet says how many rows its value would leave, within filters and periods of any kind."""
    around = (
        MIDNIGHT + days * 2 * MIDNIGHT + more for days in range(3) for more in (-1, 0, 1, HOUR)
    )
    late = [refused(at, digest=f"late-{at}", namespace="team-b") for at in around]
    store.append(stored(*mixture(), *late))

    facets = store.facets(EVERYTHING, DecisionFilter(**query))

    for field, counts in facets.items():
        others = {name: value for name, value in query.items() if name != field}
        listed = Counter(getattr(row, field) for row in rows(store, **others))
        assert counts == {value: number for value, number in listed.items() if value}


def test_the_overview_says_what_is_the_matter(store: SqlStore) -> None:
    """Counts since a time, what waits and since when, ill GPUs, and who was heard of."""
    store.append(
        stored(*mixture(), health(), health(1, gpu="GPU-2"), health(2, gpu="GPU-2", healthy=True))
    )
    seen = store.overview(EVERYTHING, "2026-11-20T12:20:00Z")
    assert seen.verdicts == {"refused": 2, "rewritten": 2}
    assert seen.refusals == {"GpuMemoryShort": 1, "GpuCoresShort": 1}
    [wait] = seen.waiting
    assert (wait.reason, wait.pods, wait.oldest) == (
        "GpuMemoryShort",
        1,
        "2026-11-20T12:21:00.000Z",
    )
    assert (seen.running, seen.unhealthy) == (1, ("gpu-1 GPU-1",))
    assert seen.last_record["webhook"] == "2026-11-20T13:30:00.000Z"


def test_usage_is_what_was_promised_within_a_period(store: SqlStore) -> None:
    """From the bind to the release, cut to the period."""
    store.append(stored(*LIFE, refused(35 * MINUTE), refused(36 * MINUTE)))
    [row, other] = store.usage(EVERYTHING, "2026-11-20T12:30:00Z", "2026-11-20T13:00:00Z")
    assert (row.namespace, row.requester, row.admitted) == ("team-a", "amy", 0)
    assert row.mib_hours == pytest.approx(4096 / 2)
    assert row.core_hours == pytest.approx(0.25 / 2)
    assert (other.requester, other.refused, other.mib_hours) == ("bo", 1, 0)


def test_settings_and_snapshots_are_found_by_digest(store: SqlStore) -> None:
    """A content is stored once, whoever sends it."""
    first, second = snapshot_of(), snapshot_of(MINUTE)
    assert store.append(stored(settings_of(), first, second)) == 2
    assert store.snapshot("f-1") == first
    found = store.settings("s-1")
    assert found is not None
    assert found.text == "fleet: open"
    assert store.settings("f-1") is None
    assert store.snapshot("\0'; DROP TABLE record") is None


def test_what_was_stored_is_there_after_opening_again(
    opened: Callable[[], SqlStore], store: SqlStore
) -> None:
    """A second opening finds all, and cursors stay good."""
    store.append(stored(*mixture()))
    first = store.decisions(EVERYTHING, ALL, PageRequest(size=2))
    store.close()
    again = opened()
    assert again.decisions(EVERYTHING, ALL, PageRequest(size=2)) == first
    assert again.decisions(EVERYTHING, ALL, PageRequest(size=2, after=first.after)).rows


@given(histories().flatmap(lambda records: st.tuples(st.just(records), st.permutations(records))))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_and_repetition_ends_in_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory,
    both: tuple[list[AnyRecord], list[AnyRecord]],
) -> None:
    """One batch, or one record at a time in another order and twice, makes no difference."""
    inorder, shuffled = both
    folder = tmp_path_factory.mktemp("order")
    assert answers(folder / "a", [inorder]) == answers(
        folder / "b", [*([one] for one in shuffled), shuffled]
    )


def answers(file: Path, batches: Sequence[Sequence[AnyRecord]]) -> object:
    store = open_store(str(file))
    for batch in batches:
        store.append(stored(*batch))
    listed = sorted(store.decisions(EVERYTHING, ALL, PageRequest()).rows, key=repr)
    since, until = "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"
    exported = list(store.export(EVERYTHING, RecordFilter()))
    result = (
        listed,
        store.facets(EVERYTHING, ALL),
        store.usage(EVERYTHING, since, until),
        store.overview(EVERYTHING, since),
        store.figures().decisions,
        # Of two snapshots of one content the first that arrives is kept.
        {one.record.id for one in exported if not isinstance(one.record, SnapshotRecord)},
    )
    assert store.figures().decisions == len(listed)
    counted = store.facets(EVERYTHING, ALL)
    for field in ("verdict", "namespace", "mode"):
        assert counted[field] == Counter(
            getattr(row, field) for row in listed if getattr(row, field)
        )
    store.close()
    return result


def test_every_kind_of_record_has_a_number() -> None:
    """A kind that the schema gains must be kept too; numbers are never used twice."""
    kinds = {kind.__struct_config__.tag for kind in get_args(AnyRecord)}
    assert set(KINDS) == kinds
    assert len(set(KINDS.values())) == len(KINDS)


def test_records_of_rare_and_common_kinds_keep_to_scope_and_order(store: SqlStore) -> None:
    """Whichever index answers, the records are those that match, the latest first."""
    store.append(stored(*mixture(), health(), health(5, node="gpu-2"), settings_of()))
    a = Scope(namespaces=frozenset({"team-a", "team-b", "team-none"}))
    every = [one.record for one in store.export(EVERYTHING, RecordFilter())]
    for scope in (EVERYTHING, a, Scope(namespaces=frozenset({"team-b"})), Scope(cluster=True)):
        within = {one.record.id for one in store.export(scope, RecordFilter())}
        for kinds in ({"health"}, {"health", "settings"}, {"bind", "health"}, {"violation"}):
            query = RecordFilter(kinds=frozenset(kinds))
            found = [one.record for one in store.records(scope, query, PageRequest()).rows]
            expected = [
                one.id
                for one in every
                if one.id in within and type(one).__struct_config__.tag in kinds
            ]
            assert sorted(one.id for one in found) == sorted(expected)
            assert [one.at for one in found] == sorted((one.at for one in found), reverse=True)


def test_a_time_or_kind_that_is_none_is_named(store: SqlStore) -> None:
    """An error says what is wrong and what would do."""
    with pytest.raises(StoreError, match=r"since: .*yesterday.* accepted: 2026-"):
        store.decisions(EVERYTHING, DecisionFilter(since="yesterday"), PageRequest())
    with pytest.raises(StoreError, match=r"kind 'binds' is unknown; accepted: admission"):
        store.records(EVERYTHING, RecordFilter(kinds=frozenset({"binds"})), PageRequest())
