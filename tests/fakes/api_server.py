"""A small API server on loopback: the HTTP of list, watch, patch and delete, and its failures.

It follows the real one where a client could tell: versions, bookmarks, streamed lists, paging,
410 inside a 200 stream, Status bodies. Of label selectors it knows those of a list that say what
labels are. It knows no schemas and no field ownership.
"""

import asyncio
import json
import ssl
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Self

from aiohttp import web

from tests.fakes.api_objects import Change, Objects, Place, parsed
from tests.fakes.api_rules import Json, RefusedError

END_OF_LIST = {"k8s.io/initial-events-end": "true"}


class StreamedLists(Enum):
    """How ``sendInitialEvents`` is answered."""

    SERVED = auto()
    GATE_OFF = auto()  # 422: the feature gate is off
    OLD_ETCD = auto()  # an ERROR event with code 500: etcd cannot report progress
    STUCK = auto()  # the end never comes


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client sent."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Canned:
    """An answer that is given instead of the true one."""

    status: int
    headers: dict[str, str]
    body: bytes


class ApiServer:
    """Serves *objects* while its ``async with`` block lasts."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.objects = Objects()
        self.streamed_lists = StreamedLists.SERVED
        self.tokens: set[str] | None = None  # None: everybody may
        self.requests: list[Request] = []
        self.canned: deque[Canned] = deque()
        self.delays: dict[str, float] = {}  # seconds before an answer, by path
        self.streams: list[asyncio.Queue[Change | Json | None]] = []
        self.page: dict[str, tuple[int, list[Json]]] = {}
        self.url = ""
        self._tls = tls
        self.objects.told.append(self._tell)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=3 << 20)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"{'https' if self._tls else 'http'}://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close_streams()
        for _turn in range(5):  # the server learns of a connection some turns after it was accepted
            await asyncio.sleep(0)
        await self._runner.cleanup()

    def answer_next(
        self, status: int, *, body: bytes = b"", times: int = 1, **headers: str
    ) -> None:
        """Give the next requests this answer; without a *body* it is a proper Status.

        Headers are given as ``retry_after="1"``; an empty one is left out.
        """
        named = {name.replace("_", "-"): value for name, value in headers.items() if value}
        said = json.dumps(RefusedError(status, "Canned", "as the test wants").status()).encode()
        self.canned.extend([Canned(status=status, headers=named, body=body or said)] * times)

    def bookmark(self, annotations: dict[str, str] | None = None) -> None:
        """Tell every stream how far it has come."""
        for stream in self.streams:
            stream.put_nowait(_bookmark(self.objects.version, annotations))

    def inject(self, event: Json) -> None:
        """Send *event* as it is down every stream."""
        for stream in self.streams:
            stream.put_nowait(event)

    def close_streams(self) -> None:
        """End every watch, as after its timeoutSeconds."""
        for stream in self.streams:
            stream.put_nowait(None)

    def compact(self) -> None:
        """Forget the past: older versions and continue tokens are 410 from now on."""
        self.objects.compact()
        self.page.clear()

    def _tell(self, change: Change) -> None:
        for stream in self.streams:
            stream.put_nowait(change)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append(
            Request(
                method=request.method,
                path=request.path,
                query=dict(request.query),
                headers=dict(request.headers),
                body=body,
            )
        )
        await asyncio.sleep(self.delays.get(request.path, 0.0))
        if self.canned:
            canned = self.canned.popleft()
            return web.Response(status=canned.status, headers=canned.headers, body=canned.body)
        try:
            self._authenticate(request)
            place = parsed(request.path)
            if request.query.get("watch") == "true":
                return await self._watch(request, place)
            return web.json_response(self._call(request, place, body))
        except RefusedError as refused:
            return web.json_response(refused.status(), status=refused.code)

    def _authenticate(self, request: web.Request) -> None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.tokens is not None and token not in self.tokens:
            raise RefusedError(401, "Unauthorized", "Unauthorized")

    def _call(self, request: web.Request, place: Place, body: bytes) -> Json:
        dry = request.query.get("dryRun") == "All"
        match request.method:
            case "GET":
                return self.objects.read(place) if place.name else self._list(request, place)
            case "POST" if request.path.endswith("/binding"):
                return self.objects.bind(place, json.loads(body))
            case "POST":
                return self.objects.create(place, json.loads(body), dry_run=dry)
            case "PUT":
                return self.objects.replace(place, json.loads(body), dry_run=dry)
            case "PATCH":
                return self.objects.patch(place, request.content_type, body, dry_run=dry)
            case "DELETE":
                return self.objects.delete(place)
            case method:
                raise RefusedError(405, "MethodNotAllowed", method)

    def _list(self, request: web.Request, place: Place) -> Json:
        if "sendInitialEvents" in request.query:
            raise RefusedError(422, "Invalid", "sendInitialEvents is forbidden for list")
        if token := request.query.get("continue"):
            if token not in self.page:
                raise RefusedError(410, "Expired", "The provided continue parameter is too old")
            version, items = self.page.pop(token)
        else:
            version, items = self.objects.version, self._at(request, place)
        most = int(request.query.get("limit", "0")) or len(items)
        meta = {"resourceVersion": str(version)}
        if items[most:]:
            meta["continue"] = f"{version}-{len(items)}"
            self.page[meta["continue"]] = (version, items[most:])
        return {"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items[:most] or None}

    async def _watch(self, request: web.Request, place: Place) -> web.StreamResponse:
        _check_watch(request, self.streamed_lists)
        inbox: asyncio.Queue[Change | Json | None] = asyncio.Queue()
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self.streams.append(inbox)
        try:
            for event in self._past(request, place):
                await response.write(_line(event))
            async for events in _arriving(inbox, float(request.query["timeoutSeconds"])):
                shown = [e for e in events if _shown(e, request, place)]
                await response.write(b"".join(_line(event) for event in shown))
        except ConnectionResetError:
            pass  # the client left, which is how a watch ends
        finally:
            self.streams.remove(inbox)
        return response

    def _past(self, request: web.Request, place: Place) -> list[Change | Json]:
        """Return what a new watch is told at once."""
        since = request.query.get("resourceVersion", "")
        version = self.objects.version
        if request.query.get("sendInitialEvents") == "true":
            if self.streamed_lists is StreamedLists.OLD_ETCD:
                told = "a watch stream was requested but RequestWatchProgress is disabled"
                return [{"type": "ERROR", "object": RefusedError(500, "", told).status()}]
            added: list[Change | Json] = [_added(item) for item in self._at(request, place)]
            end = _bookmark(version, END_OF_LIST)
            return added if self.streamed_lists is StreamedLists.STUCK else [*added, end]
        if since in ("", "0"):
            return [_added(item) for item in self._at(request, place)]
        if int(since) < self.objects.compacted:
            told = f"too old resource version: {since} ({self.objects.compacted})"
            return [{"type": "ERROR", "object": RefusedError(410, "Expired", told).status()}]
        return [c for c in self.objects.since(int(since)) if _shown(c, request, place)]

    def _at(self, request: web.Request, place: Place) -> list[Json]:
        found = self.objects.at(_selected(request, place))
        return [item for item in found if _bound(item, request) and _labelled(item, request)]


def _check_watch(request: web.Request, streamed: StreamedLists) -> None:
    """Apply ValidateListOptions of apimachinery to a watch."""
    if "sendInitialEvents" in request.query:
        if request.query.get("resourceVersionMatch") != "NotOlderThan":
            told = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise RefusedError(422, "Invalid", told)
        if streamed is StreamedLists.GATE_OFF:
            told = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is"
            raise RefusedError(422, "Invalid", f"{told} enabled")
    elif "resourceVersionMatch" in request.query:
        told = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        raise RefusedError(422, "Invalid", told)


def _selected(request: web.Request, place: Place) -> Place:
    """Narrow *place* by the name that a selector asks for."""
    if "labelSelector" in request.query and "watch" in request.query:
        raise RefusedError(400, "BadRequest", "this server knows no labelSelector of a watch")
    field, _, name = request.query.get("fieldSelector", "").partition("=")
    if field != "metadata.name":
        return place
    return Place(prefix=place.prefix, resource=place.resource, namespace=place.namespace, name=name)


def _bound(item: Json, request: web.Request) -> bool:
    """Say whether a pod is bound to the node that a selector asks for; they never leave it."""
    field, _, node = request.query.get("fieldSelector", "").partition("=")
    return field != "spec.nodeName" or item.get("spec", {}).get("nodeName", "") == node


def _labelled(item: Json, request: web.Request) -> bool:
    """Say whether an object has all the labels that a selector names."""
    policy = [term for term in request.query.get("labelSelector", "").split(",") if term]
    if not all(term.count("=") == 1 and "!" not in term for term in policy):
        raise RefusedError(400, "BadRequest", "this server knows no such labelSelector")
    labels = item["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, _, value in (t.partition("=") for t in policy))


def _shown(event: Change | Json, request: web.Request, place: Place) -> bool:
    if isinstance(event, Change):
        return _selected(request, place).holds(event.place) and _bound(event.object, request)
    return event["type"] != "BOOKMARK" or request.query.get("allowWatchBookmarks") == "true"


async def _arriving(
    inbox: asyncio.Queue[Change | Json | None], seconds: float
) -> AsyncIterator[list[Change | Json]]:
    """Yield what has arrived, all of it at once, until the stream is closed or over."""
    end = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            async with asyncio.timeout_at(end):
                events = [await inbox.get()]
        except TimeoutError:
            return
        while events[-1] is not None and not inbox.empty():
            events.append(inbox.get_nowait())
        yield [event for event in events if event is not None]
        if events[-1] is None:
            return


def _line(event: Change | Json) -> bytes:
    if isinstance(event, Change):
        event = {"type": event.type, "object": event.object}
    return json.dumps(event).encode() + b"\n"


def _added(item: Json) -> Json:
    return {"type": "ADDED", "object": item}


def _bookmark(version: int, annotations: dict[str, str] | None) -> Json:
    meta = {"resourceVersion": str(version)} | ({"annotations": annotations} if annotations else {})
    return {"type": "BOOKMARK", "object": {"kind": "Any", "metadata": meta}}
