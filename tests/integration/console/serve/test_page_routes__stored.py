"""The pages over the real store: records go in, and are found on every page."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.applications import Starlette

from console.records.query import EVERYTHING, Scope
from console.records.rows import DecisionRow, RowPage
from console.serve.page_routes import page_routes
from console.store.opening import open_store
from console.store.store import RecordStore, StoreError
from tests.builders.console import record, typical_records
from tests.fakes.record_store import FakeRecordStore
from tests.harness.asgi import get
from tests.harness.console_site import services_of
from tests.harness.page_checks import problems_of
from tests.integration.console.serve.test_page_routes import PATHS

TEAM_B = Scope(namespaces=frozenset({"team-b"}), cluster=False, people=True)
MANY = 250


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecordStore]:
    opened = open_store(str(tmp_path / "records.db"))
    opened.append(typical_records())
    yield opened
    opened.close()


def app(store: RecordStore, scope: Scope = EVERYTHING) -> Starlette:
    return Starlette(routes=page_routes(services_of(store, scope=scope)))


@pytest.mark.parametrize("name", [name for name in PATHS if name != "decision-waiting"])
def test_a_page_is_whole(store: RecordStore, name: str) -> None:
    """With what the real store answers, too."""
    answer = get(app(store), PATHS[name])

    assert answer.status == 200
    assert problems_of(answer.text) == []


def test_a_pod_is_found_from_the_list_to_its_last_record(store: RecordStore) -> None:
    """By its namespace, with the person behind its Deployment, and all that happened to it."""
    listed = json.loads(get(app(store), "/decisions?ns=team-a&since=all&format=json").text)
    [mine] = [row for row in listed["items"] if row["pod"] == "team-a/train-0"]
    page = get(app(store), f"/decisions/{mine['digest']}").text

    assert (mine["verdict"], mine["outcome"], mine["node"]) == ("rewritten", "running", "gpu-a")
    assert "1,968 MiB more than asked" in page
    assert "violation: memory" in page
    assert "waits no longer" in page
    assert page.index("rewritten") < page.index("bound") < page.index("allocated")


def test_pages_of_a_list_have_each_decision_once(store: RecordStore) -> None:
    """Cursors of the store are those of the addresses."""
    store.append(
        [
            record(
                "admission",
                5 + number / 1000,
                namespace="team-c",
                pod=f"p{number:03}",
                pod_uid=f"uid-{number}",
                digest="aaaaaaaaaa",
                step="mutate",
                outcome="rewritten",
                mode="mig",
            )
            for number in range(MANY)
        ]
    )
    found: list[str] = []
    address = "/decisions?ns=team-c&since=all&format=json"
    for _ in range(MANY // 100 + 1):
        answer = json.loads(get(app(store), address).text)
        found += [row["pod"] for row in answer["items"]]
        address = answer["next"]

    assert address is None
    assert sorted(found) == [f"team-c/p{number:03}" for number in range(MANY)]


def test_a_viewer_of_one_namespace_finds_only_its_own(store: RecordStore) -> None:
    """On the real store too, by its name, its digest, its uid and its node."""
    narrow = app(store, TEAM_B)

    assert "team-a/" not in get(narrow, "/decisions?since=all&q=ns:team-a").text
    assert get(narrow, "/decisions/k7q2m4x7tb").status == 404
    assert get(narrow, "/decisions/k7q2m4x7tb/train-0").status == 404
    for question in (
        "uid=train-0",
        "node=gpu-a",
        "digest=k7q2m4x7tb",
        "kind=settings",
        "pod=train-0",
    ):
        assert json.loads(get(narrow, f"/records?{question}&format=json").text)["items"] == []


class Unreadable(FakeRecordStore):
    """A store on a disk that is gone."""

    def decisions(self, *_: object) -> RowPage[DecisionRow]:
        raise StoreError("/data/records.db cannot be read: disk I/O error")


def test_a_store_that_cannot_be_read_is_told() -> None:
    """A page says so with 503; what the store said is not for browsers."""
    answer = get(app(Unreadable()), "/decisions")

    assert answer.status == 503
    assert "records.db" not in answer.text
    assert problems_of(answer.text) == []
