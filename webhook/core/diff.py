"""Diffs: what a patch changes in a pod, part by part, as short as it can be said."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from allocator.core.manifest import Json
from allocator.core.wording import escaped
from webhook.core.changes import APPENDED, FieldChange, Tokens, changes
from webhook.core.patch import Operation

_MOST_VARIABLES: Final = 2  # shown one by one; more are counted
_NAMES: Final = {"volumeMounts": "mountPath", "volumes": "name"}
_WORDS: Final = {"volumeMounts": "mounts at", "volumes": "volumes"}


def sections(received: Json, operations: Iterable[Operation]) -> Iterator[tuple[str, list[str]]]:
    """Yield each part of a pod that *operations* change, and its lines, signed ``+`` or ``-``.

    A value that is replaced makes two lines, as in any diff.
    """
    found = list(changes(received, operations))
    for part, group in groupby(found, key=lambda change: _part(change.at)):
        yield _title(received, part), list(_lines(list(group), part))


def _part(at: Tokens) -> Tokens:
    """Return which part of the pod *at* is in: one container, or a field beside them."""
    return at[:3] if at[1] in {"containers", "initContainers"} else at[:2]


def _title(received: Json, part: Tokens) -> str:
    top, field, *index = part
    if not index:
        return f"{top}.{field}"
    name = received[top][field][int(index[0])]["name"]
    return f"{top}.{field}[{index[0]}], {escaped(name)}"


def _lines(found: Sequence[FieldChange], part: Tokens) -> Iterator[str]:
    for appended, group in groupby(found, key=lambda change: change.at[-1] == APPENDED):
        if not appended:
            for change in group:
                yield from _replaced_lines(change, change.at[len(part) :])
            continue
        for field, same in groupby(group, key=lambda change: change.at[-2]):
            yield from _added_lines(field, [change.after for change in same])


def _replaced_lines(change: FieldChange, inner: Tokens) -> Iterator[str]:
    *outer, name = inner
    label = " ".join([*outer, escaped(name)])
    for sign, value in (("-", change.before), ("+", change.after)):
        if value is not None:
            yield f"{sign} {label}: {value}"


def _added_lines(field: str, entries: Sequence[Any]) -> Iterator[str]:
    if field != "env":
        names = ", ".join(str(entry[_NAMES[field]]) for entry in entries)
        yield f"+ {_WORDS[field]} {names}"
    elif len(entries) > _MOST_VARIABLES:
        yield f"+ {len(entries)} variables (docs/injection.md)"
    else:
        for entry in entries:
            yield f"+ env {entry['name']}={entry.get('value', '…')}"
