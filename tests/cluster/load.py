"""Creates at an even rate, from several threads, each of which is remembered."""

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from tests.cluster.api import ApiError, wait_for

THREADS: Final = 8


@dataclass(frozen=True, slots=True)
class Call:
    """One create: its number, when it began (monotonic seconds), and why it failed if it did."""

    number: int
    began: float
    error: str


class Load:
    """Calls *create* with 0, 1, 2, … at *rate* per second while the block runs.

    What was late is made up for, so that the number of calls tells how long the block took.
    """

    def __init__(self, create: Callable[[int], object], *, rate: float) -> None:
        self.calls: list[Call] = []
        self._create = create
        self._rate = rate
        self._numbers = itertools.count()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(THREADS)]
        self._began = 0.0

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    @property
    def failures(self) -> list[Call]:
        return [call for call in self.calls if call.error]

    def wait_until(self, made: int, *, within: float) -> None:
        """Return once so many calls have been made since the beginning."""
        wait_for(lambda: len(self.calls) >= made, within=within)

    def _run(self) -> None:
        for number in self._numbers:
            due = self._began + number / self._rate
            if self._over.wait(max(0.0, due - time.monotonic())):
                return
            began = time.monotonic()
            self.calls.append(Call(number, began, self._outcome(number)))

    def _outcome(self, number: int) -> str:
        try:
            self._create(number)
        except (ApiError, OSError) as error:
            return f"{error}" or type(error).__name__
        return ""
