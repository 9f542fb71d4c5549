"""What a record from outside may hold: each bound, and one step beyond it."""

import math
from typing import Any

import msgspec
import pytest

from console.records.bounds import (
    DEEPEST,
    LARGEST_NUMBER,
    LONGEST_TEXT,
    MOST_VALUES,
    value_fault,
)
from tests.builders.records import snapshot_of, waiting

ABOVE = 2  # levels over a value of the content: the record and the content


def fault(value: Any) -> str:  # noqa: ANN401 -- any JSON
    """Return what is said of a record that has *value* in its content."""
    return value_fault(snapshot_of(content={"k": value}))


def nested(levels: int, *, of: type[list[Any]] | type[dict[str, Any]] = list) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value] if of is list else {"k": value}
    return value


def size(value: object) -> int:
    """Return how many values there are, names of fields included."""
    if isinstance(value, dict):
        return 1 + sum(size(part) for pair in value.items() for part in pair)
    return 1 + sum(map(size, value)) if isinstance(value, list | tuple) else 1


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        "",
        "x" * LONGEST_TEXT,
        LARGEST_NUMBER,
        -LARGEST_NUMBER,
        float(LARGEST_NUMBER),
        0.5,
        [],
        {},
        nested(DEEPEST - ABOVE),
        nested(DEEPEST - ABOVE, of=dict),
    ],
)
def test_what_a_store_can_keep_has_no_fault(value: object) -> None:
    """Up to each bound, and at it."""
    assert fault(value) == ""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("\0", "NUL"),
        ("a\0b", "NUL"),
        ("x" * (LONGEST_TEXT + 1), "characters"),
        (LARGEST_NUMBER + 1, "number"),
        (-LARGEST_NUMBER - 1, "number"),
        (2**64, "number"),
        (math.inf, "number"),
        (-math.inf, "number"),
        (math.nan, "number"),
        (1e300, "number"),
        (nested(DEEPEST - ABOVE + 1), "levels"),
        (nested(DEEPEST - ABOVE + 1, of=dict), "levels"),
        (nested(500), "levels"),
    ],
)
def test_what_a_store_cannot_keep_is_named(value: object, said: str) -> None:
    """Wherever it is: alone, in a list, as the value of a name or as the name itself."""
    assert said in fault(value)
    assert said in fault([1, value])
    assert said in fault({"a": {"b": value}})
    if isinstance(value, str):
        assert said in fault({value: 1})
        assert said in value_fault(waiting(reason=value))


def test_as_many_values_as_are_accepted() -> None:
    """One more is too many."""
    empty = size(msgspec.to_builtins(snapshot_of(content={"k": []})))
    room = MOST_VALUES - empty

    assert fault([0] * room) == ""
    assert "values" in fault([0] * (room + 1))
