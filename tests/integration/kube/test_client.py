"""Calls over real sockets: what is sent, what is retried, what is raised."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from kube.client import Client
from kube.config import Access
from kube.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    InvalidError,
    KubeError,
    NotFoundError,
    UnreachableError,
    UnreadableError,
)
from kube.reader import LARGEST_REFUSAL
from tests.fakes.api_server import ApiServer
from tests.fakes.kube_clock import FakeClock

NODES = "/api/v1/nodes"
NODE = f"{NODES}/gpu-1"

LOOPS = [
    pytest.param(asyncio.new_event_loop, id="asyncio"),
    pytest.param(uvloop.new_event_loop, id="uvloop"),
]

Loop = Callable[[], asyncio.AbstractEventLoop]


def node(name: str = "gpu-1", **meta: object) -> bytes:
    return json.dumps({"metadata": {"name": name, **meta}}).encode()


def served(
    scenario: Callable[[ApiServer, Client], Awaitable[None]],
    *,
    time: FakeClock | None = None,
    token: str | Path | None = None,
    loop: Loop = asyncio.new_event_loop,
) -> ApiServer:
    """Run *scenario* with a server and a client of it, and return the server for inspection."""
    clock = (time or FakeClock()).clock()

    async def play() -> ApiServer:
        async with (
            ApiServer() as server,
            Client(Access(url=server.url, token=token), clock=clock) as client,
        ):
            await scenario(server, client)
        return server

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(play())


@pytest.mark.parametrize("loop", LOOPS)
def test_an_object_from_its_creation_to_its_end(loop: Loop) -> None:
    """Every verb does on the server what its name says."""

    async def scenario(_server: ApiServer, client: Client) -> None:
        await client.create(NODES, node())
        await client.merge_patch(NODE, {"metadata": {"labels": {"a": "b", "c": "d"}}})
        await client.json_patch(NODE, [{"op": "remove", "path": "/metadata/labels/c"}])
        kept = json.loads(await client.get(NODE))
        kept["spec"] = {"unschedulable": True}
        await client.replace(NODE, json.dumps(kept).encode())
        await client.apply(NODE, node(annotations={"e": "f"}), field_manager="certs")
        stored = json.loads(await client.get(NODE))
        assert stored["metadata"]["labels"] == {"a": "b"}
        assert stored["metadata"]["annotations"] == {"e": "f"}
        assert stored["spec"] == {"unschedulable": True}
        await client.delete(NODE)
        with pytest.raises(NotFoundError):
            await client.get(NODE)

    server = served(scenario, loop=loop)

    types = {r.method: r.headers.get("Content-Type") for r in server.requests}
    assert types["GET"] is None
    assert types["POST"] == types["PUT"] == "application/json"
    applied = next(r for r in server.requests if "apply" in r.headers.get("Content-Type", ""))
    assert applied.query == {"fieldManager": "certs", "force": "true"}


def test_who_we_are_is_in_every_request() -> None:
    """The user agent names the product, and answers are asked for uncompressed."""

    async def scenario(_server: ApiServer, client: Client) -> None:
        await client.get(NODES)

    [request] = served(scenario, token="secret").requests  # noqa: S106 - a test's token

    assert request.headers["User-Agent"].startswith("vgpu-admission/")
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["Accept-Encoding"] == "identity"


def test_a_dry_run_stores_nothing() -> None:
    """With ``dry_run`` the server answers in full and keeps nothing."""

    async def scenario(server: ApiServer, client: Client) -> None:
        answer = json.loads(await client.create(NODES, node(), dry_run=True))
        assert answer["metadata"]["name"] == "gpu-1"
        assert server.objects.kept == {}

    served(scenario)


def test_refusals_have_their_types() -> None:
    """What a caller must tell apart is told apart, and names the call."""

    async def scenario(_server: ApiServer, client: Client) -> None:
        await client.create(NODES, node())
        with pytest.raises(AlreadyExistsError, match="POST /api/v1/nodes: 409 AlreadyExists"):
            await client.create(NODES, node())
        with pytest.raises(ConflictError):
            await client.replace(NODE, node(resourceVersion="1"))
        with pytest.raises(ConflictError):
            await client.merge_patch(NODE, {"metadata": {"resourceVersion": "1"}})
        with pytest.raises(InvalidError):
            await client.json_patch(NODE, [{"op": "test", "path": "/metadata/name", "value": "x"}])

    served(scenario)


@pytest.mark.parametrize(
    ("status", "retry_after", "times", "expected"),
    [
        pytest.param(429, "1", 3, 4, id="shed-with-retry-after"),
        pytest.param(503, "0", 1, 2, id="unavailable-with-retry-after"),
        pytest.param(503, "", 1, 1, id="unavailable-without"),
        pytest.param(429, "soon", 1, 1, id="unreadable-retry-after"),
        pytest.param(409, "1", 1, 1, id="not-an-overload"),
        pytest.param(429, "1", 99, 8, id="until-the-deadline"),
        pytest.param(500, "0", 99, 10, id="ten-times-at-most"),
        pytest.param(429, "3600", 1, 1, id="beyond-the-deadline"),
    ],
)
def test_retries(*, status: int, retry_after: str, times: int, expected: int) -> None:
    """Only an overload that says when to come back is repeated, within ten seconds."""
    time = FakeClock(chance=1.0)

    async def scenario(server: ApiServer, client: Client) -> None:
        server.answer_next(status, retry_after=retry_after, times=times)
        if expected > times:
            await client.get(NODES)
        else:
            with pytest.raises(ApiError) as raised:
                await client.get(NODES)
            assert raised.value.status == status

    server = served(scenario, time=time)

    assert len(server.requests) == expected
    assert sum(time.slept) < 10


def test_an_answer_that_is_no_status_is_not_quoted() -> None:
    """A proxy's page becomes an error without the page."""

    async def scenario(server: ApiServer, client: Client) -> None:
        server.answer_next(502, body=b"<html>secret</html>")
        with pytest.raises(ApiError, match="502 Unknown: the answer is not a Status object"):
            await client.get(NODES)

    served(scenario)


