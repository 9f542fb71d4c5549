"""Follows the objects of one collection, and publishes what changes.

A follower is in one of these states:

- listing by stream: one watch that begins with all objects (``sendInitialEvents``) and goes on as
  a watch after the bookmark that ends the list;
- listing in pages, after the server turned out not to stream lists;
- watching from the last resource version seen, bookmarks included, until the stream ends;
- pausing after a failure, or after a round shorter than ``FIRST_PAUSE``, with a back-off from
  ``FIRST_PAUSE`` to ``LONGEST_PAUSE``.

After a watch ends, the next one resumes from its last version. Only a version that the server no
longer has leads to a new list at once, and an unreadable answer to one after a pause. The first
list is published as a whole. A later one is published piece by piece, so that nobody waits while a
hundred thousand objects are gone through; objects that it lacks stay until it is complete.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Generic, Never, TypeVar

import msgspec
import structlog

from kube import stream as frames
from kube.client import JSON, PROTOBUF, PROTOBUF_STREAM, Client
from kube.clock import SYSTEM, Clock
from kube.errors import ApiError, KubeError, UnreadableError, must_relist, refusal, shorten
from kube.proto.wire import status_json
from kube.stream import FrameStream, LineStream

PAGE: Final = 100  # objects per page of a plain list
LIST_TIMEOUT: Final = 30.0  # seconds for one page
SHORTEST_WATCH: Final = 300  # seconds; drawn at random, so that replicas do not reconnect together
LONGEST_WATCH: Final = 600
END_GRACE: Final = 30.0  # seconds after which we end a watch that the server should have ended
HEALTHY_ROUND: Final = 30.0  # seconds that a failed round must have lasted to reset the back-off
FIRST_PAUSE: Final = 1.0  # seconds, doubled with each failure
LONGEST_PAUSE: Final = 30.0
log = structlog.get_logger(__name__)
T = TypeVar("T")
PublishUpdates = Callable[[Mapping[str, T | None]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSource(Generic[T]):
    """A collection, and how its objects are decoded.

    An object for which ``decode`` or ``key`` raises stays as it was last decoded.
    """

    path: str  # of the collection
    decode: Callable[[bytes], T]  # takes the object's JSON, or its protobuf
    key: Callable[[T], str]  # takes what decode returned
    selectors: Mapping[str, str] = field(default_factory=dict)  # labelSelector, fieldSelector
    keeps: Callable[[T], bool] = lambda _decoded: True  # false: as if the object were not there
    protobuf: bool = False  # ask for protobuf, which *decode* can read as well as JSON
    sync_within: float = 60.0  # seconds for a streamed list, before one in pages is tried


@dataclass(slots=True, kw_only=True)
class WatchHealth:
    """The state of a watch, for metrics and readiness; written by :func:`follow_updates` alone."""

    last_message: float | None = None  # monotonic seconds of the last message, also a bookmark
    synced: bool = False  # a complete list has been published
    lists: int = 0  # published so far
    failures: int = 0  # rounds that ended in an error
    undecodable: int = 0  # objects that could not be decoded

    def age(self, now: float) -> float | None:
        """Return the seconds since the server's last message, ``None`` before the first."""
        return None if self.last_message is None else now - self.last_message


def last_message_times(
    watches: Mapping[str, WatchHealth], *, clock: Clock = SYSTEM
) -> dict[str, float]:
    """Return when the last message of each of *watches* arrived, as Unix seconds."""
    monotonic, wall = clock.monotonic(), clock.wall().timestamp()
    ages = {kind: health.age(monotonic) for kind, health in watches.items()}
    return {kind: wall - age for kind, age in ages.items() if age is not None}


_EXPIRED: Final = 410  # an error event or the answer itself
# Unknown or forbidden options, or an etcd too old for it (an ERROR event with code 500).
_NO_STREAMED_LIST: Final = frozenset({400, 422, 500})


class _NoStreamedListError(KubeError):
    """The server cannot, or did not, finish a list as a stream."""


async def follow(
    client: Client,
    source: WatchSource[T],
    publish: Callable[[Mapping[str, T]], None],
    *,
    health: WatchHealth | None = None,
    clock: Clock = SYSTEM,
) -> Never:
    """Publish all objects of *source* by key after each change, for ever; RBAC: list, watch.

    Each time it is another mapping, which nobody changes any more; this suits small collections.
    Changes that arrive together are published together. No failure of the server or the network
    ends this; an exception of *publish* does.
    """
    objects: dict[str, T] = {}

    def apply(changes: Mapping[str, T | None]) -> None:
        nonlocal objects
        merged = {**objects, **changes}
        objects = {key: found for key, found in merged.items() if found is not None}
        publish(MappingProxyType(objects))

    await follow_updates(client, source, apply, health=health, clock=clock)


