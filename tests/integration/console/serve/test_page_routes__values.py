"""Hostile values of every name that an address of the pages may have, over the real store."""

import csv
import io
import json
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest
from starlette.applications import Starlette

from console.serve.page_routes import page_routes
from console.store.opening import open_store
from tests.builders.console import typical_records
from tests.harness.asgi import get
from tests.harness.console_site import console_app, services_of
from tests.harness.page_checks import problems_of

NAMES = {
    "/": ("since", "lang"),
    "/decisions": ("q", "ns", "pod", "owner", "by", "verdict", "reason", "mode", "digest", "node"),
    "/decisions/k7q2m4x7tb": ("today", "lang"),
    "/waiting": ("since", "q"),
    "/namespaces": ("since", "lang"),
    "/records": ("kind", "ns", "pod", "uid", "node", "digest", "since", "until"),
    "/settings": ("since", "kind"),
    "/health": ("since", "lang"),
    "/reasons": ("q", "lang"),
    "/nodes": ("q", "node", "lang"),
    "/nodes/gpu-a": ("q", "since"),
    "/pods": ("ns", "pod", "node", "state"),
    "/fit": ("memory", "cores", "count", "mode", "model", "ns"),
}
LISTS = ("/decisions", "/waiting", "/records", "/settings")
VALUES = [
    "\0",
    "\r\nSet-Cookie: a=b",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\u202eabc\u2066",
    "9" * 3000,
    "-1",
    "1e308",
    "NaN",
    "\u0664\u0662",
    "' OR 1=1 --",
    "%s{{7*7}}",
    "../../etc/passwd",
    "=HYPERLINK(1)",
    "0000-00-00T00:00:00Z",
    "9999-12-31T23:59:59.999999999+23:59",
    "a:b " * 400,
]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starlette]:
    """Yield the pages over a store that nobody writes to."""
    store = open_store(str(tmp_path_factory.mktemp("store") / "records.db"))
    store.append(typical_records())
    yield Starlette(routes=page_routes(services_of(store)))
    store.close()


@pytest.mark.parametrize("path", NAMES)
@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_whatever_an_address_says_the_page_is_whole(
    pages: Starlette, path: str, value: str
) -> None:
    """What is not understood is named on the page, as text."""
    answer = get(pages, f"{path}?{urlencode(dict.fromkeys(NAMES[path], value))}")

    assert answer.status == 200
    assert problems_of(answer.text) == []
    assert "<script>alert" not in answer.text
    assert "<img" not in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("value", [*VALUES, "\ud800", "A" * 4, "=" * 8, "_" * 128])
def test_a_cursor_of_strangers_is_none(pages: Starlette, path: str, value: str) -> None:
    """The answer is 400, never the first page as if it were the next one."""
    answer = get(pages, f"{path}?after={quote(value, errors='surrogatepass')}")

    assert answer.status == 400
    assert problems_of(answer.text) == []


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_a_format_or_table_of_strangers_is_refused(pages: Starlette, value: str) -> None:
    """With a page that names what there is."""
    for name, status in (("format", 400), ("format=csv&table", 404)):
        answer = get(pages, f"/nodes?{name}={quote(value)}")

        assert answer.status == status
        assert answer.headers["content-type"].startswith("text/html")
        assert "<script>alert" not in answer.text


@pytest.mark.parametrize("value", ["no-such-kind", "admission,bind", "ADMISSION", *VALUES])
def test_an_unknown_kind_is_named_and_keeps_nothing_back(pages: Starlette, value: str) -> None:
    """As a time that cannot be read does."""
    answer = get(pages, f"/records?kind={quote(value)}")
    listed = get(pages, f"/records?kind={quote(value)}&format=json")

    assert answer.status == 200
    assert "is not known; accepted: admission" in answer.text
    assert json.loads(listed.text)["items"]


@pytest.mark.parametrize("path", ["/decisions?since=all", "/records?pod=", "/pods?ns="])
def test_no_cell_of_an_export_is_a_formula(path: str) -> None:
    """Whatever strangers wrote into records, a program for tables reads text."""
    answer = get(console_app("hostile"), f"{path}&format=csv")
    rows = list(csv.reader(io.StringIO(answer.text, newline="")))

    assert len({len(row) for row in rows}) == 1
    assert [c for row in rows for c in row if c.startswith(tuple("=+@\t\r"))] == []
