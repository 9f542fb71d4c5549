"""Tables as CSV and JSON, and the addresses that return them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from console.get.listing import API_VERSION, csv_value
from console.get.table import csv_line
from console.pages.parts.blocks import PageQuestion, PageTable, PageView

FORMATS: Final = ("csv", "json")


def with_exports(view: PageView, question: PageQuestion) -> PageView:
    """Return *view*; it and each of its tables tell where they are found as CSV and JSON."""
    cursor = {"after": question.value("after")}
    blocks = (
        replace(
            block,
            exports=tuple(
                (form, question.with_values(format=form, table=block.name, **cursor))
                for form in FORMATS
            ),
        )
        if isinstance(block, PageTable)
        else block
        for block in view.blocks
    )
    json = "" if view.document is None else question.with_values(format="json", **cursor)
    return replace(view, blocks=tuple(blocks), json=json)


def table_named(view: PageView, name: str) -> PageTable | None:
    """Return a table of *view*, the first where none is named; ``None`` where there is none."""
    tables = view.tables
    if not name:
        return tables[0] if tables else None
    return next((table for table in tables if table.name == name), None)


def table_document(table: PageTable, question: PageQuestion) -> dict[str, Any]:
    """Return *table* as a document; ``next`` is the address of its next page."""
    keys = [column.key for column in table.columns]
    cursor = table.more and f"{table.more}&format=json&table={table.name}"
    return {
        "apiVersion": API_VERSION,
        "kind": "Table",
        "name": table.name,
        "at": question.now.isoformat(),
        "items": [dict(zip(keys, (cell.exact for cell in row), strict=True)) for row in table.rows],
        "next": cursor or None,
    }


def csv_lines(table: PageTable) -> Iterator[str]:
    """Yield *table* as CSV, its columns first; what is unknown is empty."""
    yield csv_line([column.key for column in table.columns])
    for row in table.rows:
        yield csv_line([csv_value(cell.exact) for cell in row])