async def follow_updates(
    client: Client,
    source: WatchSource[T],
    publish: PublishUpdates[T],
    *,
    health: WatchHealth | None = None,
    clock: Clock = SYSTEM,
) -> Never:
    """Do as :func:`follow`, but pass *publish* only what changed: ``None`` for what is gone.

    The first call, after the first list, has all objects, of which there may be none.
    """
    follower = _Follower(client, source, publish, health=health or WatchHealth(), clock=clock)
    failures = 0
    while True:
        began = clock.monotonic()
        ended_normally = await follower.round()
        lasted = clock.monotonic() - began
        if ended_normally and lasted >= FIRST_PAUSE:
            failures = 0
            continue
        failures = 1 if lasted >= HEALTHY_ROUND else failures + 1
        await clock.sleep(clock.backoff(failures, first=FIRST_PAUSE, most=LONGEST_PAUSE))


class _Follower(Generic[T]):
    """The keys of one collection, and the version from which the next watch resumes."""

    def __init__(
        self,
        client: Client,
        source: WatchSource[T],
        publish: PublishUpdates[T],
        *,
        health: WatchHealth,
        clock: Clock,
    ) -> None:
        self._client = client
        self._source = source
        self._publish = publish
        self._health = health
        self._clock = clock
        self._keys: set[str] = set()
        self._resume_version: str | None = None  # None: the next round begins with a list
        self._can_stream_lists = True  # until the server turns out not to list by streaming

    async def round(self) -> bool:
        """List if necessary, then watch until the stream ends; return false after an error."""
        try:
            if self._resume_version is None or not await self._resume():
                await self._list_and_watch()
        except KubeError as error:
            self._health.failures += 1
            if must_relist(error):
                self._resume_version = None
            log.warning("watch failed", path=self._source.path, why=str(error))
            return False
        return True

    async def _resume(self) -> bool:
        """Watch from the last version; return false where the server no longer has it.

        Every collection meets that after a restart of the API server, so it is no failure.
        """
        try:
            await self._watch(listing=False)
        except ApiError as error:
            if error.status != _EXPIRED:
                raise
            self._resume_version = None
            log.info("watch expired", path=self._source.path, why=str(error))
            return False
        return True

    async def _list_and_watch(self) -> None:
        """List by stream and watch, in pages once the server turned out not to stream lists."""
        if self._can_stream_lists:
            try:
                await self._watch(listing=True)
            except _NoStreamedListError as error:
                self._can_stream_lists = False
                log.info(
                    "no streaming list, listing in pages", path=self._source.path, why=str(error)
                )
            else:
                return
        await self._list()
        await self._watch(listing=False)

    async def _list(self) -> None:
        """Read all pages, and publish their objects."""
        listing = _Listing[T]()
        params = {**self._source.selectors, "limit": str(PAGE)}
        while True:
            body = await self._client.get(
                self._source.path,
                params=params,
                timeout=LIST_TIMEOUT,
                accept=PROTOBUF if self._source.protobuf else JSON,
            )
            items, metadata = frames.parse_page(body)
            self._take_listed(listing, dict(filter(None, map(self._decode, items))))
            if not metadata.continue_:
                break
            params["continue"] = metadata.continue_
        self._note_message()
        self._end_list(listing, metadata.resource_version)

    async def _watch(self, *, listing: bool) -> None:
        """Follow one stream to its end; with *listing* it begins with all objects."""
        listed = _Listing[T]() if listing else None
        sync_timeout = asyncio.timeout(self._source.sync_within if listing else None)
        try:
            async with sync_timeout, self._open(listing=listing) as batches:
                async for lines in batches:
                    self._note_message()
                    batch = self._read(lines)
                    if listed is None:
                        self._resume_version = batch.version or self._resume_version
                        self._apply(batch.changes)
                        continue
                    self._take_listed(listed, batch.changes)
                    if batch.complete:
                        sync_timeout.reschedule(None)
                        self._end_list(listed, batch.version)
                        listed = None
        except ApiError as error:
            if listed is not None and error.status in _NO_STREAMED_LIST:
                raise _NoStreamedListError(str(error)) from error
            raise
        except TimeoutError as error:
            if sync_timeout.expired():
                message = f"incomplete after {self._source.sync_within} s"
                raise _NoStreamedListError(message) from error
            raise
        if listed is not None:
            raise _NoStreamedListError("the stream ended before the list was complete")

    def _open(self, *, listing: bool) -> AbstractAsyncContextManager[LineStream | FrameStream]:
        seconds = int(self._clock.uniform(SHORTEST_WATCH, LONGEST_WATCH))
        begin = (
            {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            if listing
            else {"resourceVersion": self._resume_version or ""}
        )
        params = {
            **self._source.selectors,
            **begin,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        return self._client.stream(
            self._source.path,
            params=params,
            timeout=seconds + END_GRACE,
            accept=PROTOBUF_STREAM if self._source.protobuf else JSON,
        )

    def _read(self, lines: Iterable[bytes]) -> "_Batch[T]":
        """Return the effect of *lines*; raises an ERROR event as an error."""
        batch = _Batch[T]()
        last: msgspec.Raw | bytes | None = None
        for frame in frames.readable_frames(lines, self._note_undecodable):
            match frame.type:
                case "ADDED" | "MODIFIED" | "DELETED":
                    keyed = self._decode(frame.object)
                    if keyed is not None:
                        key, decoded = keyed
                        batch.changes[key] = None if frame.type == "DELETED" else decoded
                case "BOOKMARK":
                    batch.complete |= frames.ends_list(frame.object)
                case "ERROR":
                    status = status_json(bytes(frame.object))
                    raise refusal(status, place=f"watch {self._source.path}")
                case _:
                    raise UnreadableError(
                        f"watch {self._source.path}: unknown event {frame.type[:64]!r}"
                    )
            last = frame.object
        if last is not None:
            batch.version = frames.resource_version_of(last)
        return batch

    def _take_listed(self, listing: "_Listing[T]", changes: Mapping[str, T | None]) -> None:
        """Take a part of a list; of the first one, nothing is published before it is complete."""
        listing.take(changes, publish=not self._health.synced)
        if self._health.synced:
            self._apply(changes)

    def _end_list(self, listing: "_Listing[T]", version: str | None) -> None:
        """Publish what a list ended with, and that what it lacks is gone."""
        first, self._health.synced = not self._health.synced, True
        self._health.lists += 1
        self._resume_version = version or self._resume_version
        gone = dict.fromkeys(self._keys - listing.keys)
        log.info("listed", path=self._source.path, objects=len(listing.keys))
        self._apply({**listing.unpublished, **gone}, even_if_empty=first)

    def _apply(self, changes: Mapping[str, T | None], *, even_if_empty: bool = False) -> None:
        """Publish *changes*, without the end of objects that are not known."""
        there = {k: v for k, v in changes.items() if v is not None or k in self._keys}
        for key, decoded in there.items():
            if decoded is None:
                self._keys.discard(key)
            else:
                self._keys.add(key)
        if there or even_if_empty:
            self._publish(there)

    def _decode(self, raw: msgspec.Raw | bytes) -> tuple[str, T | None] | None:
        """Return the key of an object and what was decoded, ``None`` where it is not kept."""
        try:
            decoded = self._source.decode(bytes(raw))
            key = self._source.key(decoded)
            return key, decoded if self._source.keeps(decoded) else None
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self._note_undecodable(error)
        except Exception:
            # One malformed object must not end the program, and every restart of it.
            self._health.undecodable += 1
            log.exception("object decoder failed", path=self._source.path)
        return None

    def _note_undecodable(self, error: Exception) -> None:
        self._health.undecodable += 1
        log.warning("malformed object", path=self._source.path, why=shorten(str(error)))

    def _note_message(self) -> None:
        self._health.last_message = self._clock.monotonic()


@dataclass(slots=True)
class _Batch(Generic[T]):
    """The effect of a batch of events."""

    version: str | None = None  # resource version of the last event
    changes: dict[str, T | None] = field(default_factory=dict)  # by key; None: it is gone
    complete: bool = False  # the bookmark that ends a streamed list was among the events


@dataclass(slots=True)
class _Listing(Generic[T]):
    """A list that is being read."""

    keys: set[str] = field(default_factory=set)  # read so far
    unpublished: dict[str, T] = field(default_factory=dict)

    def take(self, changes: Mapping[str, T | None], *, publish: bool) -> None:
        """Take a part of the list; with *publish*, its objects are published at its end."""
        for key, decoded in changes.items():
            if decoded is None:
                self.keys.discard(key)
                self.unpublished.pop(key, None)
                continue
            self.keys.add(key)
            if publish:
                self.unpublished[key] = decoded
