"""Talking HTTP to a server of this process, many requests ahead of their answers."""

import asyncio
import contextlib
import random
import re
from collections.abc import AsyncIterator, Sequence
from typing import Final

from tests.integration.webhook.replica import HOST
from tests.integration.webhook.verdicts import Said

LATE: Final = 503  # with the header Retry-After
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


async def said(
    port: int, path: str, bodies: Sequence[bytes], *, rng: random.Random, tries: int = 1
) -> list[Said]:
    """Send *bodies* down one connection, some ahead of the answers.

    What is answered with "try again" is sent again, as an API server does, *tries* times in all.
    """
    found: list[Said] = []
    async with connected(port) as (reader, writer):
        for at in range(0, len(bodies), AHEAD):
            batch = bodies[at : at + AHEAD]
            writer.writelines(head(path, len(body), rng) + body for body in batch)
            answers = [Said(body, *await answered(reader)) for body in batch]
            for told in answers:
                final, left = told, tries - 1
                while final.status == LATE and left:
                    assert final.answer.endswith(b"; try again\n"), final
                    writer.write(head(path, len(told.body), rng) + told.body)
                    final, left = Said(told.body, *await answered(reader)), left - 1
                found.append(final)
    return found
