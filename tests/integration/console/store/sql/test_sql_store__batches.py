"""What one batch holds is put in order; a content is stored once and kept while it is named."""

import pytest
from msgspec.structs import replace

from allocator.audit.record import HealthRecord, OwnerPart
from console.records.query import EVERYTHING, DecisionFilter, PageRequest, RecordFilter
from console.store.sql.sql_store import SqlStore
from tests.builders.records import (
    MINUTE,
    bound,
    health,
    mutated,
    refused,
    settings_of,
    snapshot_of,
    stored,
    uid,
    workload,
)
from tests.integration.console.store.sql.test_sql_store__retention import (
    DAY,
    NOW,
    TWO_DAYS,
    pruned,
    requester_of_a_pod,
)


def ids(store: SqlStore) -> list[str]:
    return [one.record.id for one in store.export(EVERYTHING, RecordFilter())]


def test_of_two_records_with_one_id_the_first_is_kept(store: SqlStore) -> None:
    """Within a batch as across batches."""
    first = refused(reason="GpuMemoryShort")
    second = replace(first, reason="GpuCoresShort")
    store.append(stored(first, second))

    assert [one.record for one in store.export(EVERYTHING, RecordFilter())] == [first]


def test_records_of_a_batch_are_in_the_order_of_their_times(store: SqlStore) -> None:
    """Whatever their ids are, and in whatever order they came; at one time their ids decide."""
    names = ["2" * 32, "3" * 32, "1" * 32, "4" * 32]
    times = [1000, 1000, 2000, 0]
    store.append(stored(*(refused(at, id=name) for at, name in zip(times, names, strict=True))))

    assert ids(store) == ["4" * 32, "2" * 32, "3" * 32, "1" * 32]


def test_a_large_batch_is_known_when_it_comes_again(store: SqlStore) -> None:
    """More records than one statement asks for."""
    many = stored(*(refused(n, digest=f"d-{n}") for n in range(1200)))

    assert store.append(many) == 1200
    assert store.append(many) == 0


def test_a_snapshot_that_a_decision_named_first_is_stored_when_it_comes(store: SqlStore) -> None:
    """Records of several threads and programs arrive in any order."""
    store.append(stored(mutated(snapshot="f-1")))
    assert store.snapshot("f-1") is None

    assert store.append(stored(snapshot_of(1000))) == 1
    assert store.snapshot("f-1") is not None


def test_settings_with_the_digest_of_a_snapshot_hide_it_from_nobody(store: SqlStore) -> None:
    """Contents of two kinds are two, whatever their digests are."""
    store.append(stored(settings_of(content_digest="same")))

    assert store.append(stored(snapshot_of(content_digest="same"))) == 1
    assert store.snapshot("same") is not None
    assert store.settings("same") is not None


def test_what_a_young_bind_rests_on_stays(store: SqlStore) -> None:
    """Also where no admission names it."""
    store.append(
        stored(settings_of(), snapshot_of(), bound(3 * DAY, settings="s-1", snapshot="f-1"))
    )
    pruned(store, TWO_DAYS)

    assert store.settings("s-1") is not None
    assert store.snapshot("f-1") is not None


def test_settings_that_came_again_are_as_young_as_the_last_time(store: SqlStore) -> None:
    """In one batch or in two: what is in force again is kept."""
    store.append(stored(settings_of(), settings_of(3 * DAY)))
    store.append(stored(settings_of(content_digest="s-2")))
    store.append(stored(settings_of(3 * DAY, content_digest="s-2")))
    pruned(store, TWO_DAYS)

    assert store.settings("s-1") is not None
    assert store.settings("s-2") is not None


def test_what_a_late_record_names_is_no_older_for_it(store: SqlStore) -> None:
    """A replica that sends its spool names what others have named since."""
    store.append(stored(settings_of(), mutated(3 * DAY, settings="s-1")))
    store.append(stored(mutated(MINUTE, settings="s-1")))
    pruned(store, TWO_DAYS)

    assert store.settings("s-1") is not None


@pytest.mark.parametrize("late", [health(1, healthy=True), health(2, id="0" * 32, healthy=True)])
def test_a_gpu_stays_ill_whatever_was_true_before(store: SqlStore, late: HealthRecord) -> None:
    """Of two records of one time, the one with the greater id counts, as in lists."""
    store.append(stored(health(2)))
    assert store.append(stored(late)) == 1

    assert store.overview(EVERYTHING, NOW).unhealthy == ("gpu-1 GPU-1",)


def test_of_several_changes_in_a_batch_the_first_counts_for_pods_since(store: SqlStore) -> None:
    """All pods since then are looked at again, and not only those since the last change."""
    assert requester_of_a_pod(store, 1000, 1) == ""
    store.append(stored(workload(500, user="amy"), workload(2000, user="bo", operation="UPDATE")))

    [row] = store.decisions(EVERYTHING, DecisionFilter(pod="train-1"), PageRequest()).rows
    assert row.requester == "amy"


def test_a_workload_is_of_its_first_owner(store: SqlStore) -> None:
    """That is its controller; others may be named by whoever writes the object."""
    above = [OwnerPart(kind="CronJob", name=f"c-{n}", uid=uid(n)) for n in (91, 92)]
    store.append(
        stored(
            workload(0, number=91, user="amy"),
            workload(0, number=92, user="mallory"),
            workload(500, user="cronjob-controller", owners=tuple(above)),
        )
    )

    assert requester_of_a_pod(store, 1000, 1) == "amy"
