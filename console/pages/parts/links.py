"""Addresses of pages: the whole state of a page stands in its address."""

from collections.abc import Mapping
from typing import Final

_UNRESERVED: Final = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
)
_NO_SEGMENT: Final = frozenset(("", ".", ".."))  # a browser would resolve these


def address(path: str, values: Mapping[str, str] | None = None) -> str:
    """Return *path* with those of *values* that are not empty."""
    pairs = {key: value for key, value in (values or {}).items() if value}
    query = "&".join(f"{encoded(key)}={encoded(value)}" for key, value in pairs.items())
    return f"{path}?{query}" if query else path


def encoded(text: str) -> str:
    """Return *text* with percent signs for all that RFC 3986 does not leave as it is.

    A half character, of which no UTF-8 exists, becomes a question mark.
    """
    octets = text.encode(errors="replace")
    return "".join(chr(octet) if octet in _UNRESERVED else f"%{octet:02X}" for octet in octets)


def below(path: str, *segments: str) -> str:
    """Return *path* with *segments* behind it, each quoted; empty where one cannot be addressed."""
    if not all(map(_is_segment, segments)):
        return ""
    return "/".join([path, *map(encoded, segments)])


def _is_segment(text: str) -> bool:
    """Say whether a server gets *text* back as it was: a slash would divide it."""
    return text not in _NO_SEGMENT and "/" not in text and text.isprintable()


def decision_address(digest: str, pod_uid: str = "") -> str:
    """Return the address of a decision; empty where it has no digest."""
    return below("/decisions", digest, *([pod_uid] if pod_uid else []))


def node_address(name: str) -> str:
    """Return the address of a node."""
    return below("/nodes", name)
