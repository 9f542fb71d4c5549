"""Amounts: the value of one resource, or what is wrong with it."""

import re
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Final, assert_never

from allocator.model.decision import Reason
from allocator.model.untrusted import escaped, quote
from allocator.request.quantity import Quantity, canonical, parse, parse_plain
from allocator.request.resource_names import ResourceName, ResourceRole

_EXAMPLE_MEMORY: Final = 4096  # MiB, suggested where the text gives no hint of what was meant
_BYTES: Final = 1 << 20  # per MiB
_BELOW_ONE: Final = frozenset({"m", "u", "n"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialFinding:
    """A finding without its place in the pod, which the caller adds."""

    reason: Reason
    what: str
    remedy: str


def amount(resource: ResourceName, text: str | int) -> int | PartialFinding:
    """Return the amount that *text* means in the unit of *resource*, or what is wrong with it."""
    number = parse_plain(text)
    if number is None:
        return _parse_unusual(resource, text)
    return number if number <= resource.most else _out_of_range(resource, number)


def _parse_unusual(resource: ResourceName, text: str | int) -> int | PartialFinding:
    """Parse a *text* that is not a plain number."""
    quantity = parse(text)
    if quantity is None:
        return _malformed_finding(resource, f"{quote(text)} is not a number", None)
    value = quantity.value
    if quantity.negative:
        return _malformed_finding(resource, f"{quote(text)} is negative", None)
    bytes_meant = quantity.unit and quantity.suffix not in _BELOW_ONE
    meant = _units(resource, value) if bytes_meant else value
    if quantity.fraction:
        return _malformed_finding(resource, f"{quote(text)} is not a whole number", meant)
    memory = bytes_in_mib(resource, text)
    if memory is not None and memory // resource.vocabulary.memory_factor <= resource.most:
        return max(1, memory // resource.vocabulary.memory_factor)
    if quantity.unit and resource.role is ResourceRole.MEMORY and not _is_count(resource, quantity):
        return _malformed_finding(
            resource,
            f"{quote(text)} would mean {_misread(resource, value)}",
            meant,
        )
    return int(value) if value <= resource.most else _out_of_range(resource, int(value))


def _is_count(resource: ResourceName, quantity: Quantity) -> bool:
    """Say whether *quantity* of memory counts units, although it has a suffix.

    The API server writes 9000000 as ``9M``, and nobody can tell which of the two was written. Where
    a suffix may mean bytes as well, it could be either, so it is refused.
    """
    in_bounds = quantity.value <= resource.most
    return quantity.decimal and in_bounds and not resource.vocabulary.memory_in_bytes


def bytes_in_mib(resource: ResourceName, text: str | int) -> int | None:
    """Return the MiB that *text* means in bytes, rounded down; ``None`` where it means none.

    Only some vocabularies read ``4Gi`` so. The API server writes 2000000 as ``2M``, so a suffix
    that may be its own is no unit. Less than one MiB is none: HAMi takes it for all memory.
    """
    if resource.role is not ResourceRole.MEMORY or not resource.vocabulary.memory_in_bytes:
        return None
    quantity = parse(text)
    if quantity is None or not quantity.unit or quantity.fraction or quantity.negative:
        return None
    if quantity.decimal and quantity.value <= resource.most:
        return None
    return int(quantity.value / _BYTES) or None


def _out_of_range(resource: ResourceName, value: int) -> PartialFinding:
    """Return the finding for a *value* above the bound of its resource."""
    number = f"{resource.suffix} {escaped(value)}"
    match resource.role:
        case ResourceRole.COUNT:
            what = f"{number} is more than the {resource.most} GPUs that one container can use"
            reason = Reason.TOO_MANY
        case ResourceRole.CORES:
            what = f"{number} is more than one whole GPU"
            reason = Reason.CORES_SHORT
        case ResourceRole.PRIORITY:
            what = f"{number} is neither 0, which is high, nor 1"
            reason = Reason.MALFORMED
        case ResourceRole.PERCENT:
            what = f"{number} is outside 1 to {resource.most}"
            reason = Reason.MALFORMED
        case ResourceRole.MEMORY:
            text = f"{escaped(value)} is more than {resource.most} {resource.vocabulary.unit}"
            return _malformed_finding(resource, text, _units(resource, Fraction(value)))
        case _:
            assert_never(resource.role)
    return PartialFinding(reason=reason, what=what, remedy=f"ask for at most {resource.most}")


def _misread(resource: ResourceName, value: Fraction) -> str:
    """Return what a number with a suffix would mean if it were taken at its word."""
    if resource.vocabulary.memory_in_bytes and value > resource.most:
        return f"{escaped(int(value))} bytes, which is out of range"
    return f"{escaped(int(value))} {resource.vocabulary.unit}"


def _malformed_finding(resource: ResourceName, text: str, meant: Fraction | None) -> PartialFinding:
    """Return the finding about a *text* that is not an amount of *resource*.

    *meant* is the amount that was probably meant, in the unit of the resource.
    """
    match resource.role:
        case ResourceRole.COUNT:
            remedy = "give a whole number, e.g. 1"
        case ResourceRole.MEMORY:
            remedy = f"give {resource.vocabulary.unit}, e.g. {_example(resource, meant)}"
        case ResourceRole.PRIORITY:
            remedy = "give 0 for high or 1 for low"
        case ResourceRole.PERCENT | ResourceRole.CORES:
            remedy = "give a whole number from 1 to 100, e.g. 50"
        case _:
            assert_never(resource.role)
    return PartialFinding(reason=Reason.MALFORMED, what=f"{resource.suffix} {text}", remedy=remedy)


def _units(resource: ResourceName, size: Fraction) -> Fraction:
    """Return *size* bytes in the unit of a memory *resource*."""
    return size / (_BYTES * resource.vocabulary.memory_factor)


def _example(resource: ResourceName, meant: Fraction | None) -> int:
    """Return an amount that would be accepted: the one *meant* if it is within bounds.

    The API server writes 1000000 as ``1M``. Where that may mean bytes, it is not suggested.
    """
    guess = 0 if meant is None else ceil(meant)
    if 1 <= guess <= resource.most and amount(resource, canonical(guess)) == guess:
        return guess
    return max(1, _EXAMPLE_MEMORY // resource.vocabulary.memory_factor)


LARGEST_GROUP: Final = 65_536  # GPUs
_GROUP_SIZE: Final = re.compile(r"[1-9][0-9]{0,4}")


def group_size(text: str) -> int:
    """Return the GPUs of one group as an annotation names them; 0 where it names none."""
    size = int(text) if _GROUP_SIZE.fullmatch(text) else 0
    return size if size <= LARGEST_GROUP else 0
