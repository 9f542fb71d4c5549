"""How tests talk to an API server: objects by path, as plain JSON, from any number of threads."""

import contextlib
import json
import re
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPResponse, HTTPSConnection
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlencode, urlsplit

Json = dict[str, Any]
T = TypeVar("T")

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the API server answered; `warnings` are the texts a user of kubectl would see."""

    status: int
    body: Json
    warnings: tuple[str, ...]
    headers: Mapping[str, str]


class ApiError(Exception):
    """A request that was refused; `body` is the Status object."""

    def __init__(self, request: str, reply: Reply) -> None:
        self.reply = reply
        self.status = reply.status
        self.body = reply.body
        self.reason = str(reply.body.get("reason", ""))
        self.message = str(reply.body.get("message", ""))
        super().__init__(f"{request}: {reply.status} {self.reason}: {self.message}")


class Api:
    """A client of one API server as one user, holding a pool of kept-alive connections."""

    def __init__(self, url: str, *, token: str, ca_file: Path, timeout: float = 30.0) -> None:
        self._host = urlsplit(url).netloc
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._timeout = timeout
        self._tls = ssl.create_default_context(cafile=str(ca_file))
        self._lock = threading.Lock()
        self._idle: list[HTTPSConnection] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are not in use; the client stays usable."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def get(self, path: str, **query: str) -> Json:
        """Return the object or list at this path."""
        return self.request("GET", path, query=query).body

    def create(self, path: str, body: Json, **query: str) -> Reply:
        """Post an object to its collection, or a subresource such as a Binding or an eviction."""
        return self.request("POST", path, body, query=query)

    def replace(self, path: str, body: Json, **query: str) -> Reply:
        """Put an object in the place of the present one."""
        return self.request("PUT", path, body, query=query)

    def patch(self, path: str, body: object, *, kind: str = MERGE, **query: str) -> Reply:
        """Change an object; `kind` says what the body is."""
        if kind == APPLY:
            query = {"fieldManager": "tests", "force": "true", **query}
        return self.request("PATCH", path, body, query=query, headers={"Content-Type": kind})

    def delete(self, path: str, body: Json | None = None, **query: str) -> Reply:
        """Delete one object, or a whole collection; the body may hold DeleteOptions."""
        return self.request("DELETE", path, body, query=query)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send one request and return what was answered, or raise ApiError from 400 on."""
        target = f"{path}?{urlencode(query)}" if query else path
        with self._connection() as connection:
            response = self._send(connection, method, target, body=body, headers=headers)
            reply = _reply(response, response.read())
        if reply.status >= 400:
            raise ApiError(f"{method} {target}", reply)
        return reply

    def watch(self, path: str, *, within: float, **query: str) -> Iterator[Json]:
        """Yield events until the server ends the watch, at the latest after so many seconds."""
        options = {"watch": "true", "timeoutSeconds": str(max(1, round(within))), **query}
        target = f"{path}?{urlencode(options)}"
        with contextlib.closing(self._new_connection(within + self._timeout)) as connection:
            response = self._send(connection, "GET", target)
            if response.status >= 400:
                raise ApiError(f"GET {target}", _reply(response, response.read()))
            for line in response:
                yield json.loads(line)

    def _send(
        self,
        connection: HTTPSConnection,
        method: str,
        target: str,
        *,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> HTTPResponse:
        payload = None if body is None else json.dumps(body).encode()
        content = {} if payload is None else {"Content-Type": "application/json"}
        merged = {**self._headers, **content, **(headers or {})}
        connection.request(method, target, payload, merged)
        return connection.getresponse()

    @contextlib.contextmanager
    def _connection(self) -> Iterator[HTTPSConnection]:
        """Lend a connection to one thread; after an error it is not lent again."""
        connection = self._idle_connection() or self._new_connection(self._timeout)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle.append(connection)

    def _idle_connection(self) -> HTTPSConnection | None:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None or connection.sock is None or not _readable(connection.sock):
                return connection
            # A socket that is readable before we asked anything was closed by the server. To find
            # that out now spares us the question whether a failed POST may be sent again.
            connection.close()

    def _new_connection(self, timeout: float) -> HTTPSConnection:
        return HTTPSConnection(self._host, timeout=timeout, context=self._tls)


def wait_for(probe: Callable[[], T], *, within: float = 30.0, every: float = 0.05) -> T:
    """Return the first true answer; an object that is not there yet counts as a false one."""
    deadline = time.monotonic() + within
    while True:
        answer: object
        try:
            answer = found = probe()
            if found:
                return found
        except ApiError as error:
            if error.status != 404:
                raise
            answer = error
        if time.monotonic() > deadline:
            raise TimeoutError(f"still {answer!r} after {within} s")
        time.sleep(every)


def _readable(sock: socket.socket) -> bool:
    poll = select.poll()  # select() cannot watch descriptors from 1024 on
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _reply(response: HTTPResponse, raw: bytes) -> Reply:
    try:
        body = json.loads(raw)
    except ValueError:
        body = raw.decode(errors="replace")  # /readyz and /metrics answer text
    return Reply(
        status=response.status,
        body=body if isinstance(body, dict) else {"message": body},
        warnings=tuple(map(_warning_text, response.headers.get_all("Warning") or ())),
        headers=dict(response.headers.items()),
    )


def _warning_text(header: str) -> str:
    """Return the text of `299 - "text"`, whose bytes are UTF-8 though HTTP says otherwise."""
    quoted = header.encode("latin-1").decode().split(" ", 2)[2]
    return re.sub(r"\\(.)", r"\1", quoted[1:-1])
