"""The server as the API server meets it: connections that stay, requests that end well."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from allocator.cli.http_server import KEEP_ALIVE, App, Listen, Receive, Scope, Send
from allocator.cli.options import HostPort
from allocator.config.settings import Settings
from allocator.model.gpu import Snapshot
from tests.builders.pods import pod, received
from tests.properties.test_hostile_reviews import review
from webhook.admission.context import AdmissionContext, AdmissionView
from webhook.records.pass_records import PassRecords
from webhook.serve.admission import AdmissionApp, PodHandler
from webhook.serve.http import serve_app
from webhook.serve.metrics import WebhookMetrics

LOOPBACK = Listen(host="127.0.0.1", port=0)
REVIEW = review(received(pod()))


class Silence:
    def remember(self, record: Mapping[str, Any], /) -> None:
        """Forget."""


def admission(*, most: int = 8) -> AdmissionApp:
    around = AdmissionContext(settings=Settings(), snapshot=Snapshot(version="1"))

    async def rest(_scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 404, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    reviewer = PodHandler(
        view=lambda _: AdmissionView(context=around),
        records=PassRecords(Silence(), now=lambda: 0),
        metrics=WebhookMetrics(version="0"),
    )
    return AdmissionApp(reviewer, rest, most=most)


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def head(length: int, path: str = "/mutate/pods") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n".encode()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
    return (
        int(lines[0].split()[1]),
        headers,
        await reader.readexactly(int(headers["content-length"])),
    )


def test_connections_outlive_the_api_servers_patience() -> None:
    """It drops idle connections after 90 s; whoever drops them sooner loses pods."""
    assert KEEP_ALIVE > 90


def test_one_connection_serves_many_reviews() -> None:
    """Keep-alive, in order."""

    async def scenario() -> list[int]:
        async with serve_app(admission(), LOOPBACK) as port, connected(port) as (reader, writer):
            statuses = []
            for _ in range(20):
                writer.write(head(len(REVIEW)) + REVIEW)
                statuses.append((await answer(reader))[0])
            return statuses

    assert asyncio.run(scenario()) == [200] * 20


def test_a_review_in_flight_is_answered_before_the_end() -> None:
    """Draining lets it finish, and tells the caller not to come back on this connection."""

    async def scenario() -> tuple[int, dict[str, str], bytes]:
        begun, go_on = asyncio.Event(), asyncio.Event()
        inner = admission()

        async def held(scope: Scope, receive: Receive, send: Send) -> None:
            begun.set()
            await go_on.wait()
            await inner(scope, receive, send)

        app: App = held
        server = serve_app(app, LOOPBACK)
        async with connected(await server.__aenter__()) as (reader, writer):
            writer.write(head(len(REVIEW)) + REVIEW)
            await begun.wait()
            closing = asyncio.create_task(server.__aexit__(None, None, None))
            await asyncio.sleep(0.1)
            go_on.set()
            found = await answer(reader)
            await closing
            return found

    status, headers, _ = asyncio.run(scenario())

    assert status == 200
    assert headers["connection"] == "close"


def test_too_many_at_once_are_asked_to_come_again() -> None:
    """The API server repeats a call that is answered with Retry-After."""

    async def scenario() -> tuple[int, dict[str, str], int]:
        async with (
            serve_app(admission(most=1), LOOPBACK) as port,
            connected(port) as (slow_reader, slow_writer),
            connected(port) as (reader, writer),
        ):
            slow_writer.write(head(len(REVIEW)) + REVIEW[:10])
            await asyncio.sleep(0.05)
            writer.write(head(len(REVIEW)) + REVIEW)
            status, headers, _ = await answer(reader)
            slow_writer.write(REVIEW[10:])
            return status, headers, (await answer(slow_reader))[0]

    status, headers, slow = asyncio.run(scenario())

    assert (status, headers["retry-after"]) == (429, "1")
    assert slow == 200


def test_a_port_that_is_taken_is_said_at_once() -> None:
    """Starting twice fails loudly."""

    async def scenario() -> None:
        async with (
            serve_app(admission(), LOOPBACK) as port,
            serve_app(admission(), Listen(host="127.0.0.1", port=port)),
        ):
            pass

    with pytest.raises(OSError, match="in use"):
        asyncio.run(scenario())


@pytest.mark.parametrize("text", ["", "8443", "a:b", ":1", "a:70000"])
def test_an_address_must_have_a_host_and_a_port(text: str) -> None:
    """The error shows what one looks like."""
    with pytest.raises(ValueError, match=r"e\.g\."):
        HostPort.parse(text)
