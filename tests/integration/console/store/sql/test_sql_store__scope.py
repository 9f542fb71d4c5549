"""A reader learns of nothing beyond their scope, by no method and by no count."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from allocator.audit.record import AnyRecord, OwnerPart
from console.records.query import (
    EVERYTHING,
    NOTHING,
    DecisionFilter,
    PageRequest,
    RecordFilter,
    Scope,
)
from console.store.sql.sql_store import SqlStore
from console.store.sqlite_database import SqliteDatabase
from tests.builders.records import (
    bound,
    health,
    mutated,
    refused,
    released,
    settings_of,
    snapshot_of,
    started,
    stored,
    uid,
    validated,
    violation,
    waiting,
    workload,
)

A = Scope(namespaces=frozenset({"team-a"}))
PEOPLE_OF_A = Scope(namespaces=frozenset({"team-a"}), people=True)
NODES = Scope(cluster=True)
A_AND_NODES = Scope(namespaces=frozenset({"team-a"}), cluster=True, people=True)
PODS = Scope(namespaces=None)
SCOPES = [NOTHING, A, PEOPLE_OF_A, NODES, A_AND_NODES, PODS]
SINCE, UNTIL = "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"


def of(team: str, first: int) -> list[AnyRecord]:
    """Return all that may happen in one namespace, with names that say which."""
    job = (OwnerPart(kind="Job", name=f"job-{team}", uid=uid(first + 90)),)
    more: dict[str, Any] = {"namespace": f"team-{team}", "node": f"node-{team}"}
    pod: dict[str, Any] = {"pod": first, "namespace": f"team-{team}"}
    return [
        workload(number=first + 90, namespace=f"team-{team}", user=f"person-{team}"),
        mutated(1, namespace=f"team-{team}", digest=f"d-{team}", owners=job, user=f"maker-{team}"),
        validated(2, **pod, digest=f"d-{team}", owners=job, user=f"maker-{team}"),
        waiting(3, **pod, reason=f"Reason{team}"),
        bound(4, pod=first, digest=f"d-{team}", user=f"binder-{team}", **more),
        started(5, pod=first, **more),
        violation(6, pod=first, **more),
        validated(7, pod=first + 1, namespace=f"team-{team}", user=f"maker-{team}"),
        waiting(8, pod=first + 1, namespace=f"team-{team}", reason=f"Reason{team}"),
        refused(9, namespace=f"team-{team}", digest=f"r-{team}", user=f"maker-{team}"),
        released(10, pod=first + 2, **more),
    ]


def filled(store: SqlStore, *teams: str) -> SqlStore:
    cluster: list[AnyRecord] = [health(), settings_of(author="author-x"), snapshot_of()]
    records = [one for n, team in enumerate(teams) for one in of(team, 10 + 100 * n)]
    store.append(stored(*cluster, *records))
    return store


def answers(store: SqlStore, scope: Scope) -> dict[str, object]:
    """Return all that a reader can be told, and what they can ask for by name."""
    many, every = PageRequest(size=1000), RecordFilter()
    hunted = [
        DecisionFilter(namespace="team-b"),
        DecisionFilter(pod="train-*"),
        DecisionFilter(requester="person-b"),
        DecisionFilter(node="node-b"),
        DecisionFilter(digest="d-b"),
        DecisionFilter(owner="job-b"),
    ]
    everybody = store.decisions(EVERYTHING, DecisionFilter(), many).rows
    return {
        "decisions": store.decisions(scope, DecisionFilter(), many).rows,
        "hunted": [store.decisions(scope, query, many).rows for query in hunted],
        "facets": store.facets(scope, DecisionFilter()),
        "hunted facets": [store.facets(scope, query) for query in hunted],
        "decision": [store.decision(scope, row.digest, row.pod_uid) for row in everybody],
        "life": [store.life(scope, row) for row in everybody],
        "records": store.records(scope, every, many).rows,
        "of b": [
            store.records(scope, query, many).rows
            for query in (
                RecordFilter(namespace="team-b"),
                RecordFilter(pod="train-110"),
                RecordFilter(pod_uid=uid(110)),
                RecordFilter(node="node-b"),
                RecordFilter(digest="d-b"),
                RecordFilter(kinds=frozenset({"violation"})),
            )
        ],
        "usage": store.usage(scope, SINCE, UNTIL),
        "overview": store.overview(scope, SINCE),
        "export": list(store.export(scope, every)),
    }


def text(found: object) -> str:
    return msgspec.json.encode(found).decode()


@pytest.mark.parametrize("scope", SCOPES, ids=str)
def test_what_happens_in_b_changes_nothing_that_a_reader_of_a_is_told(
    store: SqlStore, scope: Scope
) -> None:
    """Not a row, not a name, not a count, not the size of a page."""
    filled(store, "a", "b")
    told = text(answers(store, scope))
    beyond = ["team-b", "node-b", "person-b", "maker-b", "binder-b", "Reasonb", "job-b", uid(110)]
    if scope.namespaces is not None:
        assert [word for word in beyond if word in told] == []
    if not scope.people:
        people = ["person-a", "maker-a", "binder-a", "author-x", "person-b", "maker-b"]
        assert [word for word in people if word in told] == []
    if not scope.cluster:
        cluster = [
            "GPU-1 ",
            '"kind":"health"',
            '"kind":"settings"',
            '"kind":"snapshot"',
            'last_record":{"',
        ]
        assert [word for word in cluster if word in told] == []


def test_a_reader_of_a_is_told_the_same_without_b(
    opened: Callable[[], SqlStore], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The answers are those of a store that holds nothing else."""
    both = opened()
    both.append(stored(*of("a", 10), *of("b", 110)))
    alone = SqlStore(_database(tmp_path_factory))
    first = {one.record.id for one in both.export(A, RecordFilter())}
    alone.append([one for one in both.export(EVERYTHING, RecordFilter()) if one.record.id in first])
    for scope in (A, PEOPLE_OF_A):
        told, expected = answers(both, scope), answers(alone, scope)
        for name in told.keys() - {"decision", "life"}:  # which are asked of every row there is
            assert told[name] == expected[name], name
    alone.close()


def _database(factory: pytest.TempPathFactory) -> SqliteDatabase:
    return SqliteDatabase(factory.mktemp("alone") / "records.db")


def test_each_scope_is_told_what_is_its_own(store: SqlStore) -> None:
    """Hiding is no excuse for saying nothing."""
    filled(store, "a", "b")
    many, every = PageRequest(size=1000), DecisionFilter()
    assert {row.namespace for row in store.decisions(A, every, many).rows} == {"team-a"}
    assert {row.requester for row in store.decisions(A, every, many).rows} == {""}
    people = {row.requester for row in store.decisions(PEOPLE_OF_A, every, many).rows}
    assert people == {"person-a", "maker-a"}
    assert store.overview(A, SINCE).violations == 1
    assert store.overview(EVERYTHING, SINCE).violations == 2
    assert len(store.decisions(PODS, every, many).rows) == 6
    assert store.decisions(NOTHING, every, many).rows == ()
    kinds = {type(one.record).__name__ for one in store.export(NODES, RecordFilter())}
    assert kinds == {"HealthRecord", "SettingsRecord", "SnapshotRecord"}
    assert store.overview(NODES, SINCE).unhealthy == ("gpu-1 GPU-1",)
    asked = DecisionFilter(requester="person-a")
    assert store.decisions(A, asked, many).rows == ()
    assert store.decisions(PEOPLE_OF_A, asked, many).rows != ()
