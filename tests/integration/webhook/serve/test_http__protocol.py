"""Reviews answered past ASGI: the same answers, in the same order, whatever the connection does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.integration.webhook.serve.test_http import (
    LOOPBACK,
    REVIEW,
    admission,
    answer,
    connected,
    head,
)
from webhook.serve import http as protocol
from webhook.serve.admission import LARGEST_BODY
from webhook.serve.http import serve_app

Found = tuple[int, dict[str, str], bytes]
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[list[Found]]]
WHOLE = head(len(REVIEW)) + REVIEW


@contextlib.asynccontextmanager
async def served(
    *, short: bool = True
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect to a server, with the short way or without."""
    app = admission()
    at_once = app.at_once if short else lambda _: None
    async with serve_app(app, LOOPBACK, at_once=at_once) as port, connected(port) as streams:
        yield streams


def talked(talk: Talk, *, short: bool = True) -> list[Found]:
    async def scenario() -> list[Found]:
        async with served(short=short) as (reader, writer):
            return await talk(reader, writer)

    return asyncio.run(scenario())


def sent(*pieces: bytes, answers: int = 1, pause: float = 0.02) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[Found]:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(pause)
        return [await answer(reader) for _ in range(answers)]

    return talk


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([WHOLE], id="whole"),
        pytest.param([WHOLE[:40], WHOLE[40:-300], WHOLE[-300:]], id="in-pieces"),
        pytest.param([head(len(REVIEW), "/mutate/pods?timeout=10s"), REVIEW], id="query"),
        pytest.param([head(len(REVIEW), "/validate/pods") + REVIEW], id="validate"),
        pytest.param([head(3) + b"{]}"], id="unreadable"),
        pytest.param([head(0)], id="empty"),
        pytest.param([head(len(REVIEW), "/elsewhere") + REVIEW], id="elsewhere"),
        pytest.param([WHOLE.replace(b"POST", b"PUT", 1)], id="method"),
        pytest.param([WHOLE.replace(b"HTTP/1.1", b"HTTP/1.0", 1)], id="old"),
        pytest.param([WHOLE.replace(b"Host: a", b"Connection: close", 1)], id="last"),
    ],
)
def test_both_ways_answer_alike(pieces: list[bytes]) -> None:
    """Which way a request goes shows in nothing but its cost."""
    assert talked(sent(*pieces)) == talked(sent(*pieces), short=False)


def test_a_connection_serves_many() -> None:
    """Also after one that could not be read."""
    pieces = [WHOLE, head(1) + b"?", WHOLE]

    assert [status for status, _, _ in talked(sent(*pieces, answers=3))] == [200, 400, 200]


def test_answers_leave_in_the_order_of_requests() -> None:
    """Requests that come in one piece may go either way, but not overtake each other."""
    elsewhere = head(0, "/elsewhere")
    pieces = WHOLE + WHOLE + elsewhere + WHOLE + elsewhere

    found = talked(sent(pieces, answers=5))

    assert [status for status, _, _ in found] == [200, 200, 404, 200, 404]


def test_a_slow_body_is_left_to_asgi(monkeypatch: pytest.MonkeyPatch) -> None:
    """It bounds how long a body may take; here it comes in time."""
    monkeypatch.setattr(protocol, "SLOWEST", 0.05)
    pieces = [WHOLE[:-100], WHOLE[-100:]]

    ((status, _, _),) = talked(sent(*pieces, pause=0.2))

    assert status == 200


def test_a_large_body_is_left_to_asgi() -> None:
    """It refuses what is beyond all sense, however it comes."""
    size = LARGEST_BODY + 1
    pieces = [head(size), *([b" " * 65536] * (size // 65536)), b" " * (size % 65536)]

    ((status, _, _),) = talked(sent(*pieces, pause=0))

    assert status == 413


def test_a_caller_that_leaves_takes_nothing_along() -> None:
    """Neither in the middle of a body nor before its answer."""

    async def scenario() -> int:
        app = admission()
        async with serve_app(app, LOOPBACK, at_once=app.at_once) as port:
            for piece in (WHOLE[:-10], WHOLE, WHOLE + WHOLE[:50]):
                async with connected(port) as (_, writer):
                    writer.write(piece)
                    await writer.drain()
            async with connected(port) as (reader, writer):
                writer.write(WHOLE)
                return (await answer(reader))[0]

    assert asyncio.run(scenario()) == 200


def test_a_review_that_is_coming_in_is_answered_before_the_end() -> None:
    """Draining waits for the rest of a body, and says that the connection ends."""

    async def scenario() -> Found:
        app = admission()
        server = serve_app(app, LOOPBACK, at_once=app.at_once)
        async with connected(await server.__aenter__()) as (reader, writer):
            writer.write(WHOLE[:-10])
            await asyncio.sleep(0.05)
            closing = asyncio.create_task(server.__aexit__(None, None, None))
            await asyncio.sleep(0.15)
            writer.write(WHOLE[-10:])
            found = await answer(reader)
            await closing
            return found

    status, headers, _ = asyncio.run(scenario())

    assert (status, headers["connection"]) == (200, "close")