def test_an_endless_refusal_is_cut() -> None:
    """A body beyond our bound is not read to its end."""

    async def scenario(server: ApiServer, client: Client) -> None:
        server.answer_next(500, body=b"x" * (LARGEST_REFUSAL + 1))
        with pytest.raises(UnreadableError, match=f"exceeds {LARGEST_REFUSAL} bytes"):
            await client.get(NODES)

    served(scenario)


def test_a_redirect_is_not_followed() -> None:
    """Our token stays with the server that it is for."""

    async def scenario(server: ApiServer, client: Client) -> None:
        server.answer_next(307, location=f"{server.url}{NODE}")
        with pytest.raises(ApiError, match="307"):
            await client.get(NODES)

    assert len(served(scenario).requests) == 1


def test_a_refused_token_is_read_again(tmp_path: Path) -> None:
    """After 401 the next call carries what the file says now."""
    file = tmp_path / "token"
    file.write_text("old")

    async def scenario(server: ApiServer, client: Client) -> None:
        server.tokens = {"new"}
        with pytest.raises(ApiError, match="401"):
            await client.get(NODES)
        file.write_text("new")
        await client.get(NODES)

    served(scenario, token=file)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_server_that_starts_late_is_waited_for(loop: Loop) -> None:
    """A refused connection is repeated, since nothing was sent, until the deadline."""
    time = FakeClock(chance=1.0)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]

    async def call() -> None:
        async with Client(Access(url=f"http://127.0.0.1:{port}"), clock=time.clock()) as client:
            await client.create(NODES, node(), timeout=5.0)

    with pytest.raises(UnreachableError) as raised, asyncio.Runner(loop_factory=loop) as runner:
        runner.run(call())

    assert not raised.value.sent
    assert time.slept == [0.2, 0.4, 0.8, 1.6]


async def _hang_up(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")


async def _say_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def _talk_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"SSH-2.0-nonsense\r\n\r\n")


async def _stop_halfway(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "server",
    [
        pytest.param(_hang_up, id="hangs-up"),
        pytest.param(_say_nothing, id="says-nothing"),
        pytest.param(_talk_nonsense, id="talks-nonsense"),
        pytest.param(_stop_halfway, id="stops-halfway"),
    ],
)
def test_whatever_the_peer_does_the_error_is_ours(
    loop: Loop,
    server: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> None:
    """A request that left and got no answer is not repeated, and says that it may have arrived."""
    time = FakeClock()
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server(reader, writer)
        writer.close()
        await writer.wait_closed()
        ended.set()

    async def call() -> None:
        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        access = Access(url=f"http://127.0.0.1:{port}")
        try:
            async with listening, Client(access, clock=time.clock()) as client:
                await client.create(NODES, node(), timeout=0.3)
        finally:
            await ended.wait()

    with pytest.raises(KubeError) as raised, asyncio.Runner(loop_factory=loop) as runner:
        runner.run(call())

    assert isinstance(raised.value, UnreachableError)
    assert raised.value.sent
    assert time.slept == []
