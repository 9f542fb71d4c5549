"""The text of a batch of records, in which an end that several lines have is written once.

Replicas of a template have records that differ in a few names, and are the same for kilobytes;
those of other templates are the same for most of that. So a line of a batch is one of four:

- ``{...}`` is a record.
- ``=7 END`` defines 7 as an end of lines, until another line defines 7 anew.
- ``+8 7 TEXT`` defines 8 as TEXT and the end that 7 is, which a line with ``=`` defined.
- ``@8 START`` is a record, too: its line is START and the end that 8 is.

Batches that follow one another are a batch again. Runs for every record of the webhook.
"""

import re
from collections.abc import Iterator
from typing import Final

from allocator.audit.line_buffer import Line, LineEnd, line_size

MOST_RECORDS: Final = 1000  # of one batch
MOST_LINES: Final = 3 * MOST_RECORDS  # each with an end of its own, in two parts
MOST_BYTES: Final = 1024 * 1024  # of one batch, unless a single record is larger
# Bytes of the records of one batch, each written out; what a console takes at a time.
MOST_WHOLE_BYTES: Final = 4 * 1024 * 1024
_MARKED: Final = re.compile(rb"(?:([=@])|\+([0-9]{1,6}) )([0-9]{1,6}) (.*)")
_MARKS_SIZE: Final = 32  # bytes, at most, of the marks of a record and of its end
_MARKS: Final = frozenset(b"=+@")


class BatchText:
    """A batch that is being gathered."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._parts: list[bytes] = []
        # With which records refer to an end, and the numbers of tails.
        self._references: dict[LineEnd, bytes] = {}
        self._tails: dict[bytes, bytes] = {}
        self._defined = 0  # ends and tails
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
            reference = self._references[end] = self._define(end)
        self._parts.append(reference)
        self._parts.append(start)
        self._parts.append(b"\n")
        self.size += len(reference) + len(start) + 1

    def _define(self, end: LineEnd) -> bytes:
        """Write *end*; return what refers to it."""
        tail = self._tails.get(end.tail)
        if tail is None:
            tail = self._tails[end.tail] = self._number()
            self._parts.append(b"=%b" % tail)
            self._parts.append(end.tail)
            self.size += 1 + len(tail) + len(end.tail)
        if not end.own:
            return b"@%b" % tail
        number = self._number()
        mark = b"+%b%b" % (number, tail)
        self._parts.append(mark)
        self._parts.append(end.own)
        self._parts.append(b"\n")
        self.size += len(mark) + len(end.own) + 1
        return b"@%b" % number

    def _number(self) -> bytes:
        self._defined += 1
        return b"%d " % self._defined

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
                'the line begins with "=", "+" or "@"; accepted after it: a number of at most 6'
                ' digits and a space, after "+" two of both'
            )
        mark, defined, number, text = found.groups()
        if mark == b"=":
            self._ends[number] = LineEnd(b"", text + b"\n")
            return None
        end, name = self._ends.get(number), number.decode()
        if end is None:
            raise ValueError(
                f"{name} refers to an end that no line before it defines; accepted: a line that"
                f" begins with ={name} before it"
            )
        if mark == b"@":
            return text, end
        if end.own:
            raise ValueError(
                f"{name} refers to an end that refers to another; accepted: one that a line which"
                f" begins with ={name} defines"
            )
        self._ends[defined] = LineEnd(text, end.tail)
        return None


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
