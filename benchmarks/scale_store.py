"""Fills etcd with copies of objects that the API server stored, which then reads them as its own.

Creating 80,000 objects through the API server takes a quarter of an hour, this takes a minute. A
copy differs from its original only in names, each of the same length, so that the lengths that
protobuf states stay true.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, Self, cast

import grpc

MOST_PUTS: Final = 100  # in one transaction; etcd takes 128
MOST_BYTES: Final = 1 << 20  # in one transaction; etcd takes 1.5 MiB
CALL_SECONDS: Final = 30.0
# Field numbers of etcdserverpb, with the wire type of what has a length.
_KEY, _VALUE = b"\x0a", b"\x12"  # PutRequest, DeleteRangeRequest, RangeRequest, KeyValue
_PUT, _SUCCESS = b"\x12", b"\x12"  # RequestOp.request_put, TxnRequest.success
_Call = Callable[..., bytes]


class Etcd:
    """Reads and writes keys of an etcd; a context manager that owns the connection."""

    def __init__(self, url: str) -> None:
        """Reach the etcd at *url*, which is plain HTTP."""
        self._channel = grpc.insecure_channel(url.removeprefix("http://"))
        self._range = cast(_Call, self._channel.unary_unary("/etcdserverpb.KV/Range"))
        self._txn = cast(_Call, self._channel.unary_unary("/etcdserverpb.KV/Txn"))
        self._delete = cast(_Call, self._channel.unary_unary("/etcdserverpb.KV/DeleteRange"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def get(self, key: str) -> bytes:
        """Return the value of *key*; raises ``KeyError`` where there is none."""
        answer = self._range(field_of(_KEY, key.encode()), timeout=CALL_SECONDS)
        for number, stored in fields_of(answer):
            if number == 2:  # noqa: PLR2004 -- RangeResponse.kvs
                return next(value for number, value in fields_of(stored) if number == 5)  # noqa: PLR2004 -- KeyValue.value
        raise KeyError(key)

    def delete(self, key: str) -> None:
        """Remove *key*, if it is there."""
        self._delete(field_of(_KEY, key.encode()), timeout=CALL_SECONDS)

    def put_all(self, values: Iterable[tuple[str, bytes]]) -> int:
        """Write all *values*, each by its key, and return their number."""
        done = 0
        for batch in _batches(values):
            operations = (
                field_of(
                    _SUCCESS, field_of(_PUT, field_of(_KEY, key.encode()) + field_of(_VALUE, value))
                )
                for key, value in batch
            )
            self._txn(b"".join(operations), timeout=CALL_SECONDS)
            done += len(batch)
        return done


def copied(original: bytes, names: Mapping[str, str]) -> bytes:
    """Return *original* with each name of *names* replaced by another of the same length.

    Raises ``ValueError`` where a name is not there, or would change the length.
    """
    for old, new in names.items():
        if len(old) != len(new) or old.encode() not in original:
            raise ValueError(f"no copy with {new!r} in the place of {old!r}")
        original = original.replace(old.encode(), new.encode())
    return original


def _batches(values: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    """Yield *values* in parts that one transaction takes."""
    waiting = iter(values)
    while batch := list(islice(waiting, MOST_PUTS)):
        size = max(len(value) for _, value in batch)
        most = max(1, MOST_BYTES // max(size, 1))
        for first in range(0, len(batch), most):
            yield batch[first : first + most]


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:  # noqa: PLR2004 -- seven bits to a byte
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def field_of(tag: bytes, value: bytes) -> bytes:
    """Return a field that has a length, as protobuf writes it; *tag* has its number and type."""
    return tag + _varint(len(value)) + value


def fields_of(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of each field of *message* that has a length; others are numbers."""
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        number, at = _read_varint(message, at)
        if tag & 7 == 2:  # noqa: PLR2004 -- the wire type of what has a length
            yield tag >> 3, message[at : at + number]
            at += number


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return number, at
