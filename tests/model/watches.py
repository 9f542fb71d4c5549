"""A replica's watches: every kind of object as it was when the schedule last let it look."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson

from kube.errors import ApiError, KubeError, UnreachableError
from kube.stream import END_OF_LIST
from tests.builders.gpunodes import Json
from tests.model.cluster import World, over

BOOKMARKS = 60.0  # seconds between what an API server says where nothing changes

Lines = list[bytes]
Seen = Callable[[World, Json], Json]

_ENDS = (
    UnreachableError("the stream broke", sent=True),
    ApiError(410, "Expired", "too old resource version"),
)
_LISTED = {"metadata": {"resourceVersion": "1", "annotations": {END_OF_LIST: "true"}}}
_UNCHANGED = {"metadata": {"resourceVersion": "1"}}
_NONE: Mapping[str, Json] = {}


def as_it_is(_world: World, found: Json) -> Json:
    return found


@dataclass(slots=True, kw_only=True)
class _Stream:
    """One kind of object: what was sent of it, by name, and what is on its way."""

    path: str
    selector: str
    sent: dict[str, Json] = field(default_factory=dict)
    broken: bool = False  # nothing goes through before it is opened anew
    due: "asyncio.Queue[Lines | KubeError]" = field(default_factory=asyncio.Queue)


@dataclass(slots=True)
class Feed:
    """What ``kube.watch`` needs of a client; ``seen`` is how this replica reads a GPUNode.

    ``ended`` says by uid when it was sent that a pod is over or gone.
    """

    world: World
    seen: Seen = as_it_is
    streams: dict[tuple[str, str], _Stream] = field(default_factory=dict)
    sent: "Feed | None" = None  # another feed: what that was sent is all there is
    caught_up: int = -1  # with which change of the world
    ended: dict[str, float] = field(default_factory=dict)
    marked: float = 0.0  # when all streams last heard anything, if only that there is no news

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        params: Mapping[str, str],
        timeout: float,  # noqa: ARG002, ASYNC109 -- the client's own option
        accept: str = "",  # noqa: ARG002 -- it has JSON only
    ) -> AsyncIterator[AsyncIterator[Lines]]:
        """Begin with all there is, or go on where the last stream of this kind ended."""
        selector = params.get("fieldSelector", "")
        listing = "sendInitialEvents" in params
        known = self.streams.get((path, selector))
        found = _Stream(path=path, selector=selector)
        found.sent = {} if known is None or listing else known.sent
        self.streams[path, selector] = found
        self.caught_up = -1  # what it missed while it was not there is yet to be sent
        yield self._batches(found, listing=listing)

    async def _batches(self, stream: _Stream, *, listing: bool) -> AsyncIterator[Lines]:
        if listing:
            yield [*self._news(stream), _event("BOOKMARK", _LISTED)]
        while True:
            due = await stream.due.get()
            if isinstance(due, KubeError):
                raise due
            yield due

    def catch_up(self) -> None:
        """Send all that is new, and once a minute a bookmark where that is nothing."""
        now = self.world.loop.time()
        late = now - self.marked >= BOOKMARKS
        if self.caught_up == self.world.changes and not late:
            return
        self.caught_up, self.marked = self.world.changes, now if late else self.marked
        for stream in self.streams.values():
            self.send(stream, *([_event("BOOKMARK", _UNCHANGED)] if late else []))

    def something(self) -> None:
        """Send what is new of one kind, or let its stream break."""
        stream = self.world.rng.choice(list(self.streams.values()))
        if self.world.rng.random() < 0.03:
            stream.broken = True
            stream.due.put_nowait(self.world.rng.choice(_ENDS))
        else:
            self.send(stream)

    def send(self, stream: _Stream, *more: bytes) -> None:
        lines = [] if stream.broken else [*self._news(stream), *more]
        if lines:
            stream.due.put_nowait(lines)

    def _news(self, stream: _Stream) -> Lines:
        now, sent = self._objects(stream), stream.sent
        left = sorted(sent.keys() - now.keys())
        gone = [_event("DELETED", sent.pop(name)) for name in left]
        new = [name for name in now if sent.get(name) is not now[name]]
        for name in (*left, *(name for name in new if over(now[name]))):
            self.ended.setdefault(name, self.world.loop.time())
        sent.update({name: now[name] for name in new})
        return [*gone, *(_event("MODIFIED", self._read(stream, now[name])) for name in new)]

    def _read(self, stream: _Stream, found: Json) -> Json:
        return self.seen(self.world, found) if stream.path.endswith("/gpunodes") else found

    def _objects(self, stream: _Stream) -> Mapping[str, Json]:
        """Return what there is of one kind, by name, and pods by uid: a name may be taken again."""
        if self.sent is not None:
            other = self.sent.streams.get((stream.path, stream.selector))
            return _NONE if other is None else other.sent
        if stream.path.endswith("/pods"):
            return {pod["metadata"]["uid"]: pod for pod in self.world.pods.values()}
        stores = {"gpunodes": self.world.gpu_nodes, "nodes": self.world.machines}
        return stores.get(stream.path.rpartition("/")[2], _NONE)


def _event(kind: str, found: Json) -> bytes:
    return orjson.dumps({"type": kind, "object": found})
