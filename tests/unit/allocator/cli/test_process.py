"""Garbage is looked for when it costs least."""

import asyncio
import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from allocator.cli.process import FULL_COLLECTION_SECONDS, GC_THRESHOLDS, freeze_when_settled
from kube.clock import Clock


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Leave Python as it was found."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


class EnoughError(Exception):
    """The test has seen what it wanted."""


def test_the_picture_is_left_alone_once_it_is_whole() -> None:
    """Not before: what is read in first would be looked through every hour for nothing."""
    waits: list[tuple[float, bool]] = []
    wholes = iter([False, True])
    gc.unfreeze()

    async def sleep(seconds: float) -> None:
        waits.append((seconds, gc.get_freeze_count() > 0))
        if len(waits) == 3:
            raise EnoughError

    with pytest.raises(EnoughError):
        asyncio.run(freeze_when_settled(lambda: next(wholes), Clock(sleep=sleep)))

    assert [frozen for _, frozen in waits] == [False, True, True]
    assert [seconds for seconds, _ in waits][1:] == [
        FULL_COLLECTION_SECONDS,
        FULL_COLLECTION_SECONDS,
    ]
    assert gc.get_threshold() == GC_THRESHOLDS


def number_of(program: str, word: str) -> int:
    """Return the number that *program*, which is given *word*, prints."""
    command = [sys.executable, "-c", program, word]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60)
    return int(done.stdout)


def test_blocks_that_are_freed_go_back_to_the_system() -> None:
    """Else the most that a page ever took is kept, in a heap of each thread."""
    program = (
        "import sys, threading\n"
        "from allocator.cli.process import save_memory\n"
        "if sys.argv[1] == 'saved': save_memory()\n"
        "def page():\n"
        "    for size in (200_000, 2_000_000, 20_000_000):\n"
        "        parts = [bytes(size) for _ in range(40_000_000 // size)]\n"
        "        keep.append(bytes(1000))\n"
        "        del parts\n"
        "keep = []\n"
        "for _ in range(4):\n"
        "    thread = threading.Thread(target=page); thread.start(); thread.join()\n"
        "[line] = [one for one in open('/proc/self/status') if one.startswith('RssAnon')]\n"
        "print(line.split()[1])\n"
    )

    assert number_of(program, "saved") + 8 * 1024 < number_of(program, "as it was")  # KiB


def test_blocks_that_are_freed_are_kept_for_the_next() -> None:
    """Those that a batch of records takes, in a thread: each page else is cleared anew."""
    program = (
        "import resource, sys, threading\n"
        "from allocator.cli.process import keep_memory\n"
        "if sys.argv[1] == 'kept': keep_memory()\n"
        "def deliver():\n"
        "    for _ in range(200):\n"
        "        parts = [b'x' * (400_000 + size) for size in range(4)]\n"
        "thread = threading.Thread(target=deliver)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "thread.start(); thread.join()\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)\n"
    )

    assert 10 * number_of(program, "kept") < number_of(program, "as it was")  # page faults
