"""The only thread that calls the driver, and the report of a call that hangs.

A driver call cannot be interrupted. One that outlasts its caller's patience goes on, and the next
one waits for it rather than run beside it: concurrent walks of NVML take seconds.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar, TypeVarTuple

from agent.driver.driver import Driver, DriverError, Fault

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
CLOSE_TIMEOUT = 5.0  # seconds for the driver to end its session


@dataclass(frozen=True, slots=True, kw_only=True)
class HungCall:
    """A call that has run for ``seconds``, longer than its caller waited."""

    call: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _CurrentCall:
    """The call on the thread now: its name and when it began, by the worker's clock."""

    call: str
    began: float


class DriverThread:
    """Calls *driver* one call at a time, on a thread of its own."""

    def __init__(self, driver: Driver, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Start the thread; a daemon, so that a driver that hangs does not outlive the agent."""
        self.driver = driver
        self._clock = clock
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._running: _CurrentCall | None = None
        self._overdue: _CurrentCall | None = None
        self._closed: Future[None] | None = None
        self._thread = Thread(target=self._work, name="driver", daemon=True)
        self._thread.start()

    async def call(self, function: Callable[[*Ts], T], *args: *Ts, within: float) -> T:
        """Return what *function*, a method of the driver, answers to *args*.

        *within* bounds the seconds of waiting in line and running together. A call that has not
        begun by then is dropped; one that runs goes on, and its answer is ignored.

        Raises
        ------
        DriverError
            What the driver raised, or UNAVAILABLE if it took longer or the worker is closed.

        """
        name = getattr(function, "__name__", "driver")
        if self._closed is not None:
            raise DriverError(Fault.UNAVAILABLE, name, "the session with the driver has ended")
        answer: Future[T] = Future()
        self._jobs.put(lambda: self._run(answer, name, lambda: function(*args)))
        try:
            # Not wait_for, which in Python 3.11 loses a cancellation that meets the answer.
            async with asyncio.timeout(within):
                return await asyncio.wrap_future(answer)
        except TimeoutError:
            self._overdue = self._running
            raise DriverError(Fault.UNAVAILABLE, name, self._lateness(name, within)) from None

    @property
    def hung_call(self) -> HungCall | None:
        """Return the running call if a caller has given up on it, else ``None``."""
        running, overdue = self._running, self._overdue
        if running is None or running is not overdue:
            return None
        return HungCall(call=running.call, seconds=self._clock() - running.began)

    async def close(self, *, within: float = CLOSE_TIMEOUT) -> bool:
        """End the driver's session after the calls in line; say whether it ended in time.

        One that hangs is left behind: its thread ends with the process.
        """
        if self._closed is None:
            self._closed = Future()
            ended = self._closed
            self._jobs.put(lambda: self._run(ended, "close", self.driver.close))
            self._jobs.put(None)
        try:
            async with asyncio.timeout(within):
                await asyncio.shield(asyncio.wrap_future(self._closed))
        except (TimeoutError, DriverError):
            return False
        return True

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _run(self, answer: Future[T], call: str, work: Callable[[], T]) -> None:
        if not answer.set_running_or_notify_cancel():
            return
        self._running = _CurrentCall(call=call, began=self._clock())
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - handed to the caller, as executors do
            self._running = None
            answer.set_exception(error)
        else:
            self._running = None
            answer.set_result(result)

    def _lateness(self, name: str, within: float) -> str:
        running = self._running
        if running is None or running.call == name:
            return f"no answer within {within:g} s"
        seconds = self._clock() - running.began
        return f"no answer within {within:g} s: {running.call} has been running for {seconds:.0f} s"
