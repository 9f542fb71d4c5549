"""A patch as a person reads it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from allocator.config.manifest import Json
from allocator.model.untrusted import escaped
from allocator.request.quantity import in_digits
from webhook.review.json_patch import Operation

Tokens = tuple[str, ...]  # a JSON pointer taken apart
APPENDED = "-"  # the last token of what is added at the end of a list


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """One field that a patch changes; ``None`` is a field that is not there."""

    at: Tokens
    before: object
    after: object


def changes(received: object, operations: Iterable[Operation]) -> Iterator[FieldChange]:
    """Yield what *operations*, which add and remove, do to the object as it was *received*.

    A mapping or list that is added whole is shown as the fields or elements it consists of.
    """
    for operation in operations:
        at = tokens(operation["path"])
        before = _value(received, at)
        if operation["op"] == "remove":
            yield FieldChange(at=at, before=before, after=None)
        else:
            yield from _leaves(at, before, operation["value"])


def tokens(pointer: str) -> Tokens:
    """Take a JSON pointer (RFC 6901) apart."""
    parts = pointer.split("/")[1:]
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)


def _leaves(at: Tokens, before: object, after: object) -> Iterator[FieldChange]:
    if at[-1] != APPENDED and isinstance(after, Mapping):
        for key, value in after.items():
            inner = before.get(key) if isinstance(before, Mapping) else None
            yield from _leaves((*at, key), inner, value)
    elif isinstance(after, Sequence) and not isinstance(after, str):
        for value in after:
            yield FieldChange(at=(*at, APPENDED), before=None, after=value)
    else:
        yield FieldChange(at=at, before=before, after=after)


def _value(node: object, at: Tokens) -> object:
    for token in at:
        if isinstance(node, Mapping):
            node = node.get(token)
        elif isinstance(node, Sequence) and token.isdigit() and int(token) < len(node):
            node = node[int(token)]
        else:
            return None
    return node


_MOST_VARIABLES: Final = 2  # shown one by one; more are counted
_NAMES: Final = {"volumeMounts": "mountPath", "volumes": "name"}
_WORDS: Final = {"volumeMounts": "mounts at", "volumes": "volumes"}


def sections(received: Json, operations: Iterable[Operation]) -> Iterator[tuple[str, list[str]]]:
    """Yield each part of a pod that *operations* change, and its lines, signed ``+`` or ``-``.

    A value that is replaced makes two lines, as in any diff.
    """
    field_changes = list(changes(received, operations))
    for part, group in groupby(field_changes, key=lambda change: _part(change.at)):
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


def _lines(field_changes: Sequence[FieldChange], part: Tokens) -> Iterator[str]:
    for appended, group in groupby(field_changes, key=lambda change: change.at[-1] == APPENDED):
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
            is_amount = isinstance(value, str) and "resources" in outer
            yield f"{sign} {label}: {in_digits(str(value)) if is_amount else value}"


def _added_lines(field: str, entries: Sequence[Any]) -> Iterator[str]:
    if field != "env":
        names = ", ".join(str(entry[_NAMES[field]]) for entry in entries)
        yield f"+ {_WORDS[field]} {names}"
    elif len(entries) > _MOST_VARIABLES:
        yield f"+ {len(entries)} variables (docs/injection.md)"
    else:
        for entry in entries:
            yield f"+ env {entry['name']}={entry.get('value', '…')}"
