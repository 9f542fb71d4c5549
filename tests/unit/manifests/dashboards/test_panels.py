"""Dashboards that Grafana can lay out, and that say what each figure answers."""

import json
import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from manifests.dashboards.files import DASHBOARDS
from manifests.dashboards.panels import COLUMNS, dashboard_text, expressions

ROOT = Path(__file__).parents[4]
DOCUMENTS = {path: json.loads(dashboard_text(each)) for path, each in DASHBOARDS.items()}
EVERY = pytest.mark.parametrize("document", DOCUMENTS.values(), ids=list(DOCUMENTS))


@pytest.mark.parametrize("path", DASHBOARDS)
def test_the_files_are_those_that_the_generator_writes(path: str) -> None:
    """`python -m manifests.generator` would change nothing."""
    assert (ROOT / "manifests" / path).read_text() == dashboard_text(DASHBOARDS[path])


def test_there_are_no_other_files() -> None:
    """A file that nobody generates is a file that nobody keeps."""
    folder = ROOT / "manifests/monitoring/dashboards"

    assert {f"monitoring/dashboards/{path.name}" for path in folder.iterdir()} == set(DASHBOARDS)
    assert len({document["uid"] for document in DOCUMENTS.values()}) == len(DOCUMENTS)


def figures(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in document["panels"] if panel["type"] != "row"]


@EVERY
def test_a_panel_begins_with_the_question_that_it_answers(document: dict[str, Any]) -> None:
    """Whoever points at it learns what the figure is good for."""
    assert figures(document)
    for panel in figures(document):
        assert re.match(r"[A-Z][^?]+\?", panel["description"]), panel["title"]
        assert panel["targets"]
    titles = [panel["title"] for panel in document["panels"]]
    assert len(titles) == len(set(titles))


@EVERY
def test_panels_do_not_overlap(document: dict[str, Any]) -> None:
    """Grafana would move them, each time to somewhere else."""
    places = [panel["gridPos"] for panel in document["panels"]]

    assert all(place["x"] + place["w"] <= COLUMNS for place in places)
    for one, other in combinations(places, 2):
        assert (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
    numbers = [panel["id"] for panel in document["panels"]]
    assert all(one < other for one, other in pairwise(numbers))


@EVERY
def test_what_is_unknown_is_neither_0_nor_joined(document: dict[str, Any]) -> None:
    """A gap is a gap."""
    for panel in figures(document):
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["noValue"] == "No data"
        assert defaults.get("custom", {}).get("spanNulls", False) is False


@EVERY
def test_every_variable_is_defined(document: dict[str, Any]) -> None:
    """An unknown one is sent to Prometheus as it stands, which matches nothing."""
    defined = {variable["name"] for variable in document["templating"]["list"]}
    links = [link["url"] for panel in figures(document) for link in panel["links"]]
    used = {
        name
        for text in (*links, *(expression for _, expression in expressions(document)))
        for name in re.findall(r"\$\{?(\w+)", text)
    }

    assert used - {"__rate_interval"} <= defined
    assert all(link.startswith("${console}/") for link in links)


@EVERY
def test_every_source_is_the_one_that_is_chosen(document: dict[str, Any]) -> None:
    """A dashboard is imported where the uid of the data source is another."""
    sources = {
        json.dumps(owner["datasource"])
        for panel in figures(document)
        for owner in (panel, *panel["targets"])
    }

    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}
