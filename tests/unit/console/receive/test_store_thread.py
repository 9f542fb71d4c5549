"""One thread writes; what waits for it is bounded."""

import asyncio
import contextlib
import gc
import json
import threading
from collections.abc import Awaitable, Callable

import pytest

from allocator.audit.record import parse_record
from console.receive.store_thread import (
    MOST_WAITING,
    PAUSE_SECONDS,
    PRUNE_SECONDS,
    QueueFullError,
    StoreThread,
)
from console.records.rows import StoredRecord
from console.store.store import Retention, StoreError
from tests.builders.sent_records import admission
from tests.fakes.held_store import HeldRecordStore
from tests.fakes.kube_clock import FakeClock

Scene = Callable[[StoreThread, HeldRecordStore], Awaitable[None]]


def batch() -> list[StoredRecord]:
    return [StoredRecord(record=parse_record(json.dumps(admission())))]


def play(scene: Scene) -> HeldRecordStore:
    store = HeldRecordStore()

    async def run() -> None:
        thread = StoreThread(store, clock=FakeClock().clock())
        with contextlib.closing(thread):
            await scene(thread, store)

    asyncio.run(run())
    return store


def test_all_writes_are_of_one_thread() -> None:
    """And not of the one that answers requests."""

    async def scene(thread: StoreThread, store: HeldRecordStore) -> None:
        assert await asyncio.gather(*(thread.append(batch()) for _ in range(5))) == [1] * 5
        await thread.prune(Retention())
        assert len(store.threads) == 1
        assert threading.get_ident() not in store.threads
        assert thread.waiting == 0

    play(scene)


def test_what_is_known_is_not_new() -> None:
    """The answer says how many were."""

    async def scene(thread: StoreThread, store: HeldRecordStore) -> None:
        del store
        same = batch()
        assert await thread.append(same) == 1
        assert await thread.append([*same, *batch()]) == 1

    play(scene)


def test_no_more_than_so_many_wait() -> None:
    """The others come again; those that wait are stored."""

    async def scene(thread: StoreThread, store: HeldRecordStore) -> None:
        store.go.clear()
        waiting = [asyncio.create_task(thread.append(batch())) for _ in range(MOST_WAITING)]
        await asyncio.sleep(0.05)
        assert thread.waiting == MOST_WAITING
        with pytest.raises(QueueFullError):
            await thread.append(batch())
        store.go.set()
        assert await asyncio.gather(*waiting) == [1] * MOST_WAITING
        assert await thread.append(batch()) == 1

    assert len(play(scene).kept) == MOST_WAITING + 1


def test_a_sender_that_leaves_takes_nothing_back() -> None:
    """What it sent is stored all the same, and known when it comes again."""

    async def scene(thread: StoreThread, store: HeldRecordStore) -> None:
        store.go.clear()
        sent = [batch(), batch()]  # of which the thread has begun with one
        tasks = [asyncio.create_task(thread.append(one)) for one in sent]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        store.go.set()
        assert [await thread.append(one) for one in sent] == [0, 0]

    assert len(play(scene).kept) == 2


def test_nobody_is_told_of_a_failure_that_nobody_waits_for() -> None:
    """A sender that left sends its batch again; until then the console has nothing to say."""
    told: list[dict[str, object]] = []

    async def scene(thread: StoreThread, store: HeldRecordStore) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(what))
        store.go.clear()
        tasks = [asyncio.create_task(thread.append(batch())) for _ in range(2)]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        store.error = StoreError("disk full")
        store.go.set()
        async with asyncio.timeout(5):
            while thread.waiting:  # noqa: ASYNC110 -- the thread is no task
                await asyncio.sleep(0.001)

    play(scene)
    gc.collect()

    assert told == []


def test_what_was_given_to_the_thread_is_written_before_it_ends() -> None:
    """A console that is told to stop loses no batch that it has read."""

    async def scene(thread: StoreThread, store: HeldRecordStore) -> None:
        store.go.clear()
        tasks = [asyncio.create_task(thread.append(batch())) for _ in range(3)]
        await asyncio.sleep(0.05)
        store.go.set()
        thread.close()
        assert await asyncio.gather(*tasks) == [1, 1, 1]

    assert len(play(scene).kept) == 3


def test_a_store_that_fails_says_so_to_each() -> None:
    """And is tried again with the next batch."""

    async def scene(thread: StoreThread, store: HeldRecordStore) -> None:
        store.error = StoreError("disk full")
        with pytest.raises(StoreError, match="disk full"):
            await thread.append(batch())
        store.error = None
        assert await thread.append(batch()) == 1

    play(scene)


def test_everything_that_need_not_be_kept_goes() -> None:
    """A part at a time, at the time of our clock."""

    async def scene(thread: StoreThread, store: HeldRecordStore) -> None:
        store.prunable = 25
        assert await thread.prune(Retention()) == 25
        assert store.pruned[0] == "2026-11-21T17:16:40.000Z"

    assert len(play(scene).pruned) == 4


def test_pruning_lets_others_have_their_turn() -> None:
    """A pause after each part, and a longer one before the next look, also after a failure."""
    clock, store = FakeClock(), HeldRecordStore()

    async def run() -> None:
        with contextlib.closing(StoreThread(store, clock=clock.clock())) as thread:
            store.prunable = 25
            task = asyncio.create_task(thread.prune_for_ever(Retention()))
            async with asyncio.timeout(5):
                while len(store.pruned) < 6:  # noqa: ASYNC110 -- the store is no task
                    await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())

    assert clock.slept[:5] == [PAUSE_SECONDS] * 3 + [PRUNE_SECONDS] * 2


def test_a_store_that_cannot_remove_is_asked_again() -> None:
    """The program goes on meanwhile."""

    async def scene(thread: StoreThread, store: HeldRecordStore) -> None:
        store.error = StoreError("locked")
        task = asyncio.create_task(thread.prune_for_ever(Retention()))
        async with asyncio.timeout(5):
            while len(store.pruned) < 3:  # noqa: ASYNC110 -- the store is no task
                await asyncio.sleep(0.001)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    play(scene)
