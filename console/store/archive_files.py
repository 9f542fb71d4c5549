"""Archives of records: files of JSON lines, compressed where their name ends in .gz."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, TextIO, cast

from allocator.cli.files import STANDARD_INPUT, UnusableError, display_name
from console.records.archive import LONGEST_LINE, BadLineError, archive_line, parse_line
from console.records.query import EVERYTHING, RecordFilter
from console.records.rows import StoredRecord
from console.store.sql.sql_store import now_ms
from console.store.store import RecordStore

MOST_SHOWN: Final = 20  # lines that are named of each file
_RECORDS: Final = 1000  # in one append
_BYTES: Final = 8 * 1024 * 1024  # of their lines
_GZIP: Final = b"\x1f\x8b"


@dataclass(slots=True)
class ImportCount:
    """What became of the lines of archives."""

    new: int = 0
    known: int = 0
    rejected: int = 0


def export_records(store: RecordStore, query: RecordFilter, *, name: str, output: BinaryIO) -> int:
    """Write all records that match to the file *name*, ``-`` for *output*; return how many.

    A file appears under its name once it is whole. Raises :class:`UnusableError` and
    :class:`StoreError`.
    """
    count = 0
    with _written(name, output) as file:
        for stored in store.export(EVERYTHING, query):
            file.write(archive_line(stored))
            count += 1
    return count


@contextmanager
def _written(name: str, output: BinaryIO) -> Iterator[BinaryIO]:
    if name == STANDARD_INPUT:
        yield output
        output.flush()
        return
    part = Path(f"{name}.part")
    try:
        with part.open("wb") as plain:
            if name.endswith(".gz"):
                with gzip.GzipFile(fileobj=plain, mode="wb", mtime=0) as compressed:
                    yield cast("BinaryIO", compressed)
            else:
                yield plain
        part.replace(name)
    except OSError as error:
        raise _unusable(name, error) from error
    finally:
        part.unlink(missing_ok=True)


def import_records(
    store: RecordStore, name: str, *, standard_input: BinaryIO, errors: TextIO
) -> ImportCount:
    """Store the records of the file *name*, ``-`` for *standard_input*; return what became of them.

    A line that is no record is named on *errors* and left out. An import that was interrupted is
    simply done again. Raises :class:`UnusableError` and :class:`StoreError`.
    """
    count = ImportCount()
    batch: list[StoredRecord] = []
    size = 0
    try:
        with _read(name, standard_input) as file:
            for number, line in _lines(file):
                try:
                    batch.append(parse_line(line, now_ms()))
                except BadLineError as error:
                    count.rejected += 1
                    if count.rejected <= MOST_SHOWN:
                        errors.write(f"{display_name(name)}: line {number} {error}\n")
                    continue
                size += len(line)
                if len(batch) >= _RECORDS or size >= _BYTES:
                    _store(store, batch, count)
                    size = 0
    except (OSError, EOFError, zlib.error) as error:
        raise _unusable(name, error) from error
    finally:
        _store(store, batch, count)
    return count


def _store(store: RecordStore, batch: list[StoredRecord], count: ImportCount) -> None:
    new = store.append(batch)
    count.new += new
    count.known += len(batch) - new
    batch.clear()


@contextmanager
def _read(name: str, standard_input: BinaryIO) -> Iterator[BinaryIO]:
    if name == STANDARD_INPUT:
        yield standard_input
        return
    with Path(name).open("rb") as plain:
        compressed = plain.read(len(_GZIP)) == _GZIP
        plain.seek(0)
        if compressed:
            with gzip.GzipFile(fileobj=plain, mode="rb") as file:
                yield cast("BinaryIO", file)
        else:
            yield plain


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield lines that are not empty, by number; of one that is too long only its begin."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        rest = line
        while len(rest) > LONGEST_LINE and not rest.endswith(b"\n"):
            rest = file.readline(LONGEST_LINE + 1)
        if line.strip():
            yield number, line


def _unusable(name: str, error: Exception) -> UnusableError:
    why = getattr(error, "strerror", None) or str(error)
    return UnusableError(
        f"{display_name(name)}: {str(why).lower()}; accepted: a file of JSON lines, or - for"
        " standard input and output"
    )
