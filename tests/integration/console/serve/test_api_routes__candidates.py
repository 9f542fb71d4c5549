"""What GPUs answered to a stored decision: from the real store to whoever may see nodes."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.applications import Starlette

from allocator.audit.record import AnyRecord
from allocator.model.request import Mode
from allocator.replay.request_codec import RecordedRequest
from allocator.report.terminal_lines import plain_text, printed_lines
from console.history.answers import DECISION
from console.history.decision_text import decision_document, decision_lines
from console.records.query import EVERYTHING, Scope
from console.records.rows import StoredRecord
from console.serve.api_routes import api_routes
from console.serve.page_routes import page_routes
from console.store.opening import open_store
from console.store.store import RecordStore
from tests.builders.audit import Bound, recorded_admission, recorded_bind
from tests.builders.model import T4, ask, gpu, node, pod, snapshot, soft_grant
from tests.harness.asgi import get
from tests.harness.console_site import services_of

ASKED = RecordedRequest(request=pod(ask(4000)))
BUSY = gpu(T4, grants=(soft_grant(14_000),))
THERE = node("gpu-b", BUSY, gpu(T4, index=1))
WHOSE: dict[str, Any] = {"namespace": "team-a", "pod": "p", "digest": "abc", "pod_uid": "uid-1"}
ADMITTED = recorded_admission(ASKED, snapshot(THERE), **WHOSE)
BOUND = recorded_bind(Bound(asked=replace(ASKED, final=Mode.HAMI_CORE), node=THERE, fields=WHOSE))
API = "/api/v1/decisions/abc/uid-1"
TEAM = Scope(namespaces=frozenset({"team-a"}), cluster=False, people=True)


def records() -> list[AnyRecord]:
    found = (
        ADMITTED.admission,
        ADMITTED.settings,
        ADMITTED.snapshot,
        BOUND.bind,
        BOUND.snapshot,
    )
    return [
        msgspec.structs.replace(record, id=f"{number:032x}")
        for number, record in enumerate(found)
        if record is not None
    ]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecordStore]:
    with contextlib.closing(open_store(str(tmp_path / "records.db"))) as opened:
        opened.append([StoredRecord(record=one, sender="x") for one in records()])
        yield opened


def app(store: RecordStore, scope: Scope = EVERYTHING) -> Starlette:
    services = services_of(store, scope=scope)
    return Starlette(routes=[*api_routes(services), *page_routes(services)])


def test_the_terminal_shows_what_the_store_holds(store: RecordStore) -> None:
    """From the record of the bind to the line: the full GPU, and the one that was given."""
    answer = DECISION.decode(get(app(store), API).text.encode())

    lines = [plain_text(line) for line in printed_lines(decision_lines(answer))]
    document: dict[str, Any] = decision_document(answer)

    assert "  * gpu-b GPU 1, Tesla T4, hami-core: fits, 15360 of 15360 MiB free; withholds" in lines
    assert any(line.startswith("    gpu-b GPU 0") and "1360 of 15360" in line for line in lines)
    assert [row["named"] for row in document["candidates"]["bind"]["rows"]] == [True, False]
    assert document["candidates"]["admission"]["rows"][0]["cost_per_mille"] == 261


def test_the_page_has_the_same_rows(store: RecordStore) -> None:
    """A table for each decision, with what the answer in JSON has."""
    page = get(app(store), "/decisions/abc/uid-1").text

    assert "Kinds of GPU that admission weighed" in page
    assert "1360 of 15360 MiB free" in page
    assert "GpuMemoryShort" in page


@pytest.mark.parametrize(
    "path", ["/api/v1/decisions/abc/uid-1", "/decisions/abc/uid-1?format=json"]
)
def test_whoever_may_not_see_nodes_learns_nothing_of_other_pods(
    store: RecordStore, path: str
) -> None:
    """What was free on a node tells of others there; neither pages nor answers say it."""
    team, everybody = get(app(store, TEAM), path), get(app(store), path)

    assert team.status == 200
    assert "of 15360 MiB free" not in team.text
    assert "of 15360 MiB free" in everybody.text
