"""What a GPU in mode mps needs from the rest of the agent."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar, TypeVarTuple

from agent.driver.driver import ComputeMode, Driver
from agent.mps.partitions.plan import Held

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class MpsDriverCaller(Protocol):
    """Makes the calls of the driver; see agent/driver/driver_thread.py."""

    driver: Driver

    async def call(self, function: Callable[[*Ts], T], *args: *Ts, within: float) -> T:
        """Return what *function* answers to *args*; raises DriverError."""


class ModeJournal(Protocol):
    """The compute modes to put back; see agent/mps/journal_files.py."""

    before: Mapping[str, ComputeMode]  # by the UUID of a GPU
    damaged: bool

    def record(self, gpu: str, before: ComputeMode) -> None:
        """Put on disk what *gpu* had; raises OSError."""

    def forget(self, gpu: str) -> None:
        """Take *gpu* out; raises OSError."""


class HolderBook(Protocol):
    """Who holds which partition; see agent/mps/partitions/book_files.py."""

    book: Mapping[str, Held]

    def write(self, gpu: str, held: Held) -> None:
        """Put on disk who holds what on *gpu*; raises OSError."""
