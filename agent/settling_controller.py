"""Settling: each GPU of a node is followed by a task of its own, and starts wait for progress."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, Never, Protocol, TypeVar


class Settled(Protocol):
    """One GPU, which takes steps towards what is wanted of it."""

    @property
    def pause(self) -> float:
        """Return the seconds until the next look."""

    async def settle(self) -> None:
        """Take steps until the GPU rests."""


SettledT = TypeVar("SettledT", bound=Settled)


@dataclass(frozen=True, slots=True)
class _Watched(Generic[SettledT]):
    """A GPU and what wakes its task."""

    gpu: SettledT
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class SettlingController(Generic[SettledT]):
    """Settles the GPUs of a node again and again; a stuck one does not delay the others."""

    def __init__(self, *, patience: float) -> None:
        """Watch nothing yet; *patience* is how many seconds those who wait for progress get."""
        self._patience = patience
        self._watched: dict[str, _Watched[SettledT]] = {}
        self._gpu_added = asyncio.Event()
        self._progress_made = asyncio.Event()

    @property
    def gpus(self) -> dict[str, SettledT]:
        """Return the GPUs by UUID."""
        return {gpu: watched.gpu for gpu, watched in self._watched.items()}

    def get(self, gpu: str) -> SettledT | None:
        """Return the GPU called *gpu*, ``None`` where it is not watched."""
        watched = self._watched.get(gpu)
        return None if watched is None else watched.gpu

    def watch(self, gpu: str, create: Callable[[], SettledT]) -> SettledT:
        """Return the GPU called *gpu*, which *create* makes if it is new."""
        watched = self._watched.get(gpu)
        if watched is None:
            watched = self._watched[gpu] = _Watched(create())
            self._gpu_added.set()
        return watched.gpu

    def wake(self, gpu: str) -> None:
        """Let the task of *gpu* look at once."""
        self._watched[gpu].wake.set()

    def tell_progress(self) -> None:
        """Wake all who wait for progress."""
        self._progress_made.set()
        self._progress_made = asyncio.Event()

    def deadline(self) -> float:
        """Return until when somebody who begins to wait now is to wait, in the loop's seconds."""
        return asyncio.get_running_loop().time() + self._patience

    async def await_progress(self, deadline: float) -> bool:
        """Return after the next progress, at *deadline* at the latest; ``False`` if it is past."""
        remaining = deadline - asyncio.get_running_loop().time()
        if remaining <= 0:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(remaining):
                await self._progress_made.wait()
        return True

    async def settle(self) -> None:
        """Settle all GPUs once."""
        async with asyncio.TaskGroup() as group:
            for watched in self._watched.values():
                group.create_task(watched.gpu.settle())

    async def run(self) -> Never:
        """Settle every GPU again and again, each in its own task."""
        async with asyncio.TaskGroup() as group:
            followed: set[str] = set()
            while True:
                self._gpu_added.clear()
                for gpu in self._watched.keys() - followed:
                    group.create_task(_keep_settled(self._watched[gpu]))
                    followed.add(gpu)
                await self._gpu_added.wait()


async def _keep_settled(watched: _Watched[SettledT]) -> Never:
    while True:
        watched.wake.clear()
        await watched.gpu.settle()
        with suppress(TimeoutError):
            async with asyncio.timeout(watched.gpu.pause):
                await watched.wake.wait()
