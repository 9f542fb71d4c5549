"""No part of a line can steer the terminal that it is printed on."""

import json

import pytest
import yaml

from allocator.model.decision import Candidate, Reason
from allocator.model.request import Mode
from allocator.model.untrusted import is_plain
from allocator.placement.choose import Choice, FitVerdict
from allocator.report.document_text import document_text
from allocator.report.feasibility_text import candidate_lines
from allocator.report.terminal_lines import (
    CutLine,
    HeadingLine,
    Line,
    ListLine,
    TextSpan,
    Tone,
    WrappedLine,
    plain_text,
    printed_lines,
    row,
)
from tests.builders.hostile_text import HOSTILE_TEXTS

HOSTILE = pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)


def every_line(text: str) -> list[Line]:
    """Build lines of every kind with *text* in each of their parts."""
    return [
        HeadingLine(text, text, Tone.BAD),
        WrappedLine(text, f"{text} {text}", Tone.PLAIN),
        ListLine(text, text, (text, f"{text}2")),
        CutLine(text, text, Tone.PLAIN, TextSpan(text)),
        (TextSpan(text), TextSpan(text, Tone.GOOD)),
        *row(text, text),
    ]


@HOSTILE
def test_no_part_of_a_line_steers_the_terminal(text: str) -> None:
    """Heads, ends and finished lines too: a table puts the model of a GPU into its head."""
    printed = [plain_text(line) for line in printed_lines(every_line(text))]

    assert len(printed) >= len(every_line(text))
    assert [line for line in printed if not is_plain(line)] == []


@HOSTILE
def test_a_table_of_answers_shows_no_model_as_it_is(text: str) -> None:
    """An agent names the model, and `plan` and `fit` put it into a column."""
    found = Candidate(
        node=text,
        gpu=text,
        model=f"NVIDIA {text}",
        mode=Mode.MIG,
        reason=Reason.NO_GEOMETRY,
        detail=text,
        container=text,
    )
    choice = Choice(assignment=None, verdict=FitVerdict.NEVER, findings=(), candidates=(found,))

    printed = [plain_text(line) for line in printed_lines(candidate_lines(choice))]

    assert len(printed) == 2
    assert all(map(is_plain, printed))


@HOSTILE
@pytest.mark.parametrize("as_yaml", [False, True], ids=["json", "yaml"])
def test_a_document_steers_no_terminal_and_loses_nothing(text: str, *, as_yaml: bool) -> None:
    """Scripts read what was there; whoever looks at it sees escapes."""
    content = {"items": [{"model": text, text: ["显存", 1, None]}]}

    shown = document_text(content, yaml=as_yaml)

    assert all(map(is_plain, shown.split("\n")))
    assert (yaml.safe_load if as_yaml else json.loads)(shown) == content


def test_other_scripts_stay_readable() -> None:
    """Only what is not plain is escaped."""
    assert "显存" in document_text({"a": "显存"}, yaml=False)
    assert "显存" in document_text({"a": "显存"}, yaml=True)
