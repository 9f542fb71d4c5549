"""Reads the tree of supernodes from topo-master, and keeps the last one that was good.

Nothing that it answers is trusted: an answer is bounded in time and size, redirects are not
followed, and ``allocator.groups.tree`` bounds every field. While there is no answer, the last tree
stays in force: cables are moved less often than programs restart.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Never

import aiohttp
import structlog

from allocator.groups.tree import LARGEST, NO_TREE, Tree, TreeError, decode_tree
from allocator.model.untrusted import inert
from kube.clock import SYSTEM, Clock
from kube.errors import shorten
from kube.watch import WatchHealth

EVERY: Final = 15.0  # seconds between two reads
LOOK: Final = 1.0  # seconds until a changed setting is noticed
TIMEOUT: Final = 5.0  # seconds of one read, its answer included
_OK: Final = 200
log = structlog.get_logger(__name__)


class NodeGroups:
    """The tree as it was last read; ``why_unknown`` says why there is none, if one is wanted."""

    def __init__(
        self,
        url: Callable[[], str],
        *,
        report: Callable[[str], None] = lambda _: None,
        clock: Clock = SYSTEM,
    ) -> None:
        """Read from *url*, empty for nowhere; *report* takes why it could not be read."""
        self._url = url
        self._report = report
        self._clock = clock
        self._known: _KnownTree | None = None
        self._problem = ""
        self.health = WatchHealth()

    @property
    def tree(self) -> Tree:
        """Return the last tree that was read; an empty one where there is none."""
        known = self._known
        return known.tree if known is not None and known.url == self._url() else NO_TREE

    @property
    def wanted(self) -> bool:
        """Say whether a tree is to be read at all."""
        return bool(self._url())

    @property
    def why_unknown(self) -> str:
        """Return why no tree is known although one is wanted; empty otherwise."""
        known = self._known
        if not self.wanted or (known is not None and known.url == self._url()):
            return ""
        return self._problem or "it has not been read yet"

    async def run(self) -> Never:
        """Read it again and again, for ever."""
        while True:
            url = self._url()
            if url:
                await self.read(url)
            until = self._clock.monotonic() + EVERY
            while self._url() == url and self._clock.monotonic() < until:
                await self._clock.sleep(LOOK)

    async def read(self, url: str) -> None:
        """Read the tree from *url* once; raises nothing."""
        try:
            async with asyncio.timeout(TIMEOUT):
                decoded = decode_tree(await _fetch(url))
        except (aiohttp.ClientError, OSError, ValueError, TreeError) as error:
            # TimeoutError is an OSError.
            why = inert(shorten(str(error) or type(error).__name__))
            self.health.failures += 1
            if why != self._problem:
                log.warning("tree of supernodes not read", url=url, why=why)
            self._problem = why
            self._report(why)
            return
        before, self._known = self._known, _KnownTree(url, decoded.tree)
        if before is None or before.tree != decoded.tree:
            log.info("tree of supernodes read", url=url, domains=len(decoded.tree.domains))
            for problem in decoded.problems:
                log.warning("tree of supernodes malformed", what=str(problem))
        self._problem = ""
        self.health.last_message = self._clock.monotonic()
        self.health.synced = True


@dataclass(frozen=True, slots=True)
class _KnownTree:
    url: str
    tree: Tree = field(repr=False)


async def _fetch(url: str) -> str:
    """Return the text at *url*; raises what aiohttp does, and ``ValueError``."""
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False) as client,
        client.get(url, allow_redirects=False, headers={"Accept-Encoding": "identity"}) as response,
    ):
        if response.status != _OK:
            raise ValueError(f"it answers {response.status}")
        body = bytearray()
        while chunk := await response.content.readany():
            body += chunk
            if len(body) > LARGEST:
                raise ValueError(f"its answer exceeds {LARGEST} bytes")
    return body.decode()
