"""Reads answers of the API server within bounds: bodies, lines of a watch, pages of a list."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol, Self, TypeVar

import aiohttp
import msgspec

from kube.errors import UnreachableError, UnreadableError, shorten
from kube.proto import wire

LARGEST_LINE: Final = 16 << 20  # bytes of one watch event; the server takes objects up to 3 MiB


class Chunks(Protocol):
    """The part of :class:`aiohttp.StreamReader` that lines are cut from."""

    async def readany(self) -> bytes:
        """Wait for bytes and return all received so far; empty at the end."""


class LineStream:
    """The lines of a stream, in batches of the complete lines received so far."""

    def __init__(self, content: Chunks, *, place: str, longest: int = LARGEST_LINE) -> None:
        """Read lines of up to *longest* bytes from *content*; *place* names the call in errors."""
        self._content = content
        self._longest = longest
        self._place = place
        self._partial_line = bytearray()

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
                lines = (self._partial_line + head).split(b"\n")
                self._partial_line = bytearray(tail)
                return [bytes(line) for line in lines]
            self._partial_line += chunk
            if len(self._partial_line) > self._longest:
                raise UnreadableError(f"{self._place}: an event exceeds {self._longest} bytes")


class FrameStream:
    """The frames of a stream in protobuf, in batches of the complete ones received so far."""

    def __init__(self, content: Chunks, *, place: str, longest: int = LARGEST_LINE) -> None:
        """Read frames of up to *longest* bytes from *content*; *place* names the call in errors."""
        self._content = content
        self._longest = longest
        self._place = place
        self._partial_frame = b""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[bytes]:
        """Wait for at least one frame; raises :class:`UnreachableError` when the stream breaks."""
        chunks, size, needed = [self._partial_frame], len(self._partial_frame), 0
        while True:
            with translate_errors(self._place):
                chunk = await self._content.readany()
            if not chunk:
                raise StopAsyncIteration
            chunks.append(chunk)
            size += len(chunk)
            if size < needed:  # a large frame comes in many chunks, which are joined once
                continue
            data = b"".join(chunks)
            frames, needed, rest = self._cut(data)
            if frames:
                self._partial_frame = rest
                return frames
            chunks = [data]

    def _cut(self, data: bytes) -> tuple[list[bytes], int, bytes]:
        """Return the frames in *data*, the bytes that the next one needs, and what there is of it.

        Each frame follows its length in four bytes, the most significant first.
        """
        frames, at, needed = list[bytes](), 0, 4
        while len(data) - at >= 4:  # noqa: PLR2004 -- bytes of a length
            size = int.from_bytes(data[at : at + 4], "big")
            if size > self._longest:
                raise UnreadableError(f"{self._place}: an event exceeds {self._longest} bytes")
            if len(data) - at < 4 + size:
                needed = 4 + size
                break
            frames.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        return frames, needed, data[at:]


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
        cause = shorten(str(error)) or type(error).__name__
        raise UnreachableError(f"{place}: no answer: {cause}", sent=not unsent) from error


_BRACE: Final = b"{"
END_OF_LIST: Final = "k8s.io/initial-events-end"


class TooDeepError(UnreadableError):
    """JSON nested deeper than the parser allows; any user may write such an object."""


class ListMeta(msgspec.Struct, rename="camel"):
    """The metadata of one page of a list."""

    resource_version: str = ""  # of the whole list
    continue_: str = msgspec.field(default="", name="continue")  # token of the next page; "": last


class Page(msgspec.Struct):
    """One page of a list; the server writes ``null`` for no items."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class Frame(msgspec.Struct):
    """One event of a watch."""

    type: str
    object: msgspec.Raw


class ProtobufFrame(NamedTuple):
    """One event of a watch in protobuf."""

    type: str
    object: bytes


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str
    annotations: dict[str, str] | None = None


class _ObjectWithVersion(msgspec.Struct):
    metadata: _Meta


_PAGE_DECODER: Final = msgspec.json.Decoder(Page)
_FRAME_DECODER: Final = msgspec.json.Decoder(Frame)
_OBJECT_DECODER: Final = msgspec.json.Decoder(_ObjectWithVersion)
_T = TypeVar("_T")


def parse_page(data: bytes) -> tuple[Iterable[msgspec.Raw | bytes], ListMeta]:
    """Return the objects of one page of a list, and its metadata.

    Raises :class:`UnreadableError`.
    """
    if wire.is_protobuf(data):
        found = wire.parse_list(data)
        return found.items, ListMeta(found.version, found.continue_)
    page = _decode(_PAGE_DECODER, data)
    return page.items or (), page.metadata


def readable_frames(
    lines: Iterable[bytes], report: Callable[[TooDeepError], None]
) -> Iterator[Frame | ProtobufFrame]:
    """Parse the lines of a watch, or its frames in protobuf; raises :class:`UnreadableError`.

    A line that is nested too deeply is passed to *report* and skipped.
    """
    for line in lines:
        if not line:
            continue
        try:
            parsed = parse_frame(line)
        except TooDeepError as error:
            report(error)
        else:
            yield parsed


def parse_frame(line: bytes) -> Frame | ProtobufFrame:
    """Parse one line of a watch, or one frame in protobuf; raises :class:`UnreadableError`."""
    if line[:1] != _BRACE:  # in protobuf it begins with the number of a field
        return ProtobufFrame(*wire.parse_event(line))
    return _decode(_FRAME_DECODER, line)


def resource_version_of(raw: msgspec.Raw | bytes) -> str:
    """Return the object's resource version; raises :class:`UnreadableError`."""
    if isinstance(raw, bytes):
        return wire.version_of(raw)
    return _decode(_OBJECT_DECODER, raw).metadata.resource_version


def ends_list(bookmark: msgspec.Raw | bytes) -> bool:
    """Say whether *bookmark* marks the end of a streamed list."""
    if isinstance(bookmark, bytes):
        return wire.annotation_of(bookmark, END_OF_LIST) == "true"
    annotations = _decode(_OBJECT_DECODER, bookmark).metadata.annotations or {}
    return annotations.get(END_OF_LIST) == "true"


def _decode(decoder: msgspec.json.Decoder[_T], data: bytes | msgspec.Raw) -> _T:
    try:
        return decoder.decode(data)
    except RecursionError as error:
        raise TooDeepError(f"nested too deeply: {shorten(str(error))}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableError(
            f"not a valid answer of an API server: {shorten(str(error))}"
        ) from error
