"""Lines that wait: whole and in their order, whether they are encoded now or later."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from allocator.audit.line_buffer import MOST_PENDING, LineBuffer, LineEnd


@given(st.lists(st.binary(max_size=100_000).map(lambda one: one.replace(b"\n", b"")), max_size=9))
def test_a_buffer_holds_whole_lines(texts: list[bytes]) -> None:
    """However long they are, and again after it was cleared."""
    buffer = LineBuffer()
    for _ in range(2):
        assert all(buffer.add(b"%b\n" % text) for text in texts)
        chunks = list(buffer.chunks())
        assert b"".join(chunks) == b"".join(b"%b\n" % text for text in texts)
        assert all(chunk.endswith(b"\n") for chunk in chunks)
        assert list(buffer.lines()) == [(b"%b\n" % text, None) for text in texts]
        assert len(buffer) == sum(map(len, chunks))
        buffer.clear()


@given(st.lists(st.tuples(st.text(max_size=5000), st.booleans()), max_size=140))
def test_lines_in_parts_are_joined_when_they_are_written(texts: list[tuple[str, bool]]) -> None:
    """In their order among lines; each chunk has whole lines."""
    buffer, end = LineBuffer(), LineEnd(b'"rest"', b":1}\n")
    for _ in range(2):
        for text, in_parts in texts:
            start = b'{"text":%b,' % orjson.dumps(text)
            if in_parts:
                assert buffer.add_parts(start, end)
            else:
                assert buffer.add(start + b'"rest":2}\n')
        chunks = list(buffer.chunks())
        lines = b"".join(chunks).splitlines()
        assert [orjson.loads(line) for line in lines] == [
            {"text": text, "rest": 1 if in_parts else 2} for text, in_parts in texts
        ]
        assert [one is end for _, one in buffer.lines()] == [in_parts for _, in_parts in texts]
        assert [start for start, one in buffer.lines() if one is None] == [
            line + b"\n" for line, (_, in_parts) in zip(lines, texts, strict=True) if not in_parts
        ]
        assert all(chunk.endswith(b"\n") for chunk in chunks)
        assert len(buffer) == sum(map(len, chunks))
        buffer.clear()


def test_lines_are_exchanged() -> None:
    """All of them, whatever they are kept in; what one had to drop is counted there."""
    dropped = list[None]()
    one, other = LineBuffer(lambda: dropped.append(None)), LineBuffer()
    one.add(b"1\n")
    one.remember_parts(b"2", LineEnd(b"", b"\n"))
    other.add(b"3\n")
    one.exchange(other)

    assert b"".join(one.chunks()) == b"3\n"
    assert b"".join(other.chunks()) == b"1\n2\n"
    assert (len(one), len(other)) == (2, 4)
    one.remember_parts(b"x" * MOST_PENDING, LineEnd(b"", b""))
    assert len(dropped) == 1
    assert len(one) == 2
