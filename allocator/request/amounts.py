"""Amounts: reads the value of one resource, or returns what is wrong with it."""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Final, assert_never

from allocator.model.decision import Reason
from allocator.model.untrusted import escaped, quote
from allocator.request.quantity import canonical, parse, plain
from allocator.request.resource_names import ResourceName, ResourceRole

_USUAL: Final = 4096  # MiB, offered where the text tells nothing of what was meant
_BYTES: Final = 1 << 20  # per MiB
_BELOW_ONE: Final = frozenset({"m", "u", "n"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialFinding:
    """A finding that does not know its place yet."""

    reason: Reason
    what: str
    remedy: str


def amount(word: ResourceName, text: str | int) -> int | PartialFinding:
    """Return what *text* asks for, in the unit of *word*, or what is wrong with it."""
    number = plain(text)
    if number is None:
        return _parse_unusual(word, text)
    return number if number <= word.most else _out_of_range(word, number)


def _parse_unusual(word: ResourceName, text: str | int) -> int | PartialFinding:
    """Parse a *text* that is not a plain number."""
    quantity = parse(text)
    if quantity is None:
        return _malformed_finding(word, f"{quote(text)} is not a number", None)
    value = quantity.value
    if quantity.negative:
        return _malformed_finding(word, f"{quote(text)} is negative", None)
    bytes_meant = quantity.unit and quantity.suffix not in _BELOW_ONE
    meant = _units(word, value) if bytes_meant else value
    if quantity.fraction:
        return _malformed_finding(word, f"{quote(text)} is not a whole number", meant)
    if quantity.unit and word.role is ResourceRole.MEMORY:
        return _malformed_finding(
            word, f"{quote(text)} would mean {escaped(int(value))} {word.vocabulary.unit}", meant
        )
    return int(value) if value <= word.most else _out_of_range(word, int(value))


def _out_of_range(word: ResourceName, value: int) -> PartialFinding:
    """Return the finding for a *value* above the bound of its resource."""
    number = f"{word.suffix} {escaped(value)}"
    match word.role:
        case ResourceRole.COUNT:
            what = f"{number} is more than the {word.most} GPUs that one container can use"
            reason = Reason.TOO_MANY
        case ResourceRole.CORES:
            what = f"{number} is more than one whole GPU"
            reason = Reason.CORES_SHORT
        case ResourceRole.PERCENT:
            what = f"{number} is outside 1 to {word.most}"
            reason = Reason.MALFORMED
        case ResourceRole.MEMORY:
            text = f"{escaped(value)} is more than {word.most} {word.vocabulary.unit}"
            return _malformed_finding(word, text, _units(word, Fraction(value)))
        case _:
            assert_never(word.role)
    return PartialFinding(reason=reason, what=what, remedy=f"ask for at most {word.most}")


def _malformed_finding(word: ResourceName, text: str, meant: Fraction | None) -> PartialFinding:
    """Return the flaw of a value that is no amount; *meant* is our guess, in its unit."""
    match word.role:
        case ResourceRole.COUNT:
            remedy = "give a whole number, e.g. 1"
        case ResourceRole.MEMORY:
            remedy = f"give {word.vocabulary.unit}, e.g. {_example(word, meant)}"
        case ResourceRole.PERCENT | ResourceRole.CORES:
            remedy = "give a whole number from 1 to 100, e.g. 50"
        case _:
            assert_never(word.role)
    return PartialFinding(reason=Reason.MALFORMED, what=f"{word.suffix} {text}", remedy=remedy)


def _units(word: ResourceName, size: Fraction) -> Fraction:
    """Return what *size* bytes are in the unit of a memory *word*."""
    return size / (_BYTES * word.vocabulary.memory_factor)


def _example(word: ResourceName, meant: Fraction | None) -> int:
    """Return a value that would be accepted, the one *meant* where it can be guessed.

    The API server writes 1000000 as ``1M``, which looks like a unit: not one to recommend.
    """
    guess = 0 if meant is None else ceil(meant)
    if 1 <= guess <= word.most and canonical(guess)[-1] in "0123456789k":
        return guess
    return max(1, _USUAL // word.vocabulary.memory_factor)
