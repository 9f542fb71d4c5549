"""Changes: a patch as a person reads it, field by field, with what stood there before."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from webhook.core.patch import Operation

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
