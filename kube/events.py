"""Records Events on users' objects, counted and bounded, without blocking callers.

They are written as ``events.k8s.io/v1``: it has fields for reporter and action, a ``series`` whose
count the client keeps, and limits that are checked on create. Core v1 accepts objects that other
clients then reject. Both versions are one stored object, so ``kubectl describe`` shows them.
"""

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Never

import msgspec
import structlog

from kube.client import ApiClient
from kube.clock import SYSTEM, Clock, micro_time
from kube.errors import KubeError, NotFoundError

LONGEST_NOTE: Final = 1024  # bytes; the server's limit
WINDOW: Final = 600.0  # seconds within which a repetition is counted, not written again
REFRESH: Final = 60.0  # seconds between two writes of one count
BUDGET: Final = 10  # writes per object and reason within WINDOW: one a minute on average
MOST_SERIES: Final = 1024
MOST_WAITING: Final = 256
LONGEST_BASE: Final = 200  # characters of an object's name in the name of its Event, at most 253
log = structlog.get_logger(__name__)


class Severity(StrEnum):
    """The two types the API knows."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An object that an Event is about; ``namespace`` is empty for a cluster-scoped one."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    def wire(self) -> dict[str, str]:
        """Return it as a ``v1.ObjectReference``."""
        required = {"apiVersion": self.api_version, "kind": self.kind, "name": self.name}
        optional = {"namespace": self.namespace, "uid": self.uid}
        return required | {key: value for key, value in optional.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened to an object."""

    regarding: Reference
    severity: Severity
    reason: str  # CamelCase, at most 128 characters
    action: str  # CamelCase, at most 128 characters
    note: str  # a sentence; escaped and cut when it is written
    related: Reference | None = None
    series: str = ""  # what repetitions have in common; empty: the note


@dataclass(slots=True, kw_only=True)
class EventTally:
    """Numbers of Events written, failed and dropped, for metrics."""

    written: int = 0
    failed: int = 0
    dropped: int = 0  # the queue was full, or the object's budget spent


@dataclass(slots=True, kw_only=True)
class _Series:
    """An Event that was written, and its repetitions; times are monotonic seconds."""

    path: str  # of the Event
    last_recorded: float  # when it was last recorded
    last_written: float  # when its count was last written
    count: int = 1


class Recorder:
    """Writes Events after the fact; RBAC: events.k8s.io events create, patch.

    Events of cluster-scoped objects go to the namespace ``default``, as the API requires. A count
    may lag by the repetitions of the last minute.
    """

    def __init__(
        self, client: ApiClient, *, controller: str, instance: str, clock: Clock = SYSTEM
    ) -> None:
        """Report as *controller*, such as ``vgpu-admission.io/webhook``, from one *instance*."""
        self._client = client
        self._reporter = {"reportingController": controller, "reportingInstance": instance[:128]}
        self._clock = clock
        self._waiting: asyncio.Queue[Event] = asyncio.Queue(MOST_WAITING)
        self._series: OrderedDict[tuple[Reference, str, str], _Series] = OrderedDict()
        self._spent: OrderedDict[tuple[Reference, str], deque[float]] = OrderedDict()
        self.tally = EventTally()

    def record(self, event: Event) -> None:
        """Queue *event* for writing; neither waits nor raises."""
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            self.tally.dropped += 1

    async def run(self) -> Never:
        """Write what was recorded, for ever; a write that fails is counted and forgotten."""
        while True:
            await self.write(await self._waiting.get())

    async def write(self, event: Event) -> None:
        """Write *event* as new, count it as a repetition, or drop it if the budget is spent."""
        key = (event.regarding, event.reason, printable(event.series or event.note))
        series = self._series.get(key)
        try:
            if series is None or self._clock.monotonic() - series.last_recorded > WINDOW:
                await self._begin(key, event)
            else:
                await self._repeat(series, key, event)
        except KubeError as error:
            self.tally.failed += 1
            log.debug("event not written", reason=event.reason, why=str(error))

    async def _begin(self, key: tuple[Reference, str, str], event: Event) -> None:
        if not self._spend_budget(key[:2]):
            return
        namespace = event.regarding.namespace or "default"
        collection = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        name = self._new_name(event.regarding)
        now = self._clock.monotonic()
        body = self._body(event, name=name, namespace=namespace)
        await self._client.create(collection, msgspec.json.encode(body))
        self.tally.written += 1
        self._series[key] = _Series(
            path=f"{collection}/{name}", last_recorded=now, last_written=now
        )
        self._series.move_to_end(key)
        if len(self._series) > MOST_SERIES:
            self._series.popitem(last=False)

    async def _repeat(self, series: _Series, key: tuple[Reference, str, str], event: Event) -> None:
        now = self._clock.monotonic()
        series.count += 1
        series.last_recorded = now
        if now - series.last_written < REFRESH or not self._spend_budget(key[:2]):
            return
        series.last_written = now
        last = micro_time(self._clock.wall())
        changes = {"series": {"count": series.count, "lastObservedTime": last}}
        try:
            await self._client.merge_patch(series.path, changes)
            self.tally.written += 1
        except NotFoundError:  # it outlived its time to live
            await self._begin(key, event)

    def _spend_budget(self, topic: tuple[Reference, str]) -> bool:
        """Spend one write of *topic*'s budget; return false if none is left."""
        now = self._clock.monotonic()
        spent = self._spent.setdefault(topic, deque())
        self._spent.move_to_end(topic)
        if len(self._spent) > MOST_SERIES:
            self._spent.popitem(last=False)
        while spent and now - spent[0] > WINDOW:
            spent.popleft()
        if len(spent) >= BUDGET:
            self.tally.dropped += 1
            return False
        spent.append(now)
        return True

    def _new_name(self, regarding: Reference) -> str:
        """Return a unique name: the object's, the microsecond and random digits."""
        base = regarding.name[:LONGEST_BASE].rstrip("-.") or "unnamed"
        moment = int(self._clock.wall().timestamp() * 1e6)
        return f"{base}.{moment:x}{int(self._clock.random() * 2**24):06x}"

    def _body(self, event: Event, *, name: str, namespace: str) -> dict[str, object]:
        related = {"related": event.related.wire()} if event.related else {}
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": micro_time(self._clock.wall()),
            "type": event.severity,
            "reason": event.reason,
            "action": event.action,
            "note": printable(event.note),
            "regarding": event.regarding.wire(),
            **self._reporter,
            **related,
        }


def printable(note: str) -> str:
    """Escape control characters and cut to :data:`LONGEST_NOTE` bytes of UTF-8."""
    escaped = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in note)
    data = escaped.encode()
    if len(data) <= LONGEST_NOTE:
        return escaped
    return data[: LONGEST_NOTE - len("…".encode())].decode(errors="ignore") + "…"
