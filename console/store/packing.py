"""JSON as the store keeps it: uids as sixteen bytes, then compressed.

A dictionary of what records usually contain primes the compression, because one record alone is
too short to repeat itself. The first byte names the dictionary; one that was in use stays here.
"""

import re
import zlib
from typing import Final

from console.records.fold import uid_text
from console.store.body_words import WORDS

_CURRENT: Final = 1
_DICTIONARIES: Final = {1: WORDS}
_LEVEL: Final = 6
_WINDOW: Final = -14  # bits; raw deflate, without header and checksum
_MEMORY: Final = 7  # half of the usual; a record is small
LARGEST_UNPACKED: Final = 4 * 1024 * 1024  # bytes
# A uid becomes a zero byte, which JSON never has, and sixteen bytes.
_UID: Final = re.compile(rb'"((?:GPU-|MIG-)?)([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"')
_MARKED: Final = re.compile(rb"\0(.{16})", re.DOTALL)


_PREFIX: Final = bytes([_CURRENT])
_PRIMED: Final = zlib.compressobj(
    _LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY, zdict=_DICTIONARIES[_CURRENT]
)


class BadBodyError(ValueError):
    """A stored body that cannot be read."""


def packed(data: bytes) -> bytes:
    """Return the JSON *data* as the store keeps it."""
    deflate = _PRIMED.copy()  # to prime one takes longer than all else here
    return _PREFIX + deflate.compress(_UID.sub(_marked, data)) + deflate.flush()


def unpacked(data: bytes) -> bytes:
    """Return the JSON that :func:`packed` packed; raises :class:`BadBodyError`."""
    try:
        inflate = zlib.decompressobj(_WINDOW, zdict=_DICTIONARIES[data[0]])
        text = inflate.decompress(data[1:], LARGEST_UNPACKED)
    except (KeyError, IndexError, zlib.error) as error:
        raise BadBodyError(f"cannot be decompressed: {error}") from error
    if not inflate.eof:
        raise BadBodyError("ends too early")
    return _MARKED.sub(_unmarked, text)


def _marked(match: re.Match[bytes]) -> bytes:
    raw = bytes.fromhex(match[2].replace(b"-", b"").decode())
    return b'"%b\0%b"' % (match[1], raw)


def _unmarked(match: re.Match[bytes]) -> bytes:
    return uid_text(match[1]).encode()
