"""Tables for programs: the same cells, exact."""

import csv
import json

import orjson

from console.access.viewer import Viewer
from console.languages.messages import NOTHING, message
from console.pages.parts.blocks import PageQuestion, PageTable, PageView, TableColumn
from console.pages.parts.cell import code, mib, unknown
from console.pages.parts.export import csv_lines, table_document, table_named, with_exports
from tests.builders.console import HOSTILE
from tests.unit.console.sites import NOW

QUESTION = PageQuestion(
    path="/x", values={"ns": "a b", "after": "7"}, viewer=Viewer(user="u"), now=NOW
)


def table(name: str = "t", *texts: str) -> PageTable:
    return PageTable(
        name=name,
        caption=message("c"),
        columns=(
            TableColumn(key="name", title=message("N")),
            TableColumn(key="mib", title=message("M")),
        ),
        rows=(*((code(text), mib(1234)) for text in texts or ("a",)), (unknown(), mib(None))),
        more="/x?after=8",
    )


def test_what_is_unknown_is_null_and_empty() -> None:
    document = table_document(table(), QUESTION)

    assert document["items"] == [{"name": "a", "mib": 1234}, {"name": None, "mib": None}]
    assert document["next"] == "/x?after=8&format=json&table=t"
    assert list(csv_lines(table())) == ["name,mib", "a,1234", ","]


def test_nothing_in_a_cell_is_a_formula_or_ends_a_row() -> None:
    """A spreadsheet neither computes nor breaks what strangers wrote."""
    texts = [*HOSTILE, "=1+1", "@x", 'a,"b"\nc']
    lines = list(csv_lines(table("t", *texts)))
    rows = list(csv.reader(lines))

    assert len(lines) == len(texts) + 2
    assert all(len(row) == 2 for row in rows)
    assert [row[0][0] for row in rows if row[0][:2] in ("'=", "'@")] == ["'", "'"]
    assert orjson.loads(json.dumps(table_document(table("t", *texts), QUESTION)))


def test_a_table_says_where_it_is_found() -> None:
    """With the filters and the page of the address."""
    view = with_exports(
        PageView(title=NOTHING, heading=NOTHING, blocks=(table("a"), table("b"))), QUESTION
    )

    assert view.tables[1].exports[0] == ("csv", "/x?ns=a%20b&format=csv&table=b&after=7")
    assert table_named(view, "") is view.tables[0]
    assert table_named(view, "b") is view.tables[1]
    assert table_named(view, "c") is None
    assert view.json == ""
