"""Health and metrics, to whoever asks as kubelet and Prometheus do, and to nobody for long."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from allocator.cli.http_server import ConnectionLimits, Listen, serve
from allocator.cli.status_server import STATUS_LIMITS, status_app

LOOPBACK = Listen("127.0.0.1", 0)
LARGE = 32 * 1024 * 1024  # bytes of metrics; the system's own buffers take some


@dataclass(slots=True)
class Program:
    """One program and how often its metrics were made."""

    why: str = ""
    text: bytes = b"a 1\n"
    made: int = 0

    def metrics(self) -> tuple[str, bytes]:
        self.made += 1
        return "text/plain; version=0.0.4", self.text

    @contextlib.asynccontextmanager
    async def served(self, limits: ConnectionLimits = STATUS_LIMITS) -> AsyncIterator[int]:
        app = status_app(lambda: self.why, self.metrics)
        async with serve(app, LOOPBACK, limits=limits, drain=1) as port:
            yield port


async def asked(port: int, request: str, more: bytes = b"") -> tuple[str, bytes]:
    """Return the first line and the body of an answer, after which the connection ended."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(writer):
        writer.write(f"{request} HTTP/1.1\r\nHost: a\r\n".encode() + more + b"\r\n")
        text = await asyncio.wait_for(reader.read(), 10)
    head, _, body = text.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0].decode(), body


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        ("GET /healthz", "HTTP/1.1 200 OK", b"ok\n"),
        ("GET /readyz", "HTTP/1.1 503 Service Unavailable", b"no driver\n"),
        ("GET /readyz?verbose", "HTTP/1.1 503 Service Unavailable", b"no driver\n"),
        ("GET /metrics", "HTTP/1.1 200 OK", b"a 1\n"),
        ("HEAD /metrics", "HTTP/1.1 200 OK", b""),
        ("POST /metrics", "HTTP/1.1 405 Method Not Allowed", b"expected GET\n"),
        ("GET /", "HTTP/1.1 404 Not Found", b"not found\n"),
        ("GET /metrics/../debug", "HTTP/1.1 404 Not Found", b"not found\n"),
    ],
)
def test_it_answers_and_closes(request_line: str, status: str, body: bytes) -> None:
    """One request to a connection, whatever is asked."""
    program = Program(why="no driver")

    async def scenario() -> tuple[str, bytes]:
        async with program.served() as port:
            return await asked(port, request_line)

    assert asyncio.run(scenario()) == (status, body)


def test_metrics_of_two_scrapes_are_two() -> None:
    """Nobody is given old figures who comes alone."""
    program = Program()

    async def scenario() -> None:
        async with program.served() as port:
            for _ in range(3):
                await asked(port, "GET /metrics")

    asyncio.run(scenario())

    assert program.made == 3


def test_slow_readers_share_what_they_do_not_read() -> None:
    """However many they are, they hold one text; health is answered beside them."""
    program = Program(text=b"x" * LARGE)

    async def scenario() -> tuple[str, bytes]:
        async with program.served() as port, contextlib.AsyncExitStack() as stack:
            for _ in range(20):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
                stack.callback(writer.close)
                reader._transport.pause_reading()  # type: ignore[attr-defined]  # noqa: SLF001 -- no other way
                writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
                await asyncio.sleep(0.01)
            return await asked(port, "GET /healthz")

    assert asyncio.run(scenario()) == ("HTTP/1.1 200 OK", b"ok\n")
    assert program.made <= 2


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"GET /metr", id="half-a-line"),
        pytest.param(b"GET /metrics HTTP/1.1\r\nHost", id="half-a-head"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 99\r\n\r\n{", id="half-a-body"),
    ],
)
def test_who_says_nothing_leaves(said: bytes) -> None:
    """The port is plain HTTP, which every pod may reach."""
    hasty = ConnectionLimits(request_seconds=0.3, sweep_seconds=0.05)

    async def scenario() -> None:
        async with Program().served(hasty) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(writer), contextlib.suppress(ConnectionError):
                writer.write(said)
                await asyncio.wait_for(reader.read(), 5)

    asyncio.run(scenario())


def test_probes_are_answered_while_all_places_are_taken() -> None:
    """Else kubelet would end a program that is well."""
    few = ConnectionLimits(connections=5)

    async def scenario() -> tuple[str, bytes]:
        async with Program().served(few) as port, contextlib.AsyncExitStack() as stack:
            for _ in range(20):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                stack.callback(writer.close)
            return await asked(port, "GET /healthz")

    assert asyncio.run(scenario()) == ("HTTP/1.1 200 OK", b"ok\n")


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(b"a: " + b"b" * 1_000_000 + b"\r\n", id="a-long-header"),
        pytest.param(b"a:\r\n" * 5000, id="many-headers"),
    ],
)
def test_heads_have_an_end(more: bytes) -> None:
    """The same bounds as at every port of ours."""

    async def scenario() -> str:
        async with Program().served() as port:
            try:
                return (await asked(port, "GET /healthz", more))[0]
            except ConnectionError:
                return "HTTP/1.1 400"

    assert asyncio.run(scenario()).startswith("HTTP/1.1 400")
