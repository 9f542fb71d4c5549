"""Events of a pod or a workload, the latest first."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

MOST_EVENTS: Final = 5  # shown of one pod
_UNKNOWN_TIME: Final = datetime.min.replace(tzinfo=UTC)


class _Series(msgspec.Struct, frozen=True, rename="camel"):
    count: int = 1
    last_observed_time: datetime | None = None


class _Source(msgspec.Struct, frozen=True):
    component: str = ""


class EventView(msgspec.Struct, frozen=True, rename="camel"):
    """An Event in its core form, which has the fields of both APIs."""

    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    series: _Series | None = None
    source: _Source = _Source()
    reporting_component: str = ""
    last_timestamp: datetime | None = None
    event_time: datetime | None = None

    @property
    def last_time(self) -> datetime:
        """Return when it was last reported."""
        observed = None if self.series is None else self.series.last_observed_time
        return observed or self.last_timestamp or self.event_time or _UNKNOWN_TIME

    @property
    def times(self) -> int:
        """Return how often it was reported."""
        return self.series.count if self.series is not None else self.count or 1

    @property
    def reporter(self) -> str:
        """Return the component that reported it."""
        return self.reporting_component or self.source.component or "somebody"


def events_of(documents: Iterable[Mapping[str, Any]]) -> tuple[EventView, ...]:
    """Read Events that were parsed from JSON; return the latest, the newest first.

    An Event that cannot be read is left out.
    """
    return latest(filter(None, map(_event, documents)))


def latest(events: Iterable[EventView]) -> tuple[EventView, ...]:
    """Return at most :data:`MOST_EVENTS` of *events*, the newest first.

    Events that say the same are one, with the sum of their counts.
    """
    alike: dict[tuple[str, str, str], EventView] = {}
    for event in sorted(events, key=lambda event: event.last_time, reverse=True):
        key = event.reporter, event.reason, " ".join(event.message.split()).rstrip(".")
        newest = alike.get(key)
        alike[key] = event if newest is None else _with_count(newest, newest.times + event.times)
    return tuple(alike.values())[:MOST_EVENTS]


def _with_count(event: EventView, count: int) -> EventView:
    return msgspec.structs.replace(event, count=count, series=None, last_timestamp=event.last_time)


_DENIED: Final = " denied the request: "
_CREATING: Final = "Error creating: "


@dataclass(frozen=True, slots=True)
class CreationRefusal:
    """Why the API server does not let a controller create pods, and when it last said so."""

    text: str
    last_time: datetime | None  # None: unknown


def creation_refusal(events: Iterable[EventView]) -> CreationRefusal | None:
    """Return the latest refusal of a pod that *events* of its controller report, if any does."""
    failed = [event for event in latest(events) if event.reason == "FailedCreate"]
    if not failed:
        return None
    message = failed[0].message.removeprefix(_CREATING)
    last_time = None if failed[0].last_time == _UNKNOWN_TIME else failed[0].last_time
    return CreationRefusal(message.partition(_DENIED)[2] or message, last_time)


def _event(document: Mapping[str, Any]) -> EventView | None:
    try:
        return msgspec.convert(document, EventView)
    except ValueError:
        return None
