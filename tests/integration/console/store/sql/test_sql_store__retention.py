"""Both engines: what is too old goes, a part at a time; what is still needed stays."""

from collections import Counter
from datetime import timedelta
from hashlib import shake_256

import pytest

from allocator.audit.record import AnyRecord, OwnerPart
from console.records.query import EVERYTHING, DecisionFilter, PageRequest, RecordFilter
from console.store.sql.retention import BATCH, MOST_VERSIONS
from console.store.sql.schema import record_size
from console.store.sql.sql_store import SqlStore
from console.store.store import Retention
from tests.builders.records import (
    MINUTE,
    bound,
    mutated,
    refused,
    released,
    settings_of,
    snapshot_of,
    started,
    stored,
    uid,
    validated,
    workload,
)

DAY = 24 * 60 * MINUTE
NOW = "2026-11-24T12:00:00Z"  # four days after the records of noon
TWO_DAYS = Retention(age=timedelta(days=2))
ALL = DecisionFilter()
OF_A = DecisionFilter(namespace="a")


def pruned(store: SqlStore, retention: Retention) -> int:
    gone, rounds = 0, 0
    while (part := store.prune(retention, NOW)) > 0:
        gone, rounds = gone + part, rounds + 1
        assert part <= 2 * BATCH
        assert rounds < 100
    assert counted(store) == found(store)
    return gone


def counted(store: SqlStore) -> list[tuple[int, int]]:
    """Return the numbers of namespaces, and how many bytes of each are said to be there."""
    with store._database.reading() as transaction:  # noqa: SLF001 -- no question tells of it
        rows = transaction.rows("SELECT ns, bytes FROM namespace_size ORDER BY ns")
    return [(int(ns), int(size)) for ns, size in rows]


def found(store: SqlStore) -> list[tuple[int, int]]:
    """Return the numbers of namespaces, and how many bytes of each are there."""
    with store._database.reading() as transaction:  # noqa: SLF001 -- likewise
        rows = transaction.rows("SELECT ns, body FROM record")
    sizes: Counter[int] = Counter()
    for ns, body in rows:
        sizes[int(ns)] += record_size(bytes(body))
    return sorted(sizes.items())


def pods(store: SqlStore) -> list[str]:
    return sorted(row.pod for row in store.decisions(EVERYTHING, ALL, PageRequest()).rows)


def test_what_is_old_goes_and_what_is_young_stays(store: SqlStore) -> None:
    """Records and decisions alike, and counts follow."""
    old: list[AnyRecord] = [
        mutated(),
        validated(3),
        bound(10),
        started(20),
        released(30),
        refused(),
    ]
    young: list[AnyRecord] = [validated(3 * DAY, pod=2), bound(3 * DAY + 5, pod=2)]
    store.append(stored(*old, *young))
    assert pruned(store, TWO_DAYS) == len(old)
    assert pods(store) == ["train-2"]
    figures = store.figures()
    assert (figures.records, figures.decisions) == (2, 1)
    assert {one.record.id for one in store.export(EVERYTHING, RecordFilter())} == {
        one.id for one in young
    }
    assert store.prune(TWO_DAYS, NOW) == 0


def test_a_pod_that_runs_on_keeps_its_row(store: SqlStore) -> None:
    """Who holds a GPU now is known, however long ago it was given."""
    store.append(stored(validated(), bound(10), started(20)))
    pruned(store, TWO_DAYS)
    assert pods(store) == ["train-1"]
    store.append(stored(released(3 * DAY)))
    pruned(store, Retention(age=timedelta(hours=1)))
    assert pods(store) == []
    assert store.figures().decisions == 0
    assert left(store, "tally") == 0


@pytest.mark.parametrize(
    ("now", "kept"),
    [
        pytest.param("2027-11-23T12:00:20.000Z", ["train-1"], id="a-year"),
        pytest.param("2027-11-23T12:00:20.001Z", [], id="a-millisecond-more"),
    ],
)
def test_a_pod_whose_end_nobody_told_goes_after_a_year(
    store: SqlStore, now: str, kept: list[str]
) -> None:
    """Of 366 days, beyond what is kept of others; its row counts as removed."""
    store.append(stored(bound(10), started(20_000)))
    assert store.prune(TWO_DAYS, NOW) == 2
    assert store.prune(TWO_DAYS, now) == 1 - len(kept)
    assert pods(store) == kept


