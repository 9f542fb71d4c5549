"""Wire: reads the bytes of an answer, bounded and by lines; raises only our own errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol, Self

import aiohttp

from kube.errors import UnreachableError, UnreadableError, shorten

LARGEST_LINE: Final = 16 << 20  # bytes of one watch event; the server takes objects up to 3 MiB


class Chunks(Protocol):
    """The part of :class:`aiohttp.StreamReader` that lines are cut from."""

    async def readany(self) -> bytes:
        """Wait for some bytes and return all that are here, none at the end."""


class LineStream:
    """The lines of a stream, in batches: whatever is complete when the reader comes back."""

    def __init__(self, content: Chunks, *, place: str, longest: int = LARGEST_LINE) -> None:
        """Read lines of up to *longest* bytes from *content*; *place* names the call in errors."""
        self._content = content
        self._longest = longest
        self._place = place
        self._begun = bytearray()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[bytes]:
        """Wait for at least one line; raises :class:`UnreachableError` when the stream breaks."""
        while True:
            with translate_errors(self._place):
                chunk = await self._content.readany()
            if not chunk:
                raise StopAsyncIteration
            head, newline, tail = chunk.rpartition(b"\n")
            if newline:
                lines = (self._begun + head).split(b"\n")
                self._begun = bytearray(tail)
                return [bytes(line) for line in lines]
            self._begun += chunk
            if len(self._begun) > self._longest:
                raise UnreadableError(f"{self._place}: an event exceeds {self._longest} bytes")


async def read_whole(response: aiohttp.ClientResponse, *, most: int, place: str) -> bytes:
    """Read *response* to its end; raises :class:`UnreadableError` beyond *most* bytes."""
    chunks = bytearray()
    async with response:
        with translate_errors(place):
            async for chunk in response.content.iter_any():
                chunks += chunk
                if len(chunks) > most:
                    response.close()
                    raise UnreadableError(f"{place}: the answer exceeds {most} bytes")
    return bytes(chunks)


@contextmanager
def translate_errors(place: str) -> Iterator[None]:
    """Turn what aiohttp and the socket raise into :class:`UnreachableError`."""
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
        unsent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
        told = shorten(str(error)) or type(error).__name__
        raise UnreachableError(f"{place}: no answer: {told}", sent=not unsent) from error
