"""The text of a batch of records, in which an end that several lines have is written once.

Replicas of a template have records that differ in a few names, and are the same for kilobytes. So
a line of a batch is one of three:

- ``{...}`` is a record.
- ``=7 END`` defines 7 as an end of lines, until another line defines 7 anew.
- ``@7 START`` is a record, too: its line is START and the end that 7 is.

Batches that follow one another are a batch again. Runs for every record of the webhook.
"""

import re
from collections.abc import Iterator
from typing import Final

from allocator.audit.line_buffer import Line, LineEnd, line_size

MOST_RECORDS: Final = 500  # of one batch
MOST_BYTES: Final = 1024 * 1024  # of one batch, unless a single record is larger
# Bytes of the records of one batch, each written out; what a console takes at a time.
MOST_WHOLE_BYTES: Final = 4 * 1024 * 1024
_MARKED: Final = re.compile(rb"([=@])([0-9]{1,6}) (.*)")
_MARKS_SIZE: Final = 20  # bytes, at most, of the marks of a record and of its end
_MARKS: Final = frozenset((ord("="), ord("@")))


class BatchText:
    """A batch that is being gathered."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._parts: list[bytes] = []
        self._references: dict[LineEnd, bytes] = {}
        self.records = 0
        self.size = 0  # bytes
        self.whole_size = 0  # bytes of the records, each written out

    def has_room(self, start: bytes, end: LineEnd | None) -> bool:
        """Say whether another record fits; the first always does."""
        size = line_size(start, end)
        return not self.records or (
            self.records < MOST_RECORDS
            and self.size + size + _MARKS_SIZE <= MOST_BYTES
            and self.whole_size + size <= MOST_WHOLE_BYTES
        )

    def add(self, start: bytes, end: LineEnd | None) -> None:
        """Add a record."""
        self.records += 1
        self.whole_size += line_size(start, end)
        if end is None:
            self._parts.append(start)
            self.size += len(start)
            return
        reference = self._references.get(end)
        if reference is None:
            reference = self._references[end] = b"@%d " % len(self._references)
            self._parts.append(b"=%b" % reference[1:])
            self._parts.extend(end.parts)
            self.size += len(reference) + end.size
        self._parts.append(reference)
        self._parts.append(start)
        self._parts.append(b"\n")
        self.size += len(reference) + len(start) + 1

    def text(self) -> bytes:
        """Return the text of the batch."""
        return b"".join(self._parts)


class BatchReader:
    """Reads the lines of batches, one after another."""

    def __init__(self) -> None:
        """Know of no end."""
        self._ends: dict[bytes, LineEnd] = {}

    def read(self, line: bytes) -> Line | None:
        """Return the record of *line*, which has no line break; ``None`` where it defines an end.

        Raises ``ValueError`` where it refers to an end that no line before it defines.
        """
        if not line or line[0] not in _MARKS:
            return line, None
        found = _MARKED.fullmatch(line)
        if found is None:
            raise ValueError(
                'the line begins with "=" or "@"; accepted after it: a number of at most 6 digits'
                " and a space"
            )
        mark, number, text = found[1], found[2], found[3]
        if mark == b"=":
            self._ends[number] = LineEnd((text, b"\n"))
            return None
        end = self._ends.get(number)
        if end is None:
            raise ValueError(
                f"@{number.decode()} refers to an end that no line before it defines;"
                f" accepted: a line that begins with ={number.decode()} before it"
            )
        return text, end


def read_batch(text: bytes) -> Iterator[Line]:
    """Yield the records of *text* with their line breaks, as :class:`BatchText` takes them.

    A line that cannot be read counts as a record, too.
    """
    reader = BatchReader()
    for line in text.split(b"\n"):
        if not line:
            continue
        try:
            read = reader.read(line)
        except ValueError:
            read = line, None
        if read is None:
            continue
        start, end = read
        yield (b"%b\n" % start, None) if end is None else read


def whole_size_of(text: bytes) -> int:
    """Return the bytes of the records of *text*, each written out."""
    return sum(line_size(start, end) for start, end in read_batch(text))