@pytest.mark.parametrize(
    ("at", "kept"), [pytest.param(-1, 0, id="older"), pytest.param(0, 1, id="just-as-old")]
)
def test_what_is_as_old_as_is_kept_stays(store: SqlStore, at: int, kept: int) -> None:
    """To the millisecond, of records and of what no list shows."""
    store.append(stored(refused(2 * DAY + at), settings_of(2 * DAY + at)))
    assert pruned(store, TWO_DAYS) == 2 - 2 * kept
    assert (store.figures().records, left(store, "content")) == (2 * kept, kept)


def test_what_the_oldest_kept_decision_rests_on_stays(store: SqlStore) -> None:
    """Its settings, and what its pod asked for, however old those are."""
    named = validated(2 * DAY, settings="s-1")
    store.append(stored(settings_of(), mutated(), named))
    assert pruned(store, TWO_DAYS) == 1
    assert store.settings("s-1") is not None
    assert left(store, "decision") == 2


@pytest.mark.parametrize(
    "later",
    [
        pytest.param([], id="over"),
        pytest.param([bound(3 * DAY + 10)], id="held"),
    ],
)
def test_what_a_young_pod_asked_for_stays_as_long_as_the_pod(
    store: SqlStore, later: list[AnyRecord]
) -> None:
    """The record of the request is gone by then; nothing is left once the pod is gone too."""
    store.append(stored(mutated(), validated(3 * DAY), *later))
    assert pruned(store, TWO_DAYS) == 1
    assert left(store, "decision") == 2
    while store.prune(Retention(age=timedelta(hours=1)), "2028-01-01T00:00:00Z"):
        pass
    assert left(store, "decision") == 0


def test_a_request_without_a_record_of_its_own_goes_with_its_pod(store: SqlStore) -> None:
    """The record of its first review was lost on its way."""
    store.append(stored(validated(), validated(3 * DAY, pod=2)))
    assert pruned(store, TWO_DAYS) == 1
    assert (pods(store), left(store, "decision")) == (["train-2"], 2)
    assert pruned(store, Retention(age=timedelta(hours=1))) == 1
    assert left(store, "decision") == 0


def test_what_is_too_old_goes_before_what_is_too_much(store: SqlStore) -> None:
    """A store that fits once the old records are gone loses no young one."""
    store.append(stored(refused(), refused(3 * DAY, digest="young")))
    assert store.prune(Retention(age=timedelta(days=2), size=1), NOW) == 1
    assert [row.digest for row in store.decisions(EVERYTHING, ALL, PageRequest()).rows] == ["young"]


def test_an_empty_store_that_is_too_large_loses_nothing(store: SqlStore) -> None:
    """Its tables alone take some room."""
    assert store.prune(Retention(age=timedelta(days=2), size=1), NOW) == 0


def test_a_request_refused_again_keeps_its_row(store: SqlStore) -> None:
    """A row stays as long as one of its records does."""
    store.append(stored(refused(), refused(3 * DAY)))
    pruned(store, TWO_DAYS)
    [row] = store.decisions(EVERYTHING, ALL, PageRequest()).rows
    assert (row.times, row.first) == (2, "2026-11-20T12:00:00.000Z")


def test_settings_and_snapshots_stay_while_a_decision_names_them(store: SqlStore) -> None:
    """What a young decision rested on can be read, and what nothing names is gone."""
    store.append(
        stored(
            settings_of(),
            settings_of(content_digest="s-2"),
            snapshot_of(),
            snapshot_of(content_digest="f-2"),
            mutated(3 * DAY, settings="s-1", snapshot="f-1"),
        )
    )
    pruned(store, TWO_DAYS)
    assert store.settings("s-1") is not None
    assert store.snapshot("f-1") is not None
    assert store.settings("s-2") is None
    assert store.snapshot("f-2") is None
    assert store.figures().records == 3


