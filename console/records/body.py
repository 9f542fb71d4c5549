"""Records as the store keeps them: compressed JSON, without what columns say.

A dictionary of what records usually contain primes the compression, because one record alone is
too short to repeat itself. The first byte names the dictionary; one that was in use stays here.
"""

import zlib
from typing import Final

import msgspec
from msgspec.structs import replace

from allocator.audit.record import AnyRecord, parse_record
from console.records.body_words import WORDS

_CURRENT: Final = 1
_DICTIONARIES: Final = {1: WORDS}
_LEVEL: Final = 5
_WINDOW: Final = -14  # bits; raw deflate, without header and checksum
_MEMORY: Final = 7  # half of the usual; a record is small
LARGEST_DECODED: Final = 4 * 1024 * 1024  # bytes


class BadBodyError(ValueError):
    """A stored record that cannot be read."""


class RecordColumns(msgspec.Struct, frozen=True):
    """What columns beside the body say of a record; none of it ever changes."""

    pod_uid: str = ""  # where the record's row is about this pod
    digest: str = ""  # where the record's row is about this request
    namespace: str = ""
    node: str = ""


def packed_body(record: AnyRecord, columns: RecordColumns) -> bytes:
    """Return *record* without its id, its time, and what *columns* say in the same words."""
    slim = replace(
        record,
        id="",
        at="",
        pod_uid=_remainder(record.pod_uid, columns.pod_uid),
        digest=_remainder(record.digest, columns.digest),
        namespace=_remainder(record.namespace, columns.namespace),
        node=_remainder(record.node, columns.node),
    )
    data = msgspec.json.encode(slim)
    deflate = zlib.compressobj(
        _LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY, zdict=_DICTIONARIES[_CURRENT]
    )
    return bytes([_CURRENT]) + deflate.compress(data) + deflate.flush()


def unpacked_body(data: bytes, columns: RecordColumns, *, record_id: str, at: str) -> AnyRecord:
    """Return the record that :func:`packed_body` packed; raises :class:`BadBodyError`."""
    try:
        inflate = zlib.decompressobj(_WINDOW, zdict=_DICTIONARIES[data[0]])
        record = parse_record(inflate.decompress(data[1:], LARGEST_DECODED))
    except (KeyError, IndexError, zlib.error, msgspec.MsgspecError) as error:
        raise BadBodyError(f"record {record_id} cannot be read: {error}") from error
    return replace(
        record,
        id=record_id,
        at=at,
        pod_uid=_restored(record.pod_uid, columns.pod_uid),
        digest=_restored(record.digest, columns.digest),
        namespace=_restored(record.namespace, columns.namespace),
        node=_restored(record.node, columns.node),
    )


def _remainder(stated: str, column: str) -> str:
    """Return what must be kept of *stated* beside *column*; ``-`` stands for nothing."""
    return "" if stated == column else stated or "-"


def _restored(kept: str, row: str) -> str:
    """Return what a record said; ``-`` stands for nothing, where the row has something."""
    return "" if kept == "-" else kept or row
