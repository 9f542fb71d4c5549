"""Reads through the standard library: one connection, bounds, and errors that are ours."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from kube.config import Access, Impersonation
from kube.errors import ConfigError, NotFoundError, UnreachableError
from kube.reader import HttpReader
from tests.fakes.api_server import ApiServer

TOKEN = "of-a-person"  # noqa: S105 -- made up
PATH = "/api/v1/namespaces/team/pods"
Answers = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@asynccontextmanager
async def raw_server(answers: Answers) -> AsyncIterator[str]:
    """Serve connections with *answers*; lend the address, and end when all are closed."""
    running: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answers(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        running.add(asyncio.create_task(handle(reader, writer)))

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with asyncio.timeout(10):
            await asyncio.gather(*running)


def read(answers: Answers, *, times: int = 1, timeout: float = 5.0) -> list[bytes]:
    """Read *times* times from a server that answers so."""

    async def play() -> list[bytes]:
        failure: UnreachableError | None = None
        bodies: list[bytes] = []
        async with raw_server(answers) as url, HttpReader(Access(url=url)) as reader:
            try:
                bodies += [await reader.get(PATH, timeout=timeout) for _ in range(times)]
            except UnreachableError as error:
                failure = error
        if failure is not None:
            raise failure
        return bodies

    return asyncio.run(play())


async def request_of(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


def test_calls_share_a_connection() -> None:
    """A handshake for each would cost more than the answers."""
    connections = []

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        try:
            while await request_of(reader):
                writer.write(OK)
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    assert read(answers, times=3) == [b"{}"] * 3
    assert len(connections) == 1


def test_a_connection_closed_between_calls_is_made_anew() -> None:
    """As by a server that is restarted, or keeps none."""
    connections = []

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await request_of(reader)
        writer.write(OK)
        await writer.drain()

    assert read(answers, times=3) == [b"{}"] * 3
    assert len(connections) == 3


def test_a_body_in_chunks_is_put_together() -> None:
    """The API server sends long lists so."""

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n')
        writer.write(b'4\r\n": 1\r\n1\r\n}\r\n0\r\n\r\n')
        await writer.drain()

    assert read(answers) == [b'{"a": 1}']


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a" * 100_000,
        b"\x16\x03\x01" * 100,
    ],
)
def test_no_answer_is_an_error_of_ours(answer: bytes) -> None:
    """Whatever stands behind the address."""

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(answer)
        await writer.drain()

    with pytest.raises(UnreachableError, match=f"GET {PATH}: no answer: ") as caught:
        read(answers)
    assert caught.value.sent


def test_a_body_that_never_ends_is_left_in_time() -> None:
    """The deadline is that of the whole call, not of a byte."""

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        try:
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)
        except OSError:
            return

    with pytest.raises(UnreachableError, match="timed out"):
        read(answers, timeout=0.3)


def test_who_acts_as_another_says_so_in_headers() -> None:
    """As kubectl does; the server checks the right."""

    async def play() -> dict[str, str]:
        acting = Impersonation(
            user="bo", groups=("a", "b"), uid="7", extra=(("example.com/x", "y"),)
        )
        async with ApiServer() as server:
            access = Access(url=server.url, token=TOKEN, acting=acting)
            async with HttpReader(access) as reader:
                with pytest.raises(NotFoundError):
                    await reader.get(f"{PATH}/nobody", timeout=5)
            return server.requests[0].headers

    headers = asyncio.run(play())
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    assert headers["Impersonate-User"] == "bo"
    assert headers["Impersonate-Uid"] == "7"
    assert headers["Impersonate-Extra-example.com%2Fx"] == "y"


@pytest.mark.parametrize("token", ["a\nInjected: b", "模型", "a\r\n\r\nGET / HTTP/1.1"])
def test_a_token_that_no_header_carries_is_refused(token: str) -> None:
    """Nothing of it reaches the server as a line of its own."""

    async def play() -> int:
        async with ApiServer() as server:
            access = Access(url=server.url, acting=Impersonation(user=token))
            async with HttpReader(access) as reader:
                with pytest.raises(ConfigError, match="no HTTP header can carry"):
                    await reader.get(PATH, timeout=5)
            return len(server.requests)

    assert asyncio.run(play()) == 0


def test_a_server_that_is_not_there_was_sent_nothing() -> None:
    """So whoever asks knows that nothing happened."""

    async def play() -> None:
        async with HttpReader(replace(Access(url="http://127.0.0.1:1"))) as reader:
            await reader.get(PATH, timeout=5)

    with pytest.raises(UnreachableError, match="Connection refused") as caught:
        asyncio.run(play())
    assert not caught.value.sent
