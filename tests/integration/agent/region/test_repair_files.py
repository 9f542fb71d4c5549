"""Repairs in files: a word changes in one step, who waits is woken, and no tenant misuses it."""

import asyncio
import ctypes
import mmap
import os
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.region.layout import BY_NAME, SEEDED
from agent.region.repair import BitChange, Repair, RepairKind
from agent.region.repair_files import mend
from tests.harness.region_attacks import (
    emptied,
    folder,
    garbage,
    grown,
    hard_link,
    huge_count,
    pipe,
    symlink,
    truncated,
)
from tests.integration.agent.shares import regions, share

LOCK = SEEDED.semaphores[1]
FREED = Repair(kind=RepairKind.STARTUP_LOCK, at=LOCK, change=BitChange.SET, expected=())
WAITS_FOR = 20.0  # seconds, of one who would wait for ever


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return Path(asyncio.run(regions(tmp_path).seed(share()))) / "vgpu.cache"


@pytest.fixture
def at(cache: Path) -> Iterator[int]:
    fd = os.open(cache.parent, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def put(cache: Path, offset: int, data: bytes) -> None:
    with cache.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def found(cache: Path, offset: int, size: int) -> bytes:
    return cache.read_bytes()[offset : offset + size]


def test_who_waits_goes_on_at_once(cache: Path, at: int) -> None:
    """The C library's own wait ends, and takes what the repair gave."""
    libc = ctypes.CDLL(None, use_errno=True)
    with cache.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        lock = ctypes.c_char.from_buffer(mapped, LOCK)
        address = ctypes.c_void_p(ctypes.addressof(lock))
        assert libc.sem_wait(address) == 0
        waiting = threading.Thread(target=libc.sem_wait, args=(address,), daemon=True)
        waiting.start()
        while found(cache, LOCK, 8) != struct.pack("<II", 0, 1):
            threading.Event().wait(0.01)
        done = mend("vgpu.cache", at, layout=SEEDED, repairs=[FREED])
        waiting.join(WAITS_FOR)

        assert (done, waiting.is_alive()) == ((FREED,), False)
        assert found(cache, LOCK, 8) == bytes(8)
        del lock


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        pytest.param(BitChange.SET, 0, 1, id="freed"),
        pytest.param(BitChange.SET, 1, 1, id="free-already"),
        pytest.param(BitChange.CLEAR, 7, 6, id="made-even"),
        pytest.param(BitChange.CLEAR, 6, 6, id="even-already"),
        pytest.param(BitChange.CLEAR, 2**32 - 1, 2**32 - 2, id="all-bits"),
        pytest.param(struct.pack("<I", 5), 7, 5, id="bytes"),
    ],
)
def test_a_word_is_changed_and_nothing_beside_it(
    cache: Path, at: int, *, change: BitChange | bytes, before: int, after: int
) -> None:
    """Also in the last page of the file, which is shorter than a page."""
    put(cache, LOCK, struct.pack("<I", before))
    whole = cache.read_bytes()
    repair = Repair(kind=RepairKind.STARTUP_LOCK, at=LOCK, change=change, expected=())

    assert mend("vgpu.cache", at, layout=SEEDED, repairs=[repair]) == (repair,)
    assert found(cache, LOCK, 4) == struct.pack("<I", after)
    assert cache.read_bytes() == whole[:LOCK] + struct.pack("<I", after) + whole[LOCK + 4 :]


def test_what_has_changed_meanwhile_is_left_alone(cache: Path, at: int) -> None:
    """Each repair has its own condition."""
    wrong = Repair(
        kind=RepairKind.SLOT_LOCK, at=LOCK, change=BitChange.CLEAR, expected=((16, b"\1" * 8),)
    )
    right = Repair(
        kind=RepairKind.SLOT_LOCK,
        at=16,
        change=b"\2" * 8,
        expected=((16, bytes(8)), (12, bytes(4))),
    )

    assert mend("vgpu.cache", at, layout=SEEDED, repairs=[wrong, right, right]) == (right,)
    assert found(cache, LOCK, 1) == b"\1"
    assert found(cache, 16, 8) == b"\2" * 8


@pytest.mark.parametrize(
    "attack",
    [symlink, hard_link, pipe, folder, truncated, emptied, grown, garbage, Path.unlink],
    ids=lambda attack: attack.__name__,
)
def test_what_is_no_region_any_more_is_not_written(
    cache: Path, at: int, attack: Callable[[Path], None]
) -> None:
    """Neither is what a link there points to."""
    victim = cache.parents[6] / "victim"
    attack(cache)
    before = victim.read_bytes() if victim.is_file() else b""

    assert mend("vgpu.cache", at, layout=SEEDED, repairs=[FREED]) == ()
    assert (victim.read_bytes() if victim.is_file() else b"") == before


def test_a_region_of_another_layout_is_not_written(cache: Path, at: int) -> None:
    """The offsets would be those of other words."""
    huge_count(cache)  # which changes nothing of the layout

    assert mend("vgpu.cache", at, layout=BY_NAME["C"], repairs=[FREED]) == ()
    assert mend("other.cache", at, layout=SEEDED, repairs=[FREED]) == ()
    assert mend("vgpu.cache", at, layout=SEEDED, repairs=[FREED]) == (FREED,)


def test_a_file_that_shrinks_meanwhile_ends_nobody(cache: Path, at: int) -> None:
    """An access of our own would end the agent by a signal; a thread shrinks it all the time."""
    over = threading.Event()

    def shrink() -> None:
        while not over.is_set():
            os.truncate(cache, 4096)
            os.truncate(cache, SEEDED.size)

    shrinking = threading.Thread(target=shrink)
    shrinking.start()
    try:
        counts = {len(mend("vgpu.cache", at, layout=SEEDED, repairs=[FREED])) for _ in range(3000)}
    finally:
        over.set()
        shrinking.join()

    assert counts <= {0, 1}
