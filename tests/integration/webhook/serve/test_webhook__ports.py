"""What each port of a replica answers: reviews on one, metrics and health on the other."""

import asyncio

import pytest

from tests.fakes.api_server import ApiServer
from tests.integration.webhook.replica import cluster, replica
from tests.integration.webhook.talking import answered, connected
from webhook.caller.hook_paths import HOOK_PATHS

SECRET = "s" * 64


async def asked(port: int, path: str, *, method: str = "GET") -> int:
    """Return the status of the answer to a request without a body."""
    async with connected(port) as (reader, writer):
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".encode())
        status, _ = await answered(reader)
        return status


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/"])
def test_the_port_of_the_hooks_has_only_hooks(path: str, method: str) -> None:
    """Anybody in the pod network reaches it; metrics name namespaces and nodes."""

    async def scenario() -> tuple[int, int]:
        async with ApiServer() as server:
            cluster(server, "u")
            async with replica(server) as ports:
                there = await asked(ports.health, path)
                return await asked(ports.admission, path, method=method), there

    hooks, health = asyncio.run(scenario())

    assert hooks == 404
    assert health == (404 if path == "/" else 200)


async def status_before_the_body(port: int, path: str) -> int:
    """Return the status of the answer to a review of which only the head is sent."""
    async with connected(port) as (reader, writer):
        writer.write(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 999\r\n\r\n".encode())
        status, _ = await answered(reader)
        return status


@pytest.mark.parametrize("hook", sorted(set(HOOK_PATHS.values())))
def test_without_the_secret_nothing_is_read(hook: str) -> None:
    """404 comes before the body; who knows the secret is answered at every hook."""
    wrong = (hook, f"{hook}/", f"{hook}/{SECRET}x", f"{hook}?/{SECRET}", f"/{SECRET}")

    async def scenario() -> tuple[list[int], int]:
        async with ApiServer() as server:
            cluster(server, "u")
            async with replica(server, SECRET) as ports:
                port = ports.admission
                unread = [await status_before_the_body(port, path) for path in wrong]
                return unread, await asked(port, f"{hook}/{SECRET}", method="POST")

    unread, known = asyncio.run(scenario())

    assert unread == [404] * len(wrong)
    assert known == 400


async def lines_until_closed(port: int, path: str) -> bytes:
    """Return all that is said on a connection, which the other side ends."""
    async with connected(port) as (reader, writer):
        writer.write(f"POST {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        return await asyncio.wait_for(reader.read(), 5)


async def statuses(port: int, path: str, times: int) -> list[int]:
    """Return the statuses of several answers on one connection."""
    found = []
    async with connected(port) as (reader, writer):
        for _ in range(times):
            writer.write(f"POST {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            found.append((await asyncio.wait_for(answered(reader), 5))[0])
    return found


def test_strangers_keep_no_connection() -> None:
    """Else they took the places of API servers, whose connections stay for hours."""

    async def scenario() -> tuple[bytes, list[int]]:
        async with ApiServer() as server:
            cluster(server, "u")
            async with replica(server, SECRET) as ports:
                stranger = await lines_until_closed(ports.admission, "/mutate/pods")
                return stranger, await statuses(ports.admission, f"/mutate/pods/{SECRET}", 2)

    stranger, known = asyncio.run(scenario())

    assert stranger.startswith(b"HTTP/1.1 404")
    assert known == [400, 400]
