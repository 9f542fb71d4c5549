"""The book of partitions, as hostile bytes too."""

from pathlib import Path

import pytest

from agent.mps.partitions.book_files import MOST_BYTES, PartitionBook, book_document, parse_book
from agent.mps.partitions.table import HeldPartition
from allocator.model.request import Stage

GPU = "GPU-3a2f7c1e-0000-0000-0000-000000000000"
HELD = {"uid-1/main": HeldPartition(chunks=2, stage=Stage.INIT, name="DxA=")}


def one(**fields: object) -> bytes:
    """Return a book with one partition that has these fields as JSON."""
    line = {"key": "uid-1/main", "gpu": GPU, "chunks": "2", "stage": '"app"', "name": '"DxA"'}
    line |= {key: str(value) for key, value in fields.items()}
    content = f'"chunks":{line["chunks"]},"stage":{line["stage"]},"name":{line["name"]}'
    inner = f'"{line["gpu"]}":{{"{line["key"]}":{{{content}}}}}'
    return f'{{"boot":"boot-1","partitions":{{{inner}}}}}'.encode()


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 5000,
        b'{"boot":"boot-1"}',
        b'{"boot":"boot-1","partitions":{},"more":1}',
        one(gpu="../x"),
        one(gpu="GPU-1/2"),
        one(key="uid-1"),
        one(key="../main"),
        one(key="uid-1/../x"),
        one(chunks=0),
        one(chunks=101),
        one(chunks='"2"'),
        one(stage='"late"'),
        one(name='"a b"'),
        one(name='"$(x)"'),
        one(name='"' + "A" * 129 + '"'),
        b'{"boot":"boot-1","partitions":{}}' + b" " * MOST_BYTES,
    ],
)
def test_a_book_that_nobody_wrote_is_damaged(text: bytes, tmp_path: Path) -> None:
    """No name of it becomes a command or a variable, and the agent starts all the same."""
    assert parse_book(text, "boot-1") is None
    path = tmp_path / "book.json"
    path.write_bytes(text)
    assert PartitionBook(path, boot="boot-1").book == {}


def test_what_was_written_is_read_again_in_the_same_boot(tmp_path: Path) -> None:
    """A reboot ends all daemons, and partitions end with them."""
    path = tmp_path / "book.json"
    PartitionBook(path, boot="boot-1").write(GPU, HELD)

    assert PartitionBook(path, boot="boot-1").book == {GPU: HELD}
    assert PartitionBook(path, boot="boot-2").book == {}
    assert parse_book(book_document({GPU: HELD}, "boot-1"), "boot-1") == {GPU: HELD}
    assert parse_book(one(), "boot-1") is not None


def test_a_write_that_fails_changes_nothing(tmp_path: Path) -> None:
    """A partition is not made by a book that is not on disk."""

    def fail(_: int) -> object:
        raise OSError("disk full")

    book = PartitionBook(tmp_path / "book.json", boot="boot-1", sync=fail)
    with pytest.raises(OSError, match="disk full"):
        book.write(GPU, HELD)
    assert book.book == {}
