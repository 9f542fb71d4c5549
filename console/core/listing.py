"""Listings: rows as a table for people, or as the document that docs/kubectl.md describes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec
import orjson
import yaml

from console.core.table import table

API_VERSION: Final = "vgpu-admission.io/v1alpha1"


class Output(StrEnum):
    """How something is printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Rows of one *kind*, and what stands of each in the columns."""

    kind: str
    columns: Sequence[str]
    rows: Sequence[msgspec.Struct]
    cells: Sequence[Sequence[str]]


def printed(listing: Listing, output: Output, *, headed: bool = True) -> Iterator[str]:
    """Yield the lines of a listing; *headed* says whether a table names its columns."""
    if output in (Output.TABLE, Output.WIDE):
        yield from table(listing.columns, listing.cells, headed=headed)
        return
    items = [msgspec.to_builtins(row) for row in listing.rows]
    yield document({"apiVersion": API_VERSION, "kind": listing.kind, "items": items}, output)


def document(found: dict[str, Any], output: Output) -> str:
    """Return *found* as JSON or YAML, without the last line's end."""
    if output is Output.YAML:
        plain = orjson.loads(orjson.dumps(found))  # YAML knows no enums, and tags tuples
        return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip("\n")
    return orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()
