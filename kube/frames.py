"""Frames: decodes lists and watch streams of the API server around the objects in them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from kube.errors import UnreadableError, shorten

END_OF_LIST: Final = "k8s.io/initial-events-end"


class TooDeepError(UnreadableError):
    """What is nested deeper than can be read; whoever writes an object may nest parts of it."""


class ListMeta(msgspec.Struct, rename="camel"):
    """Where a list stands: its version and, unless this is the last page, the next one's token."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct):
    """One page of a list; the server writes ``null`` for no items."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class Frame(msgspec.Struct):
    """One event of a watch."""

    type: str
    object: msgspec.Raw


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str
    annotations: dict[str, str] | None = None


class _Marked(msgspec.Struct):
    metadata: _Meta


_PAGES: Final = msgspec.json.Decoder(Page)
_FRAMES: Final = msgspec.json.Decoder(Frame)
_MARKS: Final = msgspec.json.Decoder(_Marked)

_T = TypeVar("_T")


def page(data: bytes) -> Page:
    """Parse one page of a list; raises :class:`UnreadableError`."""
    return _decode(_PAGES, data)


def readable(lines: Iterable[bytes], odd: Callable[[TooDeepError], None]) -> Iterator[Frame]:
    """Parse the lines of a watch; raises :class:`UnreadableError`.

    One that is nested too deep is told to *odd*, and its object stays as it was last understood.
    """
    for line in lines:
        if not line:
            continue
        try:
            found = frame(line)
        except TooDeepError as error:
            odd(error)
        else:
            yield found


def frame(line: bytes) -> Frame:
    """Parse one line of a watch; raises :class:`UnreadableError`."""
    return _decode(_FRAMES, line)


def version(raw: msgspec.Raw) -> str:
    """Return the object's resource version; raises :class:`UnreadableError`."""
    return _decode(_MARKS, raw).metadata.resource_version


def ends_list(bookmark: msgspec.Raw) -> bool:
    """Say whether *bookmark* is the one after a streamed list's last object."""
    annotations = _decode(_MARKS, bookmark).metadata.annotations or {}
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
