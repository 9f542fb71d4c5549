"""The table of what admission changed in a pod: the values of ours, never what a tenant wrote."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec
import orjson

from allocator.audit.record import ChangePart
from console.languages.messages import message
from console.pages.parts.blocks import PageTable, TableColumn
from console.pages.parts.cell import TableCell, code, unknown

_LONGEST_VALUE: Final = 2000  # characters of a value


def changes_table(changes: Sequence[ChangePart]) -> PageTable:
    """Return the changes of a pod, with what was there before where that is known."""
    return PageTable(
        name="changes",
        caption=message("What was changed in the pod"),
        columns=(
            TableColumn(key="path", title=message("Field")),
            TableColumn(key="was", title=message("Was")),
            TableColumn(key="now", title=message("Is now")),
        ),
        rows=tuple(map(_change, changes)),
        note=message(
            "What a tenant wrote is not part of a record: what was there before is shown "
            "as present or absent."
        ),
    )


def _change(change: ChangePart) -> tuple[TableCell, ...]:
    absent, hidden = unknown(message("absent")), TableCell(text=message("(as the pod had it)"))
    before = absent if change.op == "add" else hidden
    if change.op == "remove":
        after = unknown(message("removed"))
    elif change.value is msgspec.UNSET:
        after = TableCell(text=message("(not only ours, so not recorded)"))
    else:
        text = (
            change.value if isinstance(change.value, str) else orjson.dumps(change.value).decode()
        )
        after = replace(code(text[:_LONGEST_VALUE] or '""'), value=change.value)
    return code(change.path), before, after
