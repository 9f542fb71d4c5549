"""Connections that have not come through TLS yet take little, and none for ever."""

import asyncio
import contextlib
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop

from allocator.cli.http_server import App, ConnectionLimits, Listen, Receive, Scope, Send, serve
from tests.fakes.pki import Authority

AUTHORITY = Authority("ours")
CLIENT = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
LOOPBACK = Listen("127.0.0.1", 0)
ASK = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
HASTY = ConnectionLimits(handshakes=8, handshake_seconds=0.5, sweep_seconds=0.05)
Loop = Callable[[], asyncio.AbstractEventLoop]
LOOPS = pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["own", "uv"]
)


async def well(scope: Scope, _receive: Receive, send: Send) -> None:
    assert scope["type"] == "http"
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


def hello() -> bytes:
    """Return what a client says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    talking = CLIENT.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        talking.do_handshake()
    return outgoing.read()


@contextlib.asynccontextmanager
async def served(limits: ConnectionLimits = HASTY, app: App = well) -> AsyncIterator[int]:
    async with serve(app, LOOPBACK, context=AUTHORITY.server(), drain=1, limits=limits) as port:
        yield port


async def is_well(port: int) -> bool:
    """Say whether an honest request is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=CLIENT)
    with contextlib.closing(writer):
        writer.write(ASK)
        return (await asyncio.wait_for(reader.readline(), 5)).startswith(b"HTTP/1.1 200")


async def begun(port: int, said: bytes) -> socket.socket:
    """Open a connection, and say something without listening."""
    loop, made = asyncio.get_running_loop(), socket.socket()
    made.settimeout(0)
    await loop.sock_connect(made, ("127.0.0.1", port))
    await loop.sock_sendall(made, said)
    await asyncio.sleep(0)
    return made


async def is_ended(connection: socket.socket) -> bool:
    """Say whether the other side has ended the connection, whatever it said before."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(0.3):
            while await loop.sock_recv(connection, 4096):
                pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def held() -> int:
    """Return how many descriptors and tasks there are."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir())) + len(asyncio.all_tasks())


SAID = pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(hello()[:100], id="half-a-hello"),
        pytest.param(hello(), id="hello"),
    ],
)


@LOOPS
@SAID
def test_half_a_handshake_has_an_end(said: bytes, loop: Loop) -> None:
    """It kept its place for a minute, and there could be any number of them."""

    async def scenario() -> tuple[bool, bool]:
        limits = ConnectionLimits(handshake_seconds=0.3)
        async with served(limits) as port:
            connection = await begun(port, said)
            with contextlib.closing(connection):
                early = await is_ended(connection) if said == hello() else False
                await asyncio.sleep(0.5)
                return early, await is_ended(connection)

    with asyncio.Runner(loop_factory=loop) as runner:
        early, late = runner.run(scenario())

    assert (early, late) == (False, True)


@LOOPS
@SAID
def test_of_many_handshakes_the_oldest_give_way(said: bytes, loop: Loop) -> None:
    """An honest caller comes through while a hundred others stop half way."""

    async def scenario() -> tuple[list[bool], bool]:
        limits = ConnectionLimits(handshakes=8, handshake_seconds=30.0)
        async with served(limits) as port, contextlib.AsyncExitStack() as stack:
            many = [await begun(port, said) for _ in range(100)]
            for connection in many:
                stack.callback(connection.close)
            answered = await is_well(port)
            await asyncio.sleep(0.2)
            ended = await asyncio.gather(*map(is_ended, many))
            return ended, answered

    with asyncio.Runner(loop_factory=loop) as runner:
        ended, answered = runner.run(scenario())

    assert answered
    assert sum(ended) == pytest.approx(92, abs=1)
    assert all(ended[:90])
    assert not any(ended[-7:])


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(ASK, id="no-tls"),
        pytest.param(b"\x16\x03\x01\xff\xff" * 100, id="no-hello"),
        pytest.param(bytes(1000), id="zeros"),
    ],
)
@LOOPS
def test_what_is_no_tls_ends_at_once(said: bytes, loop: Loop) -> None:
    """And leaves nothing behind: no task, no descriptor."""

    async def scenario() -> tuple[bool, int, bool]:
        async with served() as port:
            assert await is_well(port)
            await asyncio.sleep(0.1)
            before = held()
            ended = True
            for _ in range(20):
                with contextlib.closing(await begun(port, said)) as connection:
                    ended = ended and await is_ended(connection)
            await asyncio.sleep(0.1)
            return ended, held() - before, await is_well(port)

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(scenario()) == (True, 0, True)


@LOOPS
def test_a_burst_of_honest_callers_comes_through(loop: Loop) -> None:
    """API servers open many connections at a time; each is answered."""

    async def scenario() -> list[bool]:
        async with served(ConnectionLimits()) as port:
            return await asyncio.gather(*(is_well(port) for _ in range(150)))

    with asyncio.Runner(loop_factory=loop) as runner:
        assert all(runner.run(scenario()))


@LOOPS
def test_it_ends_while_somebody_is_half_way(loop: Loop) -> None:
    """Neither a handshake nor a silent connection holds up the end of the program."""

    async def scenario() -> bool:
        async with served(ConnectionLimits()) as port:
            connection = await begun(port, hello())
        with contextlib.closing(connection):
            return await is_ended(connection)

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(asyncio.wait_for(scenario(), 10))


def test_a_taken_address_is_told() -> None:
    """Before anything is served."""

    async def scenario() -> None:
        async with served() as port:
            with pytest.raises(OSError, match="in use"):
                async with serve(well, Listen("127.0.0.1", port)):
                    pass

    asyncio.run(scenario())