def test_the_author_of_a_template_stays_known(store: SqlStore) -> None:
    """A workload that was applied long ago still says who is behind its pods."""
    versions = [
        workload(n * MINUTE, user=user, template=template, operation="UPDATE")
        for n, (user, template) in enumerate(
            [("di", "old"), ("amy", "new"), ("controller", "new"), ("controller", "new")]
        )
    ]
    store.append(stored(*versions))
    pruned(store, TWO_DAYS)
    owner = (OwnerPart(kind="Job", name="job-90", uid=uid(90)),)
    store.append(stored(validated(3 * DAY, owners=owner, user="job-controller")))
    [row] = store.decisions(EVERYTHING, ALL, PageRequest()).rows
    assert (row.requester, row.requester_source) == ("amy", "workload")


def test_an_author_stays_known_while_others_change_the_workload(store: SqlStore) -> None:
    """A year counts from the last change, not from the one that the author made."""
    others = workload(3 * DAY, user="controller", operation="UPDATE")
    store.append(stored(workload(user="amy"), others))
    pruned(store, TWO_DAYS)
    store.prune(TWO_DAYS, "2027-11-24T12:00:00Z")
    assert left(store, "workload") == 2


@pytest.mark.parametrize("count", [3, 9])
def test_nothing_is_left_of_what_was_removed(store: SqlStore, count: int) -> None:
    """Tables that no list shows shrink too; of a workload its author stays, for a year."""
    versions = [
        workload(n * MINUTE, user="amy", template=f"t-{n}", operation="UPDATE")
        for n in range(count)
    ]
    store.append(stored(settings_of(), snapshot_of(), *versions))
    pruned(store, TWO_DAYS)
    assert left(store, "content") == 0
    assert 0 < left(store, "workload") < len(versions)
    while store.prune(TWO_DAYS, "2027-11-21T12:00:00Z") > 0:
        pass
    assert left(store, "workload") > 0
    store.prune(TWO_DAYS, "2027-11-24T12:00:00Z")
    assert left(store, "workload") == 0


def left(store: SqlStore, table: str) -> int:
    """Return how many rows are in a table that no question of the store tells of."""
    with store._database.reading() as transaction:  # noqa: SLF001 -- see above
        [[rows]] = transaction.rows(f"SELECT count(*) FROM {table}")  # noqa: S608 -- ours
    return int(rows)


