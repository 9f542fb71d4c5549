"""Bounds of a record from outside: what every store can keep, and no row grows beyond.

PostgreSQL keeps no NUL in a text and SQLite no whole number of more than 64 bits. One record that
a store cannot take would hold up all that its sender has after it.
"""

import re
from datetime import datetime
from typing import Any, Final

import msgspec

from allocator.audit.record import AnyRecord
from allocator.model.untrusted import quote

LONGEST_NAME: Final = 253  # characters, as Kubernetes has it
LONGEST_TEXT: Final = 1024 * 1024  # characters of any other text; a ConfigMap has as many
LARGEST_NUMBER: Final = 2**53  # beyond which JSON's readers lose digits
MOST_VALUES: Final = 20_000  # in one record
DEEPEST: Final = 24  # levels of nesting
_ID: Final = re.compile("[0-9a-f]{32}")
_AT: Final = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
_NAMES: Final = ("instance", "node", "namespace", "pod", "pod_uid", "digest", "version")


def fault_of(record: AnyRecord) -> str:
    """Return what is wrong with the values of *record*; empty where nothing is."""
    if not _ID.fullmatch(record.id):
        return f"id is {quote(record.id)}; accepted: 32 hexadecimal digits in lower case"
    if not _is_time(record.at):
        return f"at is {quote(record.at)}; accepted: RFC 3339 in UTC with milliseconds"
    if record.schema < 1:
        return f"schema is {record.schema}; accepted: 1 and more"
    for name in _NAMES:
        if len(value := str(getattr(record, name))) > LONGEST_NAME:
            return f"{name} has {len(value)} characters; accepted: {LONGEST_NAME} at most"
    return _fault_within(msgspec.to_builtins(record))


def _is_time(text: str) -> bool:
    if not _AT.fullmatch(text):
        return False
    try:
        msgspec.json.decode(f'"{text}"', type=datetime)
    except msgspec.ValidationError:
        return False
    return True


def _fault_within(value: object) -> str:
    """Look at all values, without recursion: each is in the stack with its depth."""
    stack: list[tuple[Any, int]] = [(value, 0)]
    seen = 0
    while stack:
        each, depth = stack.pop()
        seen += 1
        if seen > MOST_VALUES or depth > DEEPEST:
            return f"over {MOST_VALUES} values, or {DEEPEST} levels of them"
        if isinstance(each, str):
            if "\0" in each or len(each) > LONGEST_TEXT:
                return f"a text has a NUL, or over {LONGEST_TEXT} characters"
        elif isinstance(each, (int, float)):
            if not -LARGEST_NUMBER <= each <= LARGEST_NUMBER:
                return f"a number is beyond {LARGEST_NUMBER}"
        elif isinstance(each, dict):
            stack += [(part, depth + 1) for pair in each.items() for part in pair]
        elif isinstance(each, (list, tuple)):
            stack += [(part, depth + 1) for part in each]
    return ""
