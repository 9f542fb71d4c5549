"""Lines that wait: whole and in their order, whether they are encoded now or later."""

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from allocator.audit.line_buffer import LineBuffer


@given(st.lists(st.binary(max_size=100_000).map(lambda one: one.replace(b"\n", b"")), max_size=9))
def test_a_buffer_holds_whole_lines(texts: list[bytes]) -> None:
    """However long they are, and again after it was cleared."""
    buffer = LineBuffer()
    for _ in range(2):
        assert all(buffer.add(b"%b\n" % text) for text in texts)
        chunks = list(buffer.chunks())
        assert b"".join(chunks) == b"".join(b"%b\n" % text for text in texts)
        assert all(chunk.endswith(b"\n") for chunk in chunks)
        assert len(buffer) == sum(map(len, chunks))
        buffer.clear()


class Record(msgspec.Struct):
    text: str
    rest: msgspec.Raw


@given(st.lists(st.tuples(st.text(max_size=5000), st.booleans()), max_size=70))
def test_records_are_encoded_when_they_are_written(texts: list[tuple[str, bool]]) -> None:
    """In their order among lines; each chunk has whole lines."""
    buffer = LineBuffer()
    for _ in range(2):
        for text, later in texts:
            if later:
                record = Record(text, msgspec.Raw(b'1,"more":2'))
                assert buffer.add_encodable(record, 40_000)
            else:
                assert buffer.add(msgspec.json.encode({"text": text}) + b"\n")
        chunks = list(buffer.chunks())
        lines = b"".join(chunks).splitlines()
        assert [json.loads(line) for line in lines] == [
            {"text": text, "rest": 1, "more": 2} if later else {"text": text}
            for text, later in texts
        ]
        assert all(chunk.endswith(b"\n") for chunk in chunks)
        buffer.clear()
