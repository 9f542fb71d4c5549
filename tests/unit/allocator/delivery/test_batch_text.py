"""A batch holds the same records as its lines do, in a fraction of the bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.audit.line_buffer import LineEnd, whole_line
from allocator.delivery.batch_text import (
    MOST_BYTES,
    MOST_RECORDS,
    MOST_WHOLE_BYTES,
    BatchReader,
    BatchText,
    read_batch,
    whole_size_of,
)

END = LineEnd((b'"rest":', b"1}\n"))
OTHER = LineEnd((b'"rest":2}\n',))


def ends(count: int) -> list[LineEnd]:
    return [LineEnd((b'"end":%d' % number, b',"=7 ":"@7 "}\n')) for number in range(count)]


TEXTS = st.binary(max_size=40).map(lambda one: b"{" + one.replace(b"\n", b""))


@given(st.lists(st.tuples(TEXTS, st.none() | st.integers(0, 3)), max_size=60), st.booleans())
def test_a_batch_reads_as_it_was_written(
    records: list[tuple[bytes, int | None]], in_two: bool
) -> None:
    """In order, also where two batches follow one another and define the same numbers anew."""
    of_batches = [ends(4), ends(4)[::-1]]
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

    assert batch.text() == (
        b'=0 "rest":1}\n@0 {"a":1,\n=1 "rest":2}\n@1 {"a":2,\n{"a":3}\n@0 {"a":4,\n'
    )


@pytest.mark.parametrize(
    ("start", "end", "count"),
    [
        pytest.param(b"{}\n", None, MOST_RECORDS, id="records"),
        pytest.param(b"{", END, MOST_RECORDS, id="records-alike"),
        pytest.param(b"x" * (MOST_BYTES // 9 - 1) + b"\n", None, 8, id="bytes"),
        pytest.param(b"x" * (MOST_BYTES // 9), END, 8, id="bytes-of-starts"),
        pytest.param(b"{", LineEnd((b"x" * (MOST_WHOLE_BYTES // 9), b"\n")), 8, id="whole-bytes"),
        pytest.param(b"{", LineEnd((b"x" * (MOST_WHOLE_BYTES // 64 - 2), b"\n")), 64, id="exactly"),
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

    assert batch.has_room(b"x" * (MOST_BYTES - 3 - 20), None)
    assert not batch.has_room(b"x" * (MOST_BYTES - 3 - 19), None)


def test_the_first_record_always_fits() -> None:
    """A console may take it all the same."""
    assert BatchText().has_room(b"x" * 2 * MOST_WHOLE_BYTES, END)


@pytest.mark.parametrize(
    "line",
    [
        *(b"=", b"@", b"=7", b"@7", b"=x END", b"@x START", b"@ 7 START", b"=1234567 END"),
        *(b"@-1 START", b"@0x1 START", b"=\xd9\xa1 END", b"@7\tSTART", b"@\x00 START"),
    ],
)
def test_a_line_that_cannot_be_read_says_what_would_be_accepted(line: bytes) -> None:
    """And is a record for those who only count, so that the console says so."""
    with pytest.raises(ValueError, match="accepted after it: a number"):
        BatchReader().read(line)

    assert list(read_batch(line + b"\n")) == [(line + b"\n", None)]


def test_what_nothing_defines_is_named() -> None:
    """A number counts as it is written."""
    reader = BatchReader()
    assert reader.read(b"=07 END") is None

    with pytest.raises(
        ValueError,
        match=r"^@7 refers to an end that no line before it defines; accepted: .* =7 before it$",
    ):
        reader.read(b"@7 {")
    assert reader.read(b"@07 {") is not None
