"""Files that are replaced as a whole, on a real disk."""

import os
from pathlib import Path

import pytest

from agent.durable_files import replace_durably, write_durably


def test_content_is_replaced_and_forced_to_disk_with_its_folder(tmp_path: Path) -> None:
    """First the file, under its new name only once it is whole, then the folder with the name."""
    path, seen = tmp_path / "journal", list[tuple[bool, bool]]()

    def sync(descriptor: int) -> None:
        seen.append((Path(f"/proc/self/fd/{descriptor}").resolve().is_dir(), path.exists()))
        os.fsync(descriptor)

    replace_durably(path, b"one", sync=sync)
    replace_durably(path, b"")

    assert seen == [(False, False), (True, True)]
    assert path.read_bytes() == b""
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["journal"]


def test_a_full_disk_leaves_the_old_content(tmp_path: Path) -> None:
    """The caller hears of it before it changes what the file was to tell of."""
    path = tmp_path / "journal"
    replace_durably(path, b"old")

    def full(_: int) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        replace_durably(path, b"new", sync=full)
    assert path.read_bytes() == b"old"
    replace_durably(path, b"new")
    assert path.read_bytes() == b"new"


def test_no_link_is_followed(tmp_path: Path) -> None:
    """Whoever may write to the folder has no other file of the node overwritten."""
    other = tmp_path / "other"
    other.write_bytes(b"precious")
    (tmp_path / "journal.new").symlink_to(other)

    with pytest.raises(OSError, match="symbolic links"):
        replace_durably(tmp_path / "journal", b"x")
    assert other.read_bytes() == b"precious"


def test_a_write_that_is_cut_short_is_an_error() -> None:
    """A pipe that is full takes a part, as a full disk does."""
    reading, writing = os.pipe2(os.O_NONBLOCK)
    try:
        with pytest.raises(OSError, match="journal"):
            write_durably(writing, b"x" * (1 << 22), path=Path("journal"))
    finally:
        os.close(reading)
        os.close(writing)
