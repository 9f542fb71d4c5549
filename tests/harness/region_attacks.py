"""What a tenant may do to the file of its region, and to the file's name."""

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agent.region.layout import SEEDED
from agent.region.safe_files import LARGEST_REGION

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB
RegionAttack = Callable[[Path], None]


def symlink(cache: Path) -> None:
    victim = cache.parents[6] / "victim"
    cache.rename(victim)
    cache.symlink_to(victim)


def hard_link(cache: Path) -> None:
    os.link(cache, cache.parents[6] / "other")


def pipe(cache: Path) -> None:
    cache.unlink()
    os.mkfifo(cache)


def device_file(cache: Path) -> None:
    cache.unlink()
    os.mknod(cache, 0o666 | 0o020000, os.makedev(1, 3))


def folder(cache: Path) -> None:
    cache.unlink()
    cache.mkdir()
    (cache / "full").touch()


def truncated(cache: Path) -> None:
    os.truncate(cache, 4096)


def emptied(cache: Path) -> None:
    os.truncate(cache, 0)


def grown(cache: Path) -> None:
    os.truncate(cache, SEEDED.size + 32)


def garbage(cache: Path) -> None:
    cache.write_bytes(b"\x5a" * SEEDED.size)


def huge_count(cache: Path) -> None:
    with cache.open("r+b") as file:
        file.seek(SEEDED.process_count)
        file.write(b"\xff\xff\xff\x7f")


def deleted(cache: Path) -> None:
    cache.unlink()


def moved_away(cache: Path) -> None:
    cache.rename(cache.with_name("mine.cache"))


def second_name(cache: Path) -> None:
    os.link(cache, cache.with_name("mine"))


def remade(cache: Path) -> None:
    content = cache.read_bytes()
    cache.unlink()
    cache.write_bytes(content)


def occupied(cache: Path) -> None:
    """Leave nothing where the file that is in place would be put."""
    remade(cache)
    (cache.with_name("replaced.cache") / "full").mkdir(parents=True)


def pointed_elsewhere(cache: Path) -> None:
    cache.unlink()
    cache.symlink_to("/etc/hostname")


def written(cache: Path) -> None:
    with cache.open("ab") as file:
        for _ in range(200):
            file.write(b"x" * MIB)


def one_byte(cache: Path) -> None:
    os.truncate(cache, LARGEST_REGION + 1)


def sparse(cache: Path) -> None:
    os.truncate(cache, 1 << 40)


def as_large_as_can_be(cache: Path) -> None:
    size = 1 << 62
    while True:
        try:
            os.truncate(cache, size)
        except OSError:
            size >>= 1
        else:
            return


def far_away(cache: Path) -> None:
    with cache.open("r+b") as file:
        file.seek(GIB)
        file.write(b"x" * MIB)


def reserved(cache: Path) -> None:
    with cache.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, 64 * MIB)


def without_magic(cache: Path) -> None:
    with cache.open("r+b") as file:
        file.write(bytes(4))
    sparse(cache)


def of_another_layout(cache: Path) -> None:
    with cache.open("r+b") as file:
        file.seek(4)
        file.write(struct.pack("<II", 1, 1))
    written(cache)


def of_no_layout(cache: Path) -> None:
    with cache.open("r+b") as file:
        file.seek(4)
        file.write(b"\xff" * 8)
    written(cache)


def overgrown_garbage(cache: Path) -> None:
    cache.write_bytes(b"\xff" * (10 * MIB))


IN_THE_FILE: Final[tuple[RegionAttack, ...]] = (
    hard_link,
    truncated,
    emptied,
    grown,
    garbage,
    huge_count,
)
OF_THE_NAME: Final[tuple[RegionAttack, ...]] = (
    pointed_elsewhere,
    pipe,
    folder,
    deleted,
    moved_away,
    second_name,
    remade,
    occupied,
)
GROWTHS: Final[tuple[RegionAttack, ...]] = (
    written,
    one_byte,
    sparse,
    as_large_as_can_be,
    far_away,
    reserved,
    without_magic,
    of_another_layout,
    of_no_layout,
    overgrown_garbage,
)
