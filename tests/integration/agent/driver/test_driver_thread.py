"""One thread talks to the driver; whoever waits too long is told so, and nobody overlaps."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from agent.driver.driver import DriverError, Fault
from agent.driver.driver_thread import DriverThread, HungCall
from agent.driver.simulated_files import SimulatedDriver
from tests.fakes.driver import Faults, RelayedDriver, machine

LONG = 60.0  # seconds; no test waits for it
SHORT = 0.01


class SlowMethod:
    """A relay that answers ``versions`` only while ``gate`` is open, and sees what overlaps."""

    def __init__(self) -> None:
        self.relay = Faults(SimulatedDriver(machine("NVIDIA A30")), {})
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.inside = 0
        self.overlapped = False
        self.threads: set[str] = set()

    def __call__(self, call: str, arguments: tuple[object, ...]) -> object:
        self.inside += 1
        self.overlapped |= self.inside > 1
        self.threads.add(threading.current_thread().name)
        if call == "versions":
            self.entered.set()
            assert self.gate.wait(LONG)
        self.inside -= 1
        return self.relay(call, arguments)


class SlowDriver(RelayedDriver):
    def __init__(self) -> None:
        self.slow = SlowMethod()
        super().__init__(self.slow)


@asynccontextmanager
async def driver_thread(
    driver: SlowDriver, clock: Callable[[], float] = lambda: 0.0
) -> AsyncIterator[DriverThread]:
    worker = DriverThread(driver, clock=clock)
    try:
        yield worker
    finally:
        driver.slow.gate.set()
        assert await worker.close()


async def wait_until_called(driver: SlowDriver) -> None:
    assert await asyncio.to_thread(driver.slow.entered.wait, LONG)


def test_answers_and_refusals_come_through() -> None:
    """What the driver returns or raises is what the caller gets, from a thread that has a name."""

    async def scene() -> None:
        driver = SlowDriver()
        driver.slow.gate.set()
        async with driver_thread(driver) as worker:
            assert (await worker.call(driver.versions, within=LONG)).driver
            assert worker.hung_call is None
            with pytest.raises(DriverError) as refused:
                await worker.call(driver.instances, "GPU-none", within=LONG)
        assert refused.value.fault is Fault.ABSENT
        assert driver.slow.threads == {"driver"}

    asyncio.run(scene())


def test_a_call_that_takes_too_long_does_not_let_another_overlap() -> None:
    """The next waits behind it and gets its answer; what hangs is shown meanwhile."""

    async def scene() -> None:
        driver, now = SlowDriver(), [0.0]
        async with driver_thread(driver, lambda: now[0]) as worker:
            with pytest.raises(DriverError) as late:
                await worker.call(driver.versions, within=SHORT)
            now[0] = 31.0
            shown = worker.hung_call
            second = asyncio.create_task(worker.call(driver.versions, within=LONG))
            with pytest.raises(DriverError) as behind:
                await worker.call(driver.devices, within=SHORT)
            driver.slow.gate.set()
            assert (await second).driver
            assert worker.hung_call is None
        assert late.value.fault is Fault.UNAVAILABLE
        assert shown == HungCall(call="versions", seconds=31.0)
        assert "versions has been running for 31 s" in str(behind.value)
        assert not driver.slow.overlapped

    asyncio.run(scene())


def test_a_call_that_nobody_waits_for_any_more_never_begins() -> None:
    """Of the calls behind a slow one, those that gave up or were cancelled are not made."""

    async def scene() -> None:
        driver = SlowDriver()
        async with driver_thread(driver) as worker:
            first = asyncio.create_task(worker.call(driver.versions, within=LONG))
            await wait_until_called(driver)
            with pytest.raises(DriverError):
                await worker.call(driver.create_instance, "GPU-a", 19, 0, within=SHORT)
            cancelled = asyncio.create_task(
                worker.call(driver.destroy_instance, "GPU-a", 1, within=LONG)
            )
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            driver.slow.gate.set()
            await first
        assert (
            driver.slow.relay.calls["create_instance"]
            == driver.slow.relay.calls["destroy_instance"]
            == 0
        )

    asyncio.run(scene())


def test_a_closed_worker_takes_no_calls() -> None:
    """Closing ends the session once, however often it is asked for."""

    async def scene() -> None:
        driver = SlowDriver()
        driver.slow.gate.set()
        worker = DriverThread(driver)
        assert await worker.close()
        assert await worker.close()
        with pytest.raises(DriverError) as refused:
            await worker.call(driver.versions, within=LONG)
        assert refused.value.fault is Fault.UNAVAILABLE
        assert driver.slow.relay.calls["close"] == 1

    asyncio.run(scene())


def test_closing_does_not_wait_for_a_driver_that_hangs() -> None:
    """It says that the session has not ended yet; once the driver answers, it ends all the same."""

    async def scene() -> None:
        driver = SlowDriver()
        worker = DriverThread(driver)
        waiting = asyncio.create_task(worker.call(driver.versions, within=LONG))
        await wait_until_called(driver)
        assert not await worker.close(within=SHORT)
        driver.slow.gate.set()
        await waiting
        assert await worker.close()

    asyncio.run(scene())
