"""The pages as a browser gets them: golden, valid, escaped, and nobody else's."""

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from starlette.applications import Starlette

from console.pages.parts.links import decision_address
from console.serve.page_routes import page_routes
from tests.builders.console import hostile_rows
from tests.harness.asgi import get
from tests.harness.console_site import console_app, services
from tests.harness.page_checks import problems_of

PATHS = {
    "overview": "/",
    "decisions": "/decisions",
    "decision": "/decisions/k7q2m4x7tb",
    "decision-refused": "/decisions/q4z7m2c6vd",
    "decision-waiting": "/decisions/w3w3w3w3w3/tune-9",
    "pods": "/pods",
    "nodes": "/nodes",
    "node-mig": "/nodes/gpu-a",
    "node-shared": "/nodes/gpu-b",
    "fit": "/fit",
    "fit-answer": "/fit?memory=15000&cores=10&count=1&ns=team-a",
    "fit-problem": "/fit?memory=8Gb&cores=140&count=0&mode=smi",
    "namespaces": "/namespaces",
    "waiting": "/waiting",
    "records": "/records",
    "settings": "/settings",
    "health": "/health",
    "reasons": "/reasons",
}
LISTS = (
    "overview",
    "decisions",
    "pods",
    "nodes",
    "namespaces",
    "waiting",
    "records",
    "settings",
    "health",
)
HASH = re.compile(r"(/static/\w+)\.[0-9a-f]{16}\.")


def without_hashes(html: str) -> str:
    return HASH.sub(r"\1.HASH.", html)


@pytest.mark.parametrize("name", PATHS)
def test_a_page_is_as_the_golden_one(name: str, golden: Callable[[str, str], str]) -> None:
    """With a day of records, each page shows what it showed."""
    answer = get(console_app(), PATHS[name])
    html = without_hashes(answer.text)

    assert answer.status == 200
    assert html == golden(f"console-{name}.html", html)
    assert problems_of(html) == []


@pytest.mark.parametrize("name", LISTS)
def test_an_empty_page_teaches(name: str, golden: Callable[[str, str], str]) -> None:
    """Without a record and without a node, a page says what would fill it."""
    html = without_hashes(get(console_app("empty"), PATHS[name]).text)

    assert html == golden(f"console-{name}-empty.html", html)
    assert problems_of(html) == []


@pytest.mark.parametrize("name", ["overview", "namespaces"])
def test_what_is_used_is_drawn_and_told(name: str, golden: Callable[[str, str], str]) -> None:
    """With a Prometheus, a page shows what is used of what is promised, and who holds it idle."""
    html = without_hashes(get(console_app("measured"), PATHS[name]).text)

    assert html == golden(f"console-{name}-measured.html", html)
    assert problems_of(html) == []


@pytest.mark.parametrize("path", ["/", "/nodes", "/decisions", "/fit"])
@pytest.mark.parametrize(("age", "text"), [(None, ""), (0.0, ""), (120.0, ""), (301.0, "5m1s old")])
def test_a_picture_that_is_old_is_said_to_be(path: str, age: float | None, text: str) -> None:
    """After two minutes without a word of the API server; figures would look like those of now."""
    app = Starlette(routes=page_routes(replace(services(), age=lambda: age)))
    html = get(app, path).text

    assert ('role="alert" class="outdated"' in html, text in html) == (bool(text), True)
    assert problems_of(html) == []


def test_a_table_is_the_same_in_json() -> None:
    """What is unknown is null, never 0 or a dash."""
    found = json.loads(get(console_app(), "/decisions?format=json").text)

    refused = found["items"][0]
    assert (refused["pod"], refused["times"], refused["given"]) == ("team-a/big-", 14, None)


HOSTILE_PATHS = (
    *(PATHS[name] for name in LISTS),
    "/decisions?since=all&q=ns:%22%3Cscript%3Ealert(1)%3C/script%3E%22+bogus:x+%3Cb%3E",
    "/records?since=%3Cscript%3E&kind=%27--&pod=%E2%80%AE",
    "/fit?memory=%3Cscript%3E&cores=%22%3E&mode=%3Cimg%3E&model=%3Cb%3E&ns=%3Ci%3E",
    "/nodes?q=%3Cscript%3Ealert(1)%3C/script%3E",
    "/pods?ns=%22%3E%3Cscript%3E&state=%3C",
)


@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_what_strangers_wrote_is_text(path: str) -> None:
    """HTML, SQL, templates, control characters and marks that turn text round do nothing."""
    answer = get(console_app("hostile"), path)

    assert problems_of(answer.text) == []
    assert "<script>alert" not in answer.text
    assert "<img" not in answer.text
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b-\x1f]", answer.text)
    assert "49" not in re.findall(r"\{\{ ?(\d+)", answer.text)


def hostile_decisions() -> list[str]:
    return sorted({decision_address(row.digest, row.pod_uid) for row in hostile_rows()} - {""})


@pytest.mark.parametrize("address", hostile_decisions())
def test_a_decision_of_strangers_is_text(address: str) -> None:
    """So it is on the page of one decision, with a record of each kind."""
    answer = get(console_app("hostile"), address)

    assert problems_of(answer.text) == []
    assert "<script>alert" not in answer.text
    assert answer.status == 200
