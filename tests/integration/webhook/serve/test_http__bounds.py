"""One connection takes neither much memory nor a place for ever, whatever its other side does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from allocator.cli.http_server import ConnectionLimits
from tests.integration.webhook.serve.test_http import (
    LOOPBACK,
    REVIEW,
    admission,
    answer,
    connected,
    head,
)
from webhook.serve.http import serve_app

WHOLE = head(len(REVIEW)) + REVIEW
CHUNKED = b"POST /mutate/pods HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
LIMITS = ConnectionLimits()
HASTY = ConnectionLimits(request_seconds=0.3, reader_seconds=0.5, sweep_seconds=0.05)
MUCH = 64 * LIMITS.head  # bytes


@contextlib.asynccontextmanager
async def served(limits: ConnectionLimits = LIMITS) -> AsyncIterator[int]:
    app = admission()
    async with serve_app(app, LOOPBACK, drain=1, at_once=app.at_once, limits=limits) as port:
        yield port


async def is_well(port: int) -> bool:
    """Say whether an honest review is answered."""
    async with connected(port) as (reader, writer):
        writer.write(WHOLE)
        return (await asyncio.wait_for(answer(reader), 5))[0] == 200


async def taken(port: int, *pieces: bytes, most: int = MUCH) -> tuple[int, bytes]:
    """Send *pieces*, the last again and again; return bytes that were sent, and the answer."""
    async with connected(port) as (reader, writer):
        sent = 0
        with contextlib.suppress(ConnectionError):
            for piece in pieces[:-1]:
                writer.write(piece)
            while sent < most and not reader.at_eof():
                writer.write(pieces[-1])
                sent += len(pieces[-1])
                await writer.drain()
                await asyncio.sleep(0)
        try:
            return sent, await asyncio.wait_for(reader.read(), 5)
        except ConnectionError:  # closed while we were still sending
            return sent, b""


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([b"GET / HTTP/1.1\r\n", b"X-A: " + b"a" * 1000 + b"\r\n"], id="many-headers"),
        pytest.param([b"GET / HTTP/1.1\r\nX-A: ", b"a" * 4096], id="one-header"),
        pytest.param([b"GET / HTTP/1.1\r\n", b"a" * 4096], id="the-name-of-a-header"),
        pytest.param([b"GET /", b"a" * 4096], id="the-path"),
        pytest.param([b"GET /?", b"a" * 4096], id="the-query"),
        pytest.param([b"POST /mutate/pods?", b"a" * 4096], id="the-query-of-a-hook"),
        pytest.param([CHUNKED + b"0\r\n", b"X-A: " + b"a" * 1000 + b"\r\n"], id="trailers"),
        pytest.param([CHUNKED + b"0\r\nX-A: ", b"a" * 4096], id="one-trailer"),
        pytest.param([CHUNKED + b"1;", b"a" * 4096], id="the-extension-of-a-chunk"),
        pytest.param([WHOLE, b"GET / HTTP/1.1\r\nX-A: ", b"a" * 4096], id="after-a-review"),
    ],
)
def test_what_is_not_a_body_has_an_end(pieces: list[bytes]) -> None:
    """38 MiB of headers once took 470 MiB."""

    async def scenario() -> tuple[int, bool]:
        async with served() as port:
            sent, _ = await taken(port, *pieces)
            return sent, await is_well(port)

    sent, well = asyncio.run(scenario())

    assert sent < MUCH
    assert well


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"POST /mutate", id="half-a-line"),
        pytest.param(b"POST /mutate/pods HTTP/1.1\r\nHost", id="half-a-head"),
        pytest.param(head(100, "/elsewhere") + b"{", id="half-a-body-that-nobody-reads"),
        pytest.param(WHOLE + b"POST /mutate", id="after-a-review"),
        pytest.param(b"\r\n", id="an-empty-line"),
    ],
)
def test_who_says_nothing_leaves(piece: bytes) -> None:
    """Neither a silent connection nor half a request keeps a place."""

    async def scenario() -> bool:
        async with served(HASTY) as port, connected(port) as (reader, writer):
            writer.write(piece)
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 5)
            return await is_well(port)

    assert asyncio.run(scenario())


def test_an_empty_line_is_no_request() -> None:
    """A connection that had its answer does not stay by it."""

    async def scenario() -> tuple[int, bytes]:
        async with served(HASTY) as port, connected(port) as (reader, writer):
            writer.write(WHOLE)
            status, _, _ = await answer(reader)
            writer.write(b"\r\n")
            try:
                return status, await asyncio.wait_for(reader.read(), 5)
            except ConnectionError:
                return status, b""

    assert asyncio.run(scenario()) == (200, b"")


def test_an_idle_connection_stays() -> None:
    """API servers keep theirs, and a review on one that was closed fails a pod."""

    async def scenario() -> list[int]:
        async with (
            served(ConnectionLimits(request_seconds=0.1, sweep_seconds=0.02)) as port,
            connected(port) as (reader, writer),
        ):
            statuses = []
            for _ in range(3):
                writer.write(WHOLE)
                statuses.append((await answer(reader))[0])
                await asyncio.sleep(0.3)
            return statuses

    assert asyncio.run(scenario()) == [200] * 3


LARGE = 500_000  # bytes of an answer
BURST = 150  # requests in one piece; the system's own buffers take the answers of some


class Counting:
    """Answers at length, and counts its answers."""

    def __init__(self) -> None:
        self.decided = 0

    def decide(self, _: bytes) -> tuple[int, bytes]:
        self.decided += 1
        return 200, b"x" * LARGE


@contextlib.asynccontextmanager
async def not_reading(
    counting: Counting, limits: ConnectionLimits = LIMITS
) -> AsyncIterator[tuple[int, asyncio.StreamReader]]:
    """Yield a port, and the reader of a connection that has asked much and reads nothing yet."""
    at_once = {b"/mutate/pods": counting.decide}.get
    async with (
        serve_app(admission(), LOOPBACK, drain=1, at_once=at_once, limits=limits) as port,
        connected(port) as (reader, writer),
    ):
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # noqa: SLF001 -- no other way
        writer.write(WHOLE * BURST)
        yield port, reader
        writer.transport.abort()


def test_who_does_not_read_is_asked_nothing_more() -> None:
    """77 such connections once took 545 MiB of answers. After a while they are ended."""
    counting = Counting()

    async def scenario() -> tuple[int, int, bool]:
        async with not_reading(counting, HASTY) as (port, reader):
            await asyncio.sleep(1.5)
            decided = counting.decided
            reader._transport.resume_reading()  # type: ignore[attr-defined]  # noqa: SLF001 -- as above
            try:
                left = len(await asyncio.wait_for(reader.read(), 5))
            except ConnectionError:
                left = 0
            return decided, left, await is_well(port)

    decided, left, well = asyncio.run(scenario())

    assert 0 < decided < 40
    assert left < BURST * LARGE
    assert well


def test_who_reads_late_gets_every_answer() -> None:
    """A reader that pauses loses nothing, and the order stays."""
    counting = Counting()

    async def scenario() -> list[int]:
        async with not_reading(counting) as (_, reader):
            await asyncio.sleep(0.5)
            reader._transport.resume_reading()  # type: ignore[attr-defined]  # noqa: SLF001 -- as above
            return [(await asyncio.wait_for(answer(reader), 5))[0] for _ in range(BURST)]

    assert asyncio.run(scenario()) == [200] * BURST
    assert counting.decided == BURST


def test_heads_are_counted_one_by_one() -> None:
    """A connection of an API server carries thousands of reviews."""

    async def scenario() -> list[int]:
        long = WHOLE.replace(b"Host: a", b"Host: a\r\nX-A: " + b"a" * 4096)
        async with served() as port, connected(port) as (reader, writer):
            statuses = []
            for _ in range(40):
                writer.write(long)
                statuses.append((await asyncio.wait_for(answer(reader), 5))[0])
            return statuses

    assert asyncio.run(scenario()) == [200] * 40


FEW = ConnectionLimits(connections=3)


async def reviewed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    """Return the status of the answer to a review."""
    writer.write(WHOLE)
    return (await asyncio.wait_for(answer(reader), 5))[0]


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Say whether the other side has ended a connection on which it owes nothing."""
    try:
        return await asyncio.wait_for(reader.read(1), 0.3) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_too_many_connections_crowd_out_who_said_nothing_longest() -> None:
    """Who asked something stays, and who has just come can ask."""

    async def scenario() -> tuple[list[bool], list[int]]:
        async with served(FEW) as port, contextlib.AsyncExitStack() as stack:
            known = await stack.enter_async_context(connected(port))
            statuses = [await reviewed(*known)]
            silent = []
            for _ in range(6):
                silent.append(await stack.enter_async_context(connected(port)))
                await asyncio.sleep(0.05)
            ended = [await is_ended(other) for other, _ in silent]
            statuses += [await reviewed(*streams) for streams in (known, silent[-1])]
            return ended, statuses

    assert asyncio.run(scenario()) == ([True] * 4 + [False] * 2, [200] * 3)


