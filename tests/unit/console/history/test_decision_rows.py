"""Decisions in a terminal: tables, documents, and one decision with the life of its pod."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import yaml

from allocator.report.terminal_lines import plain_text, printed_lines
from console.get.listing import Listing, OutputFormat, in_order, listing_lines
from console.history.answers import DecisionAnswer, RecordAnswer
from console.history.decision_rows import decision_listing
from console.history.decision_text import decision_document, decision_lines
from console.records.query import PodOutcome
from console.records.rows import DecisionRow
from tests.builders.history import DECISIONS, LIFE, REFUSED, TRAIN, WAITING
from tests.builders.hostile_text import HOSTILE_TEXTS
from tests.unit.console.sites import NOW

Golden = Callable[[str, str], str]
WIDTH = 80
ANSWER = DecisionAnswer(
    decision=TRAIN, records=tuple(RecordAnswer(record=record, sender="webhook") for record in LIFE)
)


def listing(*, spaces: bool = False) -> Listing:
    return decision_listing(DECISIONS, NOW, spaces=spaces)


def table(shown: Listing, output: OutputFormat = OutputFormat.TABLE) -> str:
    return "".join(f"{line}\n" for line in listing_lines(shown, output))


def page(answer: DecisionAnswer) -> str:
    return "".join(f"{plain_text(line)}\n" for line in printed_lines(decision_lines(answer)))


def test_decisions_are_shown_as_reviewed(golden: Golden) -> None:
    """A usual list fits a terminal of 80 columns; more stands in -o wide."""
    shown, wide = table(listing()), table(listing(spaces=True), OutputFormat.WIDE)

    assert shown == golden("kubectl-decisions.txt", shown)
    assert max(map(len, shown.splitlines())) <= WIDTH
    assert wide == golden("kubectl-decisions-wide.txt", wide)


def test_documents_are_what_docs_promise(golden: Golden) -> None:
    """Keys are public: they are only ever added; YAML says the same as JSON."""
    shown, same = table(listing(), OutputFormat.JSON), table(listing(), OutputFormat.YAML)
    csv = table(listing(), OutputFormat.CSV)

    assert shown == golden("kubectl-decisions.json", shown)
    assert yaml.safe_load(same) == json.loads(shown)
    assert csv == golden("kubectl-decisions.csv", csv)


def test_the_latest_is_the_youngest() -> None:
    """LAST is sorted by time, not by the text of its cells."""
    ordered = in_order(listing(), "LAST")

    assert [cells[0] for cells in ordered.cells] == ["9m", "22m", "3h42m", "32d"]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        pytest.param("running", ANSWER, id="running"),
        pytest.param("refused", DecisionAnswer(decision=REFUSED), id="refused"),
        pytest.param("waiting", DecisionAnswer(decision=WAITING), id="waiting"),
    ],
)
def test_one_decision_is_shown_as_reviewed(
    name: str, answer: DecisionAnswer, golden: Golden
) -> None:
    """Who asked, what was given and why, and what became of it, on 80 columns."""
    shown = page(answer)

    assert shown == golden(f"kubectl-decision-{name}.txt", shown)
    assert max(map(len, shown.splitlines())) <= WIDTH


def test_a_document_of_one_decision_has_its_records_as_they_were_written() -> None:
    """What a table leaves out, a program finds."""
    document = decision_document(ANSWER)

    assert document["kind"] == "Decision"
    assert document["decision"]["requester"] == "amy"
    assert [each["record"] for each in document["life"]] == list(LIFE)
    assert json.loads(json.dumps(document))["decision"]["asked"][0]["memoryMiB"] == 18000


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_what_a_tenant_wrote_steers_no_terminal(text: str) -> None:
    """Neither a table nor a page has what a terminal would obey, and each row is one line."""
    row = replace(
        TRAIN,
        pod=text,
        namespace=text,
        requester=text,
        text=text,
        reason=text,
        node=text,
        user=text,
    )
    hostile = {**LIFE[1], "text": text, "node": text, "kind": "waiting"}
    shown = table(decision_listing([row], NOW, spaces=True), OutputFormat.WIDE)
    whole = page(DecisionAnswer(decision=row, records=(RecordAnswer(record=hostile),)))

    assert len(shown.splitlines()) == 2
    assert all(line.isprintable() for line in (shown + whole).split("\n"))


def test_what_is_unknown_is_neither_zero_nor_guessed() -> None:
    """A decision of which little is known has no numbers of it."""
    bare = DecisionRow(
        digest="d", first="", last="no time", verdict="error", namespace="a", state=PodOutcome.OVER
    )
    (cells,) = decision_listing([bare], NOW, spaces=False).cells

    assert cells[:6] == ("<unknown>", "<none>", "<none>", "over", "<none>", "<none>")
