"""Content that decisions rest on: its canonical JSON, its digest, and errors about it.

Equal content has equal bytes, so the store keeps one copy however many programs send it.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from allocator.model.untrusted import inert

LARGEST_CONTENT: Final = 512 * 1024  # bytes of canonical JSON that are read
T = TypeVar("T")


class ReplayContentError(ValueError):
    """Content that this version cannot read; says which field, and what would be accepted."""


def canonical_json(content: Mapping[str, Any]) -> bytes:
    """Return *content* as JSON without spaces, its keys in order.

    Raises :class:`ReplayContentError` for what no JSON can hold, such as half characters.
    """
    try:
        return msgspec.json.encode(content, order="sorted")
    except (UnicodeError, RecursionError, OverflowError) as error:
        raise ReplayContentError(f"content is no JSON: {inert(str(error)[:256])}") from error


def content_digest(content: Mapping[str, Any]) -> str:
    """Return 32 hexadecimal digits that name *content*."""
    return hashlib.blake2b(canonical_json(content), digest_size=16).hexdigest()


def check_size(content: Mapping[str, Any]) -> None:
    """Raise :class:`ReplayContentError` for content that is too large to be worth reading."""
    size = len(canonical_json(content))
    if size > LARGEST_CONTENT:
        raise ReplayContentError(f"content has {size} bytes; at most {LARGEST_CONTENT} are read")


def typed(content: object, kind: type[T]) -> T:
    """Return *content* as *kind*; raises :class:`ReplayContentError`."""
    try:
        return msgspec.convert(content, kind)
    except (msgspec.ValidationError, UnicodeError, RecursionError) as error:
        raise ReplayContentError(inert(str(error)[:256])) from error