def test_where_all_asked_something_nobody_new_comes_in() -> None:
    """Connections of API servers that idle are not given up for a stranger."""

    async def scenario() -> tuple[bool, list[int]]:
        async with served(FEW) as port, contextlib.AsyncExitStack() as stack:
            known = [await stack.enter_async_context(connected(port)) for _ in range(3)]
            statuses = [await reviewed(*streams) for streams in known]
            stranger, _ = await stack.enter_async_context(connected(port))
            ended = await is_ended(stranger)
            return ended, statuses + [await reviewed(*streams) for streams in known]

    assert asyncio.run(scenario()) == (True, [200] * 6)


def test_many_headers_are_too_many() -> None:
    """Each takes much more memory than it has bytes."""

    async def scenario() -> tuple[int, int]:
        statuses: list[int] = []
        async with served() as port:
            for count in (LIMITS.headers - 2, LIMITS.headers):
                many = WHOLE.replace(b"Host: a", b"Host: a" + b"\r\na:" * count)
                async with connected(port) as (reader, writer):
                    writer.write(many)
                    statuses.append((await asyncio.wait_for(answer(reader), 5))[0])
        return statuses[0], statuses[1]

    assert asyncio.run(scenario()) == (200, 400)


def test_callers_at_other_addresses_are_not_answered() -> None:
    """Their reviews are not read; those of a connection from before the change neither."""
    listed = [True]

    async def scenario() -> tuple[int, bytes, bytes]:
        app = admission()
        listen = replace(LOOPBACK, admits=lambda host: host == "127.0.0.1" and listed[-1])
        async with (
            serve_app(app, listen, drain=1, at_once=app.at_once) as port,
            connected(port) as (reader, writer),
        ):
            writer.write(WHOLE)
            before = (await answer(reader))[0]
            listed.append(False)
            writer.write(WHOLE)
            after = await asyncio.wait_for(reader.read(), 5)
            _, anew = await taken(port, WHOLE, most=1)
        return before, after, anew

    before, after, anew = asyncio.run(scenario())

    assert before == 200
    for refused in (after, anew):
        assert refused.startswith(b"HTTP/1.1 400")
        assert refused.endswith(b"callers at this address are not answered")
