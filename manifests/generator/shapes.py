"""Shapes of JSON values, and the CEL conditions that check a value against its shape.

A schema would check such lists at every write, even if they do not change. A policy checks only
the writes that it matches.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from allocator.catalog.conditions import literal, strings, text

_DAY: Final = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_TIME: Final = "([01][0-9]|2[0-3])(:[0-5][0-9]){2}([.][0-9]{1,9})?"
_MOMENT: Final = f"^{_DAY}T{_TIME}(Z|[+-][0-9]{{2}}:[0-9]{{2}})$"


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""

    most: int  # characters
    pattern: str  # a regular expression (RE2) it must match


@dataclass(frozen=True, slots=True)
class Moment:
    """An RFC 3339 time."""


@dataclass(frozen=True, slots=True)
class Number:
    """An integer from *least* to *most*."""

    least: int = 0
    most: int = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""


@dataclass(frozen=True, slots=True)
class Word:
    """One of several strings."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Many:
    """A list of *least* to *most* items."""

    of: "Shape"
    most: int
    least: int = 0


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """An object, which may have further fields of newer versions."""

    fields: Mapping[str, "Shape"]
    required: tuple[str, ...] = ()
    rules: Mapping[str, str] = field(default_factory=dict)  # conditions on `it`, by their text


Shape = Text | Moment | Number | Flag | Word | Many | ObjectShape


@dataclass(frozen=True, slots=True)
class Check:
    """A condition on one value; it may fail with an error on a wrong type, which refuses too."""

    place: str  # path of the value
    condition: str  # CEL
    accepted: str  # the same in words


def checks(shape: Shape, value: str, place: str) -> Iterator[Check]:
    """Yield the checks of *value*, an expression, at the path *place*."""
    match shape:
        case ObjectShape():
            yield from _object_checks(shape, value, place)
        case Many():
            size = f"size({value})"
            # A map has a size too, and nothing in an empty one fails.
            bounds = f"type({value}) == list && {size} >= {shape.least} && {size} <= {shape.most}"
            yield Check(place, bounds, f"{shape.least} to {shape.most} items")
            item = f"x{place.count('[]')}"
            for check in checks(shape.of, item, f"{place}[]"):
                yield Check(check.place, f"{value}.all({item}, {check.condition})", check.accepted)
        case _:
            yield Check(place, *_plain(shape, value))


def _object_checks(shape: ObjectShape, value: str, place: str) -> Iterator[Check]:
    if shape.required:
        present = " && ".join(f"has({value}.{name})" for name in shape.required)
        yield Check(place, present, f"an object with {', '.join(shape.required)}")
    for accepted, condition in shape.rules.items():
        yield Check(place, f"({condition.replace('it.', f'{value}.')})", accepted)
    for name, field_shape in shape.fields.items():
        for check in checks(field_shape, f"{value}.{name}", f"{place}.{name}"):
            guarded = f"(!has({value}.{name}) || {check.condition})"
            yield Check(check.place, guarded, check.accepted)


def _plain(shape: Text | Moment | Number | Flag | Word, value: str) -> tuple[str, str]:
    match shape:
        case Text():
            matched = f"size({value}) <= {shape.most} && {value}.matches({literal(shape.pattern)})"
            return matched, f"up to {shape.most} characters that match {shape.pattern}"
        case Moment():
            shaped = f"{value}.matches({text(_MOMENT)})"  # or timestamp() fails with an error
            dated = f"timestamp({value}) >= timestamp('0001-01-01T00:00:00Z')"
            return f"{shaped} && {dated}", "an RFC 3339 time"
        case Number():
            bounds = f"{value} >= {shape.least} && {value} <= {shape.most}"
            return f"type({value}) == int && {bounds}", f"{shape.least} to {shape.most}"
        case Flag():
            return f"type({value}) == bool", "true or false"
        case Word():
            return f"{value} in {strings(shape.words)}", f"one of {', '.join(shape.words)}"
