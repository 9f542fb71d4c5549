"""The book of partitions on disk: which container holds which partition of which GPU.

It is forced to disk before a partition is made, and again once it has a name. Partitions end with
their daemon, and so at a reboot; the daemon's own table says which of them there still are.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import structlog

from agent.durable_files import durable_content, replace_durably
from agent.mps.partitions.plan import Held
from agent.mps.partitions.table import HeldPartition
from allocator.model.request import Stage

MOST_BYTES: Final = 1024 * 1024
_GPU: Final = re.compile(r"GPU-[A-Za-z0-9-]{1,60}")
_KEY: Final = re.compile(r"[0-9A-Za-z-]{1,64}/[0-9a-z-]{1,63}")
_NAME: Final = re.compile(r"[A-Za-z0-9+/=_-]{0,128}")
Book = Mapping[str, Held]  # by the UUID of a GPU
log = structlog.get_logger(__name__)


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    chunks: int
    stage: Stage
    name: str


class _BookDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    boot: str
    partitions: dict[str, dict[str, _Line]]


def book_document(book: Book, boot: str) -> bytes:
    """Return the file that says *book* under *boot*."""
    partitions = {
        gpu: {
            key: _Line(chunks=held.chunks, stage=held.stage, name=held.name)
            for key, held in sorted(on_gpu.items())
        }
        for gpu, on_gpu in sorted(book.items())
    }
    return msgspec.json.encode(_BookDocument(boot=boot, partitions=partitions))


def parse_book(text: bytes, boot: str) -> Book | None:
    """Return what a file says under *boot*; ``None`` if it is damaged."""
    if not text:
        return {}
    if len(text) > MOST_BYTES:
        return None
    try:
        document = msgspec.json.decode(text, type=_BookDocument)
    except (ValueError, RecursionError):  # of msgspec, and of text that is no UTF-8
        return None
    for gpu, lines in document.partitions.items():
        if _GPU.fullmatch(gpu) is None or not all(map(_is_sound, lines, lines.values())):
            return None
    if document.boot != boot:
        return {}
    return {
        gpu: {
            key: HeldPartition(chunks=line.chunks, stage=line.stage, name=line.name)
            for key, line in lines.items()
        }
        for gpu, lines in document.partitions.items()
    }


def _is_sound(key: str, line: _Line) -> bool:
    named = _KEY.fullmatch(key) is not None and _NAME.fullmatch(line.name) is not None
    return named and 0 < line.chunks <= 100  # noqa: PLR2004 -- a chunk is at least 1 %


class PartitionBook:
    """The partitions of a node's GPUs in *path*, since *boot*; ``book`` is the present content.

    Where the file is damaged, nobody holds anything: partitions without clients are removed, and a
    container that starts again gets another.
    """

    def __init__(self, path: Path, *, boot: str, sync: Callable[[int], object] = os.fsync) -> None:
        """Read the file; raises OSError if it exists and cannot be read."""
        self._path = path
        self._boot = boot
        self._sync = sync
        book = parse_book(durable_content(path), boot)
        if book is None:
            log.warning("book of MPS partitions is damaged", path=str(path))
        self.book: Book = book or {}

    def write(self, gpu: str, held: Held) -> None:
        """Put on disk who holds what on *gpu*; raises OSError, and then the old content stands."""
        book = {name: on_gpu for name, on_gpu in self.book.items() if name != gpu}
        if held:
            book[gpu] = dict(held)
        replace_durably(self._path, book_document(book, self._boot), sync=self._sync)
        self.book = book
