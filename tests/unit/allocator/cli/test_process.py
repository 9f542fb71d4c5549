"""Garbage is looked for when it costs least."""

import asyncio
import gc
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
