"""Shapes of JSON, and the conditions in the API server's language that hold one to its shape.

A schema would check such lists at every write, even if they do not change. A policy checks only
the writes that it matches.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from manifests.generator.cel import strings, text

_DAY: Final = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_TIME: Final = "([01][0-9]|2[0-3])(:[0-5][0-9]){2}([.][0-9]{1,9})?"
_MOMENT: Final = f"^{_DAY}T{_TIME}(Z|[+-][0-9]{{2}}:[0-9]{{2}})$"


@dataclass(frozen=True, slots=True)
class Text:
    """A text of at most so many characters, which a *pattern* matches where there is one."""

    most: int
    pattern: str = ""


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
    """One of some words."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Many:
    """A list of *least* to *most* things."""

    of: "Shape"
    most: int
    least: int = 0


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """An object; fields that are not named here are somebody's newer ones.

    Each of *rules* is a condition on ``it``, by what it accepts.
    """

    fields: Mapping[str, "Shape"]
    required: tuple[str, ...] = ()
    rules: Mapping[str, str] = field(default_factory=dict)


Shape = Text | Moment | Number | Flag | Word | Many | ObjectShape


@dataclass(frozen=True, slots=True)
class Check:
    """A *condition* on what stands at *place*, and in words what is *accepted* there.

    Where a type is wrong it fails with an error, which refuses as well.
    """

    place: str
    condition: str
    accepted: str


def checks(shape: Shape, value: str, place: str) -> Iterator[Check]:
    """Yield all that must hold of *value*, an expression, at *place*."""
    match shape:
        case ObjectShape():
            yield from _object_checks(shape, value, place)
        case Many():
            size = f"size({value})"
            # A map has a size too, and nothing in an empty one fails.
            bounds = f"type({value}) == list && {size} >= {shape.least} && {size} <= {shape.most}"
            yield Check(place, bounds, f"{shape.least} to {shape.most} items")
            item = f"x{place.count('[]')}"
            for each in checks(shape.of, item, f"{place}[]"):
                yield Check(each.place, f"{value}.all({item}, {each.condition})", each.accepted)
        case _:
            yield Check(place, *_plain(shape, value))


def _object_checks(shape: ObjectShape, value: str, place: str) -> Iterator[Check]:
    if shape.required:
        present = " && ".join(f"has({value}.{name})" for name in shape.required)
        yield Check(place, present, f"an object with {', '.join(shape.required)}")
    for accepted, condition in shape.rules.items():
        yield Check(place, f"({condition.replace('it.', f'{value}.')})", accepted)
    for name, each in shape.fields.items():
        for check in checks(each, f"{value}.{name}", f"{place}.{name}"):
            guarded = f"(!has({value}.{name}) || {check.condition})"
            yield Check(check.place, guarded, check.accepted)


def _plain(shape: Text | Moment | Number | Flag | Word, value: str) -> tuple[str, str]:
    match shape:
        case Text(pattern=""):
            length = f"size({value})"
            bounds = f"type({value}) == string && {length} >= 1 && {length} <= {shape.most}"
            return bounds, f"1 to {shape.most} characters"
        case Text():
            matched = f"size({value}) <= {shape.most} && {value}.matches({text(shape.pattern)})"
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
