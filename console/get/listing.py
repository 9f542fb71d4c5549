"""Listings: rows as a table for people, or as the document that docs/kubectl.md describes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec
import orjson

from allocator.report.document_text import document_text
from console.get.table import csv_line, sort_key, table

API_VERSION: Final = "vgpu-admission.io/v1alpha1"
AGE: Final = "AGE"
LAST: Final = "LAST"
_TIMES: Final = (AGE, LAST)  # columns that are sorted by time, not by the text of their cells


class OutputFormat(StrEnum):
    """The format of what a command prints."""

    TABLE = "table"
    WIDE = "wide"
    CSV = "csv"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A list as rows and as the cells of a table."""

    kind: str  # of the document
    row: type[msgspec.Struct]  # the type of each row
    columns: Sequence[str]
    wide: Sequence[str]  # further columns of -o wide
    rows: Sequence[msgspec.Struct]
    cells: Sequence[Sequence[str]]  # of each row, for all columns
    created: Sequence[datetime | None] = ()  # of each row; ages are counted from it


def in_order(listing: Listing, column: str) -> Listing:
    """Return *listing* sorted by *column*, the smallest first; as it is where it has none."""
    columns = [*listing.columns, *listing.wide]
    if column not in columns:
        return listing
    keys: Sequence[Any]
    if column in _TIMES:
        keys = [(time is None, -time.timestamp() if time else 0) for time in listing.created]
    else:
        place = columns.index(column)
        keys = [sort_key(cells[place]) for cells in listing.cells]
    return only_rows(listing, sorted(range(len(keys)), key=keys.__getitem__))


def only_rows(listing: Listing, indexes: Sequence[int]) -> Listing:
    """Return *listing* with the rows at *indexes*, in that order."""
    return replace(
        listing,
        rows=[listing.rows[index] for index in indexes],
        cells=[listing.cells[index] for index in indexes],
        created=[listing.created[index] for index in indexes] if listing.created else (),
    )


def listing_lines(listing: Listing, output: OutputFormat, *, headed: bool = True) -> Iterator[str]:
    """Yield the lines of a listing; *headed* says whether its columns are named."""
    if output is OutputFormat.WIDE:
        yield from table([*listing.columns, *listing.wide], listing.cells, headed=headed)
    elif output is OutputFormat.TABLE:
        few = len(listing.columns)
        yield from table(listing.columns, [row[:few] for row in listing.cells], headed=headed)
    elif output is OutputFormat.CSV:
        yield from _csv_lines(listing, headed=headed)
    else:
        items = [msgspec.to_builtins(row) for row in listing.rows]
        yield document({"apiVersion": API_VERSION, "kind": listing.kind, "items": items}, output)


def _csv_lines(listing: Listing, *, headed: bool) -> Iterator[str]:
    """Yield the fields of each row under their names in JSON."""
    names = [field.encode_name for field in msgspec.structs.fields(listing.row)]
    if headed:
        yield csv_line(names)
    for row in listing.rows:
        values = msgspec.to_builtins(row)
        yield csv_line([csv_value(values[name]) for name in names])


def csv_value(value: object) -> str:
    """Return a value as text: ``None`` as "", anything that is no text as JSON.

    Text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    if value is None or isinstance(value, str):
        return f"'{value}" if value and value[0] in _FORMULAS else value or ""
    return orjson.dumps(value).decode()


_FORMULAS: Final = "=+-@\t\r"  # what the text of a formula begins with


def document(content: dict[str, Any], output: OutputFormat) -> str:
    """Return *content* as JSON or YAML, without a line break at the end."""
    return document_text(content, yaml=output is OutputFormat.YAML)
