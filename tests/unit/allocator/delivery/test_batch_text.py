"""A batch holds the same records as its lines do, in a fraction of the bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.audit.line_buffer import LineEnd, whole_line
from allocator.delivery.batch_text import (
    MOST_BYTES,
    MOST_LINES,
    MOST_RECORDS,
    MOST_WHOLE_BYTES,
    BatchReader,
    BatchText,
    read_batch,
    whole_size_of,
)

TAIL = b'"rest":1}\n'
END = LineEnd(b'"own":1,', TAIL)
ALIKE = LineEnd(b'"own":2,', TAIL)
OTHER = LineEnd(b"", b'"rest":2}\n')


def ends(count: int) -> list[LineEnd]:
    """Return ends of which two have a tail in common, and others have nothing of their own."""
    return [
        LineEnd(
            b'"end":%d' % number if number % 3 else b"",
            b',"=7 ":"@7 ","+7 8 ":%d}\n' % (number // 2),
        )
        for number in range(count)
    ]


TEXTS = st.binary(max_size=40).map(lambda one: b"{" + one.replace(b"\n", b""))


@given(st.lists(st.tuples(TEXTS, st.none() | st.integers(0, 5)), max_size=60), st.booleans())
def test_a_batch_reads_as_it_was_written(
    records: list[tuple[bytes, int | None]], in_two: bool
) -> None:
    """In order, also where two batches follow one another and define the same numbers anew."""
    of_batches = [ends(6), ends(6)[::-1]]
    batches, expected = [BatchText(), BatchText()], list[bytes]()
    for place, (text, number) in enumerate(records):
        which = int(in_two and 2 * place >= len(records))
        end = None if number is None else of_batches[which][number]
        start = text + b"\n" if end is None else text
        batches[which].add(start, end)
        expected.append(whole_line(start, end))
    text = b"".join(batch.text() for batch in batches)

    assert [whole_line(*record) for record in read_batch(text)] == expected
    assert sum(batch.size for batch in batches) == len(text)
    assert sum(batch.whole_size for batch in batches) == whole_size_of(text)
    assert whole_size_of(text) == sum(map(len, expected))
    assert sum(batch.records for batch in batches) == len(records)


def test_an_end_that_several_have_is_written_once() -> None:
    """It is the same object; what is merely equal was not compared."""
    batch = BatchText()
    batch.add(b'{"a":1,', END)
    batch.add(b'{"a":2,', OTHER)
    batch.add(b'{"a":3}\n', None)
    batch.add(b'{"a":4,', END)
    batch.add(b'{"a":5,', ALIKE)

    assert batch.text() == (
        b'=1 "rest":1}\n+2 1 "own":1,\n@2 {"a":1,\n=3 "rest":2}\n@3 {"a":2,\n{"a":3}\n'
        b'@2 {"a":4,\n+4 1 "own":2,\n@4 {"a":5,\n'
    )


def test_tails_are_shared_again_once_they_were_read() -> None:
    """Where a batch is split, or a part of it is lost."""
    batch, again = BatchText(), BatchText()
    for start, end in ((b'{"a":1,', END), (b'{"a":2,', ALIKE), (b'{"a":3,', OTHER)):
        batch.add(start, end)
    for start, read in read_batch(batch.text()):
        again.add(start, read)

    assert again.text() == batch.text()


def test_a_batch_has_no_more_lines_than_a_console_takes() -> None:
    """Where each record has an end of its own, in two parts."""
    batch = BatchText()
    for number in range(MOST_RECORDS):
        end = LineEnd(b"%d" % number, b"%d\n" % number)
        assert batch.has_room(b"{", end)
        batch.add(b"{", end)

    assert batch.text().count(b"\n") == MOST_LINES


@pytest.mark.parametrize(
    ("start", "end", "count"),
    [
        pytest.param(b"{}\n", None, MOST_RECORDS, id="records"),
        pytest.param(b"{", END, MOST_RECORDS, id="records-alike"),
        pytest.param(b"x" * (MOST_BYTES // 9 - 1) + b"\n", None, 8, id="bytes"),
        pytest.param(b"x" * (MOST_BYTES // 9), END, 8, id="bytes-of-starts"),
        pytest.param(b"{", LineEnd(b"x" * (MOST_WHOLE_BYTES // 9), b"\n"), 8, id="whole-bytes"),
        pytest.param(b"{", LineEnd(b"x" * (MOST_WHOLE_BYTES // 64 - 2), b"\n"), 64, id="exactly"),
    ],
)
def test_a_batch_is_bounded(start: bytes, end: LineEnd | None, count: int) -> None:
    """In records, in its own bytes, and in those that a console makes of them."""
    batch = BatchText()
    while batch.has_room(start, end):
        batch.add(start, end)

    assert batch.records == count
    assert len(batch.text()) <= MOST_BYTES
    assert batch.whole_size <= MOST_WHOLE_BYTES


def test_a_batch_has_room_to_its_last_byte() -> None:
    """Whatever marks of records need beside them."""
    batch = BatchText()
    batch.add(b"{}\n", None)

    assert batch.has_room(b"x" * (MOST_BYTES - 3 - 32), None)
    assert not batch.has_room(b"x" * (MOST_BYTES - 3 - 31), None)


def test_the_first_record_always_fits() -> None:
    """A console may take it all the same."""
    assert BatchText().has_room(b"x" * 2 * MOST_WHOLE_BYTES, END)


@pytest.mark.parametrize(
    "line",
    [
        *(b"=", b"@", b"=7", b"@7", b"=x END", b"@x START", b"@ 7 START", b"=1234567 END"),
        *(b"+", b"+7", b"+7 END", b"+7 x END", b"+ 7 END", b"+7  8 END", b"+1234567 8 END"),
        *(b"@-1 START", b"@0x1 START", b"=\xd9\xa1 END", b"@7\tSTART", b"@\x00 START"),
    ],
)
def test_a_line_that_cannot_be_read_says_what_would_be_accepted(line: bytes) -> None:
    """And is a record for those who only count, so that the console says so."""
    with pytest.raises(ValueError, match="accepted after it: a number"):
        BatchReader().read(line)

    assert list(read_batch(line + b"\n")) == [(line + b"\n", None)]


@pytest.mark.parametrize("line", [b"@7 {", b"+8 7 TEXT"])
def test_what_nothing_defines_is_named(line: bytes) -> None:
    """A number counts as it is written."""
    reader = BatchReader()
    assert reader.read(b"=07 END") is None

    with pytest.raises(
        ValueError,
        match=r"^7 refers to an end that no line before it defines; accepted: .* =7 before it$",
    ):
        reader.read(line)
    assert reader.read(b"@07 {") is not None


def test_an_end_refers_to_no_end_that_refers_to_another() -> None:
    """A long row of them would take much of a console's memory."""
    reader = BatchReader()
    assert reader.read(b"=1 END") is None
    assert reader.read(b"+2 1 TEXT") is None
    assert reader.read(b"+1 1 ") is None  # without a text it is the same end

    with pytest.raises(ValueError, match=r"^2 refers to an end that .* begins with =2 defines$"):
        reader.read(b"+3 2 TEXT")
    assert reader.read(b"+3 1 TEXT") is None
