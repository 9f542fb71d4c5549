"""The page and the JSON Schema of audit records, made from :mod:`allocator.audit.record`.

``python -m allocator.audit.record_page_files docs`` writes both.
"""

import inspect
import re
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Any, Final, get_args, get_origin

import msgspec

from allocator.audit import record as schema

NAME: Final = "records"  # of the page and of the schema beside it
BEGIN: Final = "<!-- table: records -->\n"
END: Final = "<!-- end -->\n"

TITLE: Final = "Audit record of vgpu-admission"
_FIELD: Final = re.compile(r"^    (\w+): [^#]*(?:#\s*(.*))?$")
_COMMENT: Final = re.compile(r"^    #\s*(.*)$")
_WORDS: Final = {str: "text", int: "integer", float: "number", bool: "true or false", Any: "any"}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of one record; fields of later versions are allowed."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": TITLE,
        **msgspec.json.schema(schema.AnyRecord),
    }


def record_tables() -> str:
    """Return a table of the fields of all records, one of each kind, and one of each part."""
    common = schema.Record
    sections = [
        "### Every record",
        _table(common, ()),
        *(_section(kind) for kind in get_args(schema.AnyRecord)),
        "## Parts of records",
        *(f"### {part.__name__}\n\n{_summary(part)}\n\n{_table(part, ())}" for part in _parts()),
    ]
    return "\n\n".join(sections)


def _section(kind: type[msgspec.Struct]) -> str:
    parent: type[msgspec.Struct] = kind.__mro__[1]
    inherited = [field.name for field in msgspec.structs.fields(parent)]
    also = "" if parent is schema.Record else f"It has all fields of `{_tag(parent)}`, and:\n\n"
    return f"### {_tag(kind)}\n\n{_summary(kind)}\n\n{also}{_table(kind, inherited)}"


def _tag(kind: type[msgspec.Struct]) -> str:
    return str(kind.__struct_config__.tag)


def _parts() -> list[type[msgspec.Struct]]:
    classes = [value for value in vars(schema).values() if inspect.isclass(value)]
    return [
        part
        for part in classes
        if issubclass(part, schema.Part) and not issubclass(part, schema.Record)
        if part is not schema.Part
    ]


def _summary(kind: type) -> str:
    return (inspect.getdoc(kind) or "").replace("``", "`")


def _table(kind: type[msgspec.Struct], inherited: list[str] | tuple[()]) -> str:
    meanings = _meanings(kind)
    rows = [
        f"| `{field.name}` | {_type_text(field.type)} | {'yes' if field.required else ''} |"
        f" {meanings.get(field.name, '').replace('|', 'or')} |"
        for field in msgspec.structs.fields(kind)
        if field.name not in inherited
    ]
    return "\n".join(("| field | type | always | meaning |", "| --- | --- | --- | --- |", *rows))


def _meanings(kind: type) -> dict[str, str]:
    """Return what the comments of *kind* say of each field, beside it or above it."""
    meanings: dict[str, str] = {}
    above: list[str] = []
    for line in inspect.getsource(kind).splitlines():
        if (comment := _COMMENT.match(line)) is not None:
            above.append(comment[1])
        elif (field := _FIELD.match(line)) is not None:
            meanings[field[1]] = " ".join((*above, field[2] or "")).strip()
            above = []
    return meanings


def _type_text(kind: Any) -> str:  # noqa: ANN401 -- a type as annotations have it
    inner = get_args(kind)
    if kind in _WORDS:
        text = _WORDS[kind]
    elif NoneType in inner:
        text = " or ".join(_type_text(one) for one in inner if one is not NoneType)
    elif get_origin(kind) is tuple and inner[-1] is Ellipsis:
        text = f"list of {_type_text(inner[0])}"
    elif get_origin(kind) is tuple:
        text = f"[{', '.join(map(_type_text, inner))}]"
    elif get_origin(kind) is dict:
        text = "object" if inner[1] is Any else f"{_type_text(inner[1])} by name"
    elif issubclass(kind, StrEnum):
        text = ", ".join(f"`{value}`" for value in kind)
    else:
        text = f"[{kind.__name__}](#{kind.__name__.lower()})"
    return text


def page_with_tables(page: str) -> str:
    """Return *page* with the tables of today; raises ``ValueError`` where it has no place."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN.strip()} with an {END.strip()} after it")
    return f"{before}{BEGIN}{record_tables()}\n{END}{after}"


def schema_text() -> str:
    """Return the JSON Schema as it is written."""
    text = msgspec.json.format(msgspec.json.encode(json_schema(), order="sorted"), indent=1)
    return f"{text.decode()}\n"


def main(arguments: Sequence[str]) -> int:
    """Write both files into the folder that is named."""
    (folder,) = map(Path, arguments)
    page = folder / f"{NAME}.md"
    page.write_text(page_with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
    (folder / f"{NAME}.schema.json").write_text(schema_text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
