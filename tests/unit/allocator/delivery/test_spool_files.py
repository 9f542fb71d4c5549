"""What a spool returns is exactly what was stored, whatever became of its files."""

from pathlib import Path

import pytest

from allocator.delivery.spool_files import LARGEST_SEGMENT, Segment, Spool

LINES = b'{"id":"1"}\n{"id":"2"}\n'


def reopened(folder: Path) -> list[tuple[int, bytes | None]]:
    spool = Spool(folder)
    return [(segment.records, spool.load(segment)) for segment in spool.open()]


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Spool, Segment]:
    spool = Spool(tmp_path)
    spool.open()
    return spool, spool.store(LINES, records=2, durable=True)


def test_the_next_run_finds_segments_in_order(tmp_path: Path) -> None:
    """With their numbers of records, and also those that were stored in the same nanosecond."""
    spool = Spool(tmp_path / "made" / "as needed")
    spool.open()
    for number in range(20):
        spool.store(b"%d\n" % number, records=number, durable=number % 2 == 0)

    assert reopened(tmp_path / "made" / "as needed") == [(n, b"%d\n" % n) for n in range(20)]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda text: text[:-1], id="truncated"),
        pytest.param(lambda text: text[:5], id="truncated-in-the-header"),
        pytest.param(lambda _: b"", id="empty"),
        pytest.param(lambda text: text + b"{}\n", id="longer"),
        pytest.param(lambda text: text.replace(b'"1"', b'"7"'), id="another-content"),
        pytest.param(lambda text: b"x" * len(text), id="garbage"),
        pytest.param(lambda text: text + b"\0" * LARGEST_SEGMENT, id="huge"),
    ],
)
def test_a_damaged_segment_is_never_returned(
    stored: tuple[Spool, Segment], tmp_path: Path, change: object
) -> None:
    """It is still known how many records it had."""
    spool, segment = stored
    file = tmp_path / segment.name
    assert callable(change)
    file.write_bytes(change(file.read_bytes()))

    assert spool.load(segment) is None
    assert reopened(tmp_path) == [(2, None)]


def test_what_is_not_a_segment_is_left_alone(stored: tuple[Spool, Segment], tmp_path: Path) -> None:
    """But for segments whose writer was killed, which are removed."""
    _, segment = stored
    (tmp_path / f"{segment.name}.unfinished").write_bytes(b"22 ")
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "note.txt").write_text("hello")

    assert reopened(tmp_path) == [(2, LINES)]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [segment.name, "lost+found", "note.txt"]
    )


def test_a_link_in_place_of_a_segment_is_not_followed(
    stored: tuple[Spool, Segment], tmp_path: Path
) -> None:
    """Nothing but our own files is sent anywhere."""
    spool, segment = stored
    target = tmp_path / "secret"
    (tmp_path / segment.name).rename(target)
    (tmp_path / segment.name).symlink_to(target)

    assert spool.load(segment) is None


def test_a_removed_segment_is_gone(stored: tuple[Spool, Segment], tmp_path: Path) -> None:
    """Also for the next run, and to remove it twice does nothing."""
    spool, segment = stored
    spool.remove(segment)
    spool.remove(segment)

    assert spool.load(segment) is None
    assert reopened(tmp_path) == []


def test_small_segments_count_as_the_blocks_that_they_take(
    stored: tuple[Spool, Segment],
) -> None:
    """So the bound is one of the disk, however small the segments are."""
    spool, segment = stored

    assert segment.size == 4096
    assert spool.has_room(0, LINES)
    assert not Spool(Path("/nowhere"), limit=8191).has_room(4096, LINES)
    assert Spool(Path("/nowhere"), limit=8192).has_room(4096, LINES)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """And not an empty spool."""
    (tmp_path / "file").write_text("")

    with pytest.raises(OSError, match="file"):
        Spool(tmp_path / "file").open()
    with pytest.raises(OSError, match="nowhere"):
        Spool(tmp_path / "nowhere").store(LINES, records=2, durable=True)
