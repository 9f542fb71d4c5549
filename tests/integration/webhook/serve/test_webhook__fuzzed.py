"""A replica under raw connections of every bad kind answers all honest reviews, and stays small.

It is the real program in a process of its own. ``benchmarks.hostile`` does the same for a minute,
and with clocks.
"""

import asyncio
import contextlib
import ssl
from pathlib import Path

from benchmarks.hostile_fuzzer import Fuzzer
from benchmarks.hostile_site import HOST, HostileSite, hostile_site
from benchmarks.webhook_reviews import reviews

SECONDS = 4.0
WORKERS = 80
GROWTH = 64.0  # MiB
HOOKS = ("/mutate/pods", "/validate/pods")


async def honest(site: HostileSite, context: ssl.SSLContext, stop: asyncio.Event) -> list[int]:
    """Send reviews, some on connections of their own; return the statuses of the answers."""
    bodies, statuses = tuple(reviews())[:20], []
    while not stop.is_set():
        reader, writer = await asyncio.open_connection(HOST, site.hooks, ssl=context)
        with contextlib.closing(writer):
            for hook in HOOKS:
                for body in bodies:
                    head = f"POST {site.path(hook)} HTTP/1.1\r\nHost: a\r\n"
                    length = f"Content-Length: {len(body)}\r\n\r\n"
                    writer.write((head + length).encode() + body)
                    text = await reader.readuntil(b"\r\n\r\n")
                    statuses.append(int(text.split()[1]))
                    size = int(text.lower().partition(b"content-length: ")[2].split()[0])
                    await reader.readexactly(size)
    return statuses


def test_strangers_neither_end_nor_silence_a_replica(tmp_path: Path) -> None:
    """Silent, slow, endless, half way through TLS, never reading: honest reviews are answered."""

    async def scenario() -> tuple[list[int], float, int]:
        async with hostile_site(tmp_path) as site:
            context, stop = site.context(), asyncio.Event()
            before = site.rss_mib()
            caller = asyncio.create_task(honest(site, context, stop))
            fuzzer = Fuzzer(site.hooks, site.status)
            await fuzzer.run(SECONDS, workers=WORKERS)
            stop.set()
            return await caller, site.rss_mib() - before, len(fuzzer.counts)

    statuses, growth, kinds = asyncio.run(scenario())

    assert statuses
    assert set(statuses) == {200}
    assert growth < GROWTH
    assert kinds > 10
