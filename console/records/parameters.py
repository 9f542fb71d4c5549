"""Questions to the store as parameters of a URL; what is not understood is named, never ignored."""

import dataclasses
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec

from allocator.audit.record import AdmissionVerdict, AnyRecord
from allocator.model.request import Mode
from allocator.model.untrusted import quote
from console.records.query import (
    LARGEST_PAGE,
    PAGE,
    DecisionFilter,
    PageRequest,
    PodOutcome,
    RecordFilter,
)

LONGEST: Final = 512  # characters of one value
MOST: Final = 64  # parameters of one question
KINDS: Final = frozenset(str(kind.__struct_config__.tag) for kind in typing.get_args(AnyRecord))
# What these fields can be, so that a misspelled value does not read as "there is nothing".
_VALUES: Final[Mapping[str, Collection[str]]] = {
    "verdict": tuple(AdmissionVerdict),
    "state": tuple(PodOutcome),
    "mode": tuple(Mode),
}
_TIMES: Final = frozenset({"since", "until"})
PAGING: Final = frozenset({"after", "limit"})


class ParameterError(ValueError):
    """A parameter cannot be used; the text names it and what is accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """From when until when, RFC 3339 in UTC."""

    since: str = ""
    until: str = ""


Pairs = Sequence[tuple[str, str]]  # of a query string, in its order


def decision_filter(pairs: Pairs) -> tuple[DecisionFilter, PageRequest]:
    """Return which decisions, and which page of them; raises :class:`ParameterError`."""
    values = _values(pairs, _fields(DecisionFilter) | PAGING)
    page = _page(values)
    return DecisionFilter(**values), page


def record_filter(pairs: Pairs) -> tuple[RecordFilter, PageRequest]:
    """Return which records, and which page; ``kinds`` is repeated, or has commas."""
    kinds = frozenset(
        kind for name, value in pairs[:MOST] if name == "kinds" for kind in value.split(",") if kind
    )
    if strange := sorted(kinds - KINDS):
        raise ParameterError(f"kinds={quote(strange[0])}; accepted: {', '.join(sorted(KINDS))}")
    single = _fields(RecordFilter) - {"kinds"}
    rest = [pair for pair in pairs if pair[0] != "kinds"]
    values = _values(rest, single | PAGING, more=("kinds",))
    page = _page(values)
    return RecordFilter(kinds=kinds, **values), page


def period(pairs: Pairs, *names: str) -> Period:
    """Return the times among *names*; raises :class:`ParameterError`."""
    return Period(**_values(pairs, frozenset(names)))


def namespace(pairs: Pairs) -> str:
    """Return the namespace that is asked about, empty for all; raises :class:`ParameterError`."""
    return _values(pairs, frozenset({"namespace"})).get("namespace", "")


def nothing_else(pairs: Pairs) -> None:
    """Raise :class:`ParameterError` where there is any parameter."""
    _values(pairs, frozenset())


def _fields(kind: type) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(kind))


def _values(pairs: Pairs, known: frozenset[str], more: Sequence[str] = ()) -> dict[str, str]:
    if len(pairs) > MOST:
        raise ParameterError(f"{len(pairs)} parameters; accepted: {MOST} at most")
    values: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            accepted = ", ".join(sorted({*known, *more})) or "none here"
            raise ParameterError(f"unknown parameter {quote(name)}; accepted: {accepted}")
        if name in values:
            raise ParameterError(f"{name} is there twice; accepted: once")
        values[name] = _value(name, value)
    return values


def _value(name: str, value: str) -> str:
    if len(value) > LONGEST or "\0" in value:
        raise ParameterError(
            f"{name} has a NUL or {len(value)} characters; accepted: {LONGEST} at most"
        )
    choices = _VALUES.get(name)
    if value and choices and value not in choices:
        raise ParameterError(f"{name}={quote(value)}; accepted: {', '.join(choices)}")
    return _time(name, value) if value and name in _TIMES else value


def _time(name: str, value: str) -> str:
    """Return a time as records have it."""
    try:
        at = msgspec.convert(value, datetime)
    except msgspec.ValidationError:
        at = None
    if at is None or at.utcoffset() != timedelta():
        raise ParameterError(f"{name}={quote(value)}; accepted: a time like 2026-11-24T22:00:00Z")
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _page(values: dict[str, str]) -> PageRequest:
    """Take the fields of a page out of *values*."""
    after, limit = values.pop("after", ""), values.pop("limit", "") or str(PAGE)
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit) <= LARGEST_PAGE):
        raise ParameterError(f"limit={quote(limit)}; accepted: 1 to {LARGEST_PAGE}")
    return PageRequest(size=int(limit), after=after)
