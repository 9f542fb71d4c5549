"""Requests to an ASGI application without a socket."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

from allocator.cli.http_server import App


@dataclass(frozen=True, slots=True)
class AsgiAnswer:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


def get(app: App, address: str, headers: Mapping[str, str] = MappingProxyType({})) -> AsgiAnswer:
    """Return the answer to a GET of *address*."""
    return asyncio.run(_exchange(app, "GET", address, headers=headers))


FORM = "application/x-www-form-urlencoded"


def post(app: App, address: str, body: bytes, *, media_type: str = FORM) -> AsgiAnswer:
    """Return the answer to a POST."""
    headers = {"content-type": media_type}
    return asyncio.run(_exchange(app, "POST", address, headers=headers, body=body))


async def _exchange(
    app: App,
    method: str,
    address: str,
    *,
    headers: Mapping[str, str],
    body: bytes = b"",
) -> AsgiAnswer:
    path, _, query = address.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "server": ("console", 80),
        "client": ("127.0.0.1", 1),
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:  # noqa: ANN401 -- as ASGI does
        sent.append(message)

    await app(scope, receive, send)
    answered = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
    return AsgiAnswer(sent[0]["status"], answered, b"".join(m.get("body", b"") for m in sent[1:]))