def test_beyond_its_size_the_oldest_go(store: SqlStore) -> None:
    """A store that is too large shrinks from its old end, a batch at a time."""
    store.append(stored(*(refused(n * 1000, digest=f"d-{n}") for n in range(3 * BATCH))))
    small = Retention(age=timedelta(days=365), size=1)
    assert store.prune(small, NOW) == BATCH
    oldest = store.figures().oldest
    assert oldest == "2026-11-20T12:33:20.000Z"
    assert store.figures().decisions == 2 * BATCH
    used = store.figures().size
    assert pruned(store, Retention(age=timedelta(days=365), size=used * 7 // 10)) == BATCH
    assert 0 < store.figures().size <= used * 7 // 10
    assert store.figures().records == BATCH
    roomy = Retention(age=timedelta(days=365), size=2**40)
    assert store.prune(roomy, NOW) == 0


def by_namespace(store: SqlStore) -> dict[str, int]:
    """Return how many records there are of each namespace."""
    names = [one.record.namespace for one in store.export(EVERYTHING, RecordFilter())]
    return dict(Counter(names))


def test_a_namespace_that_floods_pushes_out_its_own_records(store: SqlStore) -> None:
    """Refused pods cost a tenant nothing, so others keep half of the store."""
    others = [refused(n, namespace="b", digest=f"b-{n}") for n in range(BATCH)]
    flood = [refused(DAY + n, namespace="a", digest=f"a-{n}") for n in range(3 * BATCH)]
    store.append(stored(*others, *flood))
    small = Retention(age=timedelta(days=365), size=1)

    assert store.prune(small, NOW) == BATCH
    assert by_namespace(store) == {"b": BATCH, "a": 2 * BATCH}
    left_of_a = [row.digest for row in store.decisions(EVERYTHING, OF_A, PageRequest()).rows]
    assert left_of_a[0] == f"a-{3 * BATCH - 1}"
    assert store.facets(EVERYTHING, ALL)["namespace"] == {"a": 2 * BATCH, "b": BATCH}

    assert store.prune(small, NOW) == BATCH
    assert by_namespace(store) == {"b": BATCH, "a": BATCH}
    assert store.prune(small, NOW) == BATCH  # nobody has more than half now: the oldest go
    assert by_namespace(store) == {"a": BATCH}
    assert counted(store) == found(store)


def test_few_large_records_are_a_flood_as_many_small_ones_are(store: SqlStore) -> None:
    """A tenant chooses how long names are, so bytes count, and not records."""
    others = [refused(n, namespace="b", digest=f"b-{n}") for n in range(BATCH)]
    flood = [
        refused(
            DAY + n, namespace="a", digest=f"a-{n}", groups=(shake_256(b"%d" % n).hexdigest(2000),)
        )
        for n in range(BATCH // 2)
    ]
    store.append(stored(*others, *flood))

    store.prune(Retention(age=timedelta(days=365), size=1), NOW)
    assert by_namespace(store) == {"b": BATCH}


def test_what_a_namespace_rests_on_stays_when_another_floods(store: SqlStore) -> None:
    """Its settings and snapshots, which are older than what is left of the flood."""
    mine: list[AnyRecord] = [
        settings_of(),
        snapshot_of(),
        mutated(namespace="b", settings="s-1", snapshot="f-1"),
    ]
    flood = [refused(DAY + n, namespace="a", digest=f"a-{n}") for n in range(2 * BATCH)]
    store.append(stored(*mine, *flood))

    assert store.prune(Retention(age=timedelta(days=365), size=1), NOW) == BATCH
    assert store.settings("s-1") is not None
    assert store.snapshot("f-1") is not None
    assert by_namespace(store) == {"": 2, "b": 1, "a": BATCH}


def test_pods_of_a_flood_that_hold_gpus_stay_known(store: SqlStore) -> None:
    """Their records go, like those of any pod."""
    flood = [refused(DAY + n, namespace="a", digest=f"a-{n}") for n in range(BATCH)]
    store.append(stored(validated(), bound(10), started(20), *flood))

    store.prune(Retention(age=timedelta(days=365), size=1), NOW)
    assert "train-1" in pods(store)


def requester_of_a_pod(store: SqlStore, at: int, pod: int) -> str:
    """Return whose the pod of the job is that is made at a time."""
    owner = (OwnerPart(kind="Job", name="job-90", uid=uid(90)),)
    made = validated(at, pod=pod, owners=owner, user="job-controller")
    store.append(stored(made))
    query = DecisionFilter(pod=f"train-{pod}")
    [row] = store.decisions(EVERYTHING, query, PageRequest()).rows
    return row.requester


def test_a_workload_that_is_changed_without_end_takes_bounded_room(store: SqlStore) -> None:
    """All versions are read for each of its pods, and a tenant may make millions."""
    store.append(stored(workload(0, user="amy", template="first", operation="UPDATE")))
    for start in range(1, 3 * MOST_VERSIONS, MOST_VERSIONS // 4):
        versions = [
            workload(n, user="controller", template="first", operation="UPDATE")
            for n in range(start, start + MOST_VERSIONS // 4)
        ]
        store.append(stored(*versions))
        assert left(store, "workload") <= MOST_VERSIONS + len(versions)
    assert MOST_VERSIONS // 2 <= left(store, "workload") <= MOST_VERSIONS
    assert requester_of_a_pod(store, MINUTE, 2) == "amy"

    changed = [
        workload(MINUTE + n, user="bo", template=f"t-{n}", operation="UPDATE")
        for n in range(2 * MOST_VERSIONS)
    ]
    store.append(stored(*changed))
    assert left(store, "workload") <= MOST_VERSIONS
    assert requester_of_a_pod(store, DAY, 3) == "bo"


def test_as_many_versions_as_are_kept_all_stay(store: SqlStore) -> None:
    """One more, and only the latest half does, with what tells who wrote its templates."""
    versions = [
        workload(n, user="amy", template=f"t-{n}", operation="UPDATE") for n in range(MOST_VERSIONS)
    ]
    store.append(stored(*versions))
    assert left(store, "workload") == MOST_VERSIONS
    store.append(stored(workload(DAY, user="amy", template="last", operation="UPDATE")))
    assert left(store, "workload") == MOST_VERSIONS // 2 + 2
