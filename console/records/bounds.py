"""Bounds of a record from outside: what every store can keep, and no row grows beyond.

PostgreSQL keeps no NUL in a text and SQLite no whole number of more than 64 bits. One record that
a store cannot take would hold up all that its sender has after it.
"""

from typing import Any, Final

import msgspec

from allocator.audit.record import AnyRecord

LONGEST_TEXT: Final = 1024 * 1024  # characters of any text; a ConfigMap has as many
LARGEST_NUMBER: Final = 2**53  # beyond which JSON's readers lose digits
MOST_VALUES: Final = 20_000  # in one record
DEEPEST: Final = 24  # levels of nesting


def value_fault(record: AnyRecord) -> str:
    """Return which value of *record* no store may be given; empty where there is none.

    All values are looked at without recursion: each is in the stack with its depth.
    """
    stack: list[tuple[Any, int]] = [(msgspec.to_builtins(record), 0)]
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
