"""Lines come out of a stream whole, however it was cut into chunks."""

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.errors import UnreachableError, UnreadableError
from kube.stream import FrameStream, LineStream


class Dripping:
    """A stream whose chunks are given, and which may break at its end."""

    def __init__(self, chunks: list[bytes], *, breaks: bool = False) -> None:
        self._chunks = iter(chunks)
        self._breaks = breaks

    async def readany(self) -> bytes:
        for chunk in self._chunks:
            return chunk
        if self._breaks:
            raise ConnectionResetError("reset by peer")
        return b""


def batches(stream: Dripping, *, longest: int = 1 << 20) -> list[list[bytes]]:
    async def read() -> list[list[bytes]]:
        return [batch async for batch in LineStream(stream, place="watch", longest=longest)]

    return asyncio.run(read())


LINES = st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=20)
CUTS = st.lists(st.integers(min_value=0, max_value=400), max_size=20)


@settings(max_examples=100)
@given(LINES, CUTS)
def test_any_cut_gives_the_same_lines(lines: list[bytes], cuts: list[int]) -> None:
    """Chunks end in the middle of lines or hold several; the lines are the same."""
    data = b"".join(line + b"\n" for line in lines)
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    chunks = [data[a:b] for a, b in itertools.pairwise(ends)]

    read = [line for batch in batches(Dripping(chunks)) for line in batch]

    assert read == lines


def test_lines_that_are_here_come_together() -> None:
    """A batch is what had arrived, and a line that has only begun waits for its rest."""
    assert batches(Dripping([b"a\nb\nc", b"", b"never"])) == [[b"a", b"b"]]


def test_a_line_without_end_is_refused() -> None:
    """A peer cannot make us keep more than the longest line."""
    with pytest.raises(UnreadableError, match="watch: an event exceeds 10 bytes"):
        batches(Dripping([b"x" * 6, b"x" * 6]), longest=10)


def test_a_broken_stream_is_an_error_of_ours() -> None:
    """What had arrived is delivered; then the break is told."""
    with pytest.raises(UnreachableError, match="watch: no answer: reset by peer"):
        batches(Dripping([b"a\n"], breaks=True))


def frame_batches(stream: Dripping, *, longest: int = 1 << 20) -> list[list[bytes]]:
    async def read() -> list[list[bytes]]:
        return [batch async for batch in FrameStream(stream, place="watch", longest=longest)]

    return asyncio.run(read())


def framed(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=300), max_size=20), CUTS)
def test_any_cut_gives_the_same_frames(frames: list[bytes], cuts: list[int]) -> None:
    """Chunks end in the middle of frames, and of their lengths."""
    data = framed(frames)
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    chunks = [data[a:b] for a, b in itertools.pairwise(ends)]

    assert [frame for batch in frame_batches(Dripping(chunks)) for frame in batch] == frames


def test_a_frame_without_end_is_refused() -> None:
    """Before any of it is kept."""
    with pytest.raises(UnreadableError, match="watch: an event exceeds 10 bytes"):
        frame_batches(Dripping([framed([b"x" * 11])[:4]]), longest=10)


def test_frames_that_break_off_are_an_error() -> None:
    """What has come whole was published before."""
    with pytest.raises(UnreachableError):
        frame_batches(Dripping([framed([b"a"]), b"\x00"], breaks=True))
