"""Talking HTTP to a server of this process, many requests ahead of their answers."""

import asyncio
import contextlib
import random
import re
from collections.abc import AsyncIterator, Sequence
from typing import Final

from tests.integration.webhook.replica import HOST
from tests.integration.webhook.verdicts import Said

AHEAD: Final = 10  # requests on a connection before the first is answered


def head(path: str, length: int, rng: random.Random) -> bytes:
    kind = rng.choice(
        (
            "application/json",
            "application/json; charset=utf-16",
            "text/plain",
            "application/x-www-form-urlencoded",
            "",
        )
    )
    named = f"Content-Type: {kind}\r\n" if kind else ""
    more = "Content-Encoding: gzip\r\n" if rng.random() < 0.05 else ""
    lines = f"POST {path} HTTP/1.1\r\nHost: a\r\n{named}{more}Content-Length: {length}\r\n\r\n"
    return lines.encode()


async def answered(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    lines = (await reader.readuntil(b"\r\n\r\n")).lower()
    found = re.search(rb"content-length: (\d+)", lines)
    assert found is not None, lines
    return int(lines[9:12]), await reader.readexactly(int(found[1]))


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def said(port: int, path: str, bodies: Sequence[bytes], *, rng: random.Random) -> list[Said]:
    """Send *bodies* down one connection, some ahead of the answers."""
    found: list[Said] = []
    async with connected(port) as (reader, writer):
        for at in range(0, len(bodies), AHEAD):
            batch = bodies[at : at + AHEAD]
            writer.writelines(head(path, len(body), rng) + body for body in batch)
            found += [Said(body, *await answered(reader)) for body in batch]
    return found
