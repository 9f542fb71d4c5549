"""Events of a pod or a workload, the latest first."""

from collections.abc import Iterable, Mapping
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
    """Return at most :data:`MOST_EVENTS` of *events*, the newest first."""
    return tuple(sorted(events, key=lambda event: event.last_time, reverse=True)[:MOST_EVENTS])


def _event(document: Mapping[str, Any]) -> EventView | None:
    try:
        return msgspec.convert(document, EventView)
    except ValueError:
        return None
