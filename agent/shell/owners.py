"""Owners: asks kubelet, at each start of a container, which pod holds its slots."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from agent.core.checkpoint import CheckpointError, Recorded, recorded
from agent.core.identity import Listed, PodName, owner_of
from agent.core.promise import NotYetError, Owner
from agent.shell.rpc import CallError

_MOST_BYTES: Final = 64 * 1024 * 1024  # of a checkpoint; 60,000 devices make 3 MB


class Lister(Protocol):
    """What is needed of podresources."""

    async def list(self) -> tuple[Listed, ...]:
        """Return who holds slots; raises CallError."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What kubelet told in both places, from one moment on."""

    listed: tuple[Listed, ...]
    recorded: tuple[Recorded, ...]


class Owners:
    """Finds owners from kubelet's *checkpoint* file, from *lister*, and from the live *pods*.

    Starts that come together share one question to kubelet, but never one asked before they came:
    its answer could be of the slot's last holder.
    """

    def __init__(
        self,
        resource: str,
        checkpoint: Path,
        *,
        lister: Lister,
        pods: Callable[[], Mapping[str, PodName]],
    ) -> None:
        """Remember whom to ask; *pods* returns the live pods of this node by uid."""
        self._resource = resource
        self._checkpoint = checkpoint
        self._lister = lister
        self._pods = pods
        self._running: asyncio.Task[_Told] | None = None
        self._next: asyncio.Task[_Told] | None = None

    async def owner(self, slots: Collection[str]) -> Owner:
        """Return who was given exactly *slots*; raises NotYetError with what stands against it."""
        told = await self._told()
        pods = self._pods()
        return owner_of(slots, listed=told.listed, recorded=told.recorded, pods=pods)

    async def _told(self) -> _Told:
        """Join the question that begins next."""
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._running))
            self._next.add_done_callback(_seen)
        # Shielded: a start that is cut off must not take the question from the others.
        return await asyncio.shield(self._next)

    async def _after(self, running: asyncio.Task[_Told] | None) -> _Told:
        if running is not None:
            await asyncio.wait([running])
        self._running, self._next = self._next, None
        try:
            listed = await self._lister.list()
        except CallError as error:
            raise NotYetError(f"kubelet did not list who holds the slots: {error}") from error
        return _Told(listed, await asyncio.to_thread(self._recorded))

    def _recorded(self) -> tuple[Recorded, ...]:
        try:
            with self._checkpoint.open("rb") as file:
                text = file.read(_MOST_BYTES)
            return recorded(text, self._resource)
        except (OSError, CheckpointError) as error:
            raise NotYetError(f"kubelet's checkpoint cannot be read: {error}") from error


def _seen(question: asyncio.Task[_Told]) -> None:
    """Take note of a failure that nobody waits for any more."""
    if not question.cancelled():
        question.exception()
