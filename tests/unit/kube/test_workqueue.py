"""What one object does or lets others wait for, it does to nobody else."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from kube.workqueue import LONGEST_SWEEP_PAUSE, MOST_CALLS, Workqueue, isolated, run_while_leading
from tests.fakes.kube_clock import FakeClock

ODD = RuntimeError("nobody foresaw this")


def worked(
    names: Sequence[str], work: Callable[[str], Awaitable[None]], *, patience: float = 1.0
) -> None:
    queue: Workqueue[str] = Workqueue(wait_seconds=patience)
    asyncio.run(queue.run_each({name: name for name in names}, work))


@pytest.mark.parametrize("order", ["abc", "cab", "bca"])
def test_one_that_fails_stops_no_other(order: str) -> None:
    """Wherever it stands, all others are worked on."""
    done: list[str] = []

    async def work(name: str) -> None:
        if name == "a":
            raise ODD
        done.append(name)

    worked(order, work)

    assert sorted(done) == ["b", "c"]


def test_one_that_hangs_delays_itself() -> None:
    """What comes after it is done, now and in the next round; it is not begun a second time."""
    done: list[str] = []

    async def work(name: str) -> None:
        done.append(name)
        if name == "a":
            await asyncio.Event().wait()

    async def rounds() -> None:
        queue: Workqueue[str] = Workqueue(wait_seconds=0.01)
        await queue.run_each({"a": "a", "b": "b"}, work)
        await queue.run_each({"a": "a", "c": "c"}, work)

    asyncio.run(rounds())

    assert done == ["a", "b", "c"]


def test_some_are_worked_on_at_a_time() -> None:
    """Not one after another, and not all of a large cluster at once."""
    busy, most = 0, 0

    async def work(_: str) -> None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0)
        busy -= 1

    worked([str(number) for number in range(100)], work)

    assert most == MOST_CALLS


def test_whoever_is_told_to_stop_stops() -> None:
    """A replica that ends leaves nothing running behind."""
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async def stopped() -> None:
        queue: Workqueue[str] = Workqueue(wait_seconds=100)
        task = asyncio.create_task(queue.run_each({"a": "a"}, work))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0)
        assert (task.cancelled(), ended) == (True, ["a"])

    asyncio.run(stopped())


def test_being_stopped_is_no_failure() -> None:
    """The guard lets cancellation through, and tells of everything else."""
    failed: list[bool] = []

    with isolated("odd", lambda: failed.append(True), node="n0"):
        raise ODD
    with pytest.raises(asyncio.CancelledError), isolated("stopped", lambda: failed.append(True)):
        raise asyncio.CancelledError

    assert failed == [True]


def test_a_sweep_that_fails_is_followed_by_another() -> None:
    """It is counted, and ends nothing; one that fails again and again is tried less often."""
    time, failures, sweeps = FakeClock(), list[bool](), 0

    async def sweep() -> None:
        nonlocal sweeps
        sweeps += 1
        if sweeps == 12:
            raise asyncio.CancelledError
        if sweeps != 10:
            raise ODD

    async def swept() -> None:
        await run_while_leading(
            sweep, lambda: True, 1.0, failed=lambda: failures.append(True), clock=time.clock()
        )

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(swept())

    assert len(failures) == 10
    assert time.slept[0] == time.slept[9] == 1.0
    assert LONGEST_SWEEP_PAUSE / 2 <= max(time.slept) <= LONGEST_SWEEP_PAUSE
