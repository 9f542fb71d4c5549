"""Owners: asks kubelet, at each start of a container, which pod holds its slots."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from agent.deviceplugin.grpc_client import CallError
from agent.deviceplugin.identity import (
    CheckpointError,
    ListedContainer,
    PodName,
    RecordedContainer,
    owner_of,
    recorded_containers,
)
from agent.share import NotYetError, Owner

_MOST_BYTES: Final = 64 * 1024 * 1024  # of a checkpoint; 60,000 devices make 3 MB


class Lister(Protocol):
    """What is needed of podresources."""

    async def list(self) -> tuple[ListedContainer, ...]:
        """Return who holds slots; raises CallError."""


@dataclass(frozen=True, slots=True)
class _KubeletAnswers:
    """What kubelet told in both places, from one moment on."""

    listed: tuple[ListedContainer, ...]
    recorded: tuple[RecordedContainer, ...]


class OwnerClient:
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
        self._running: asyncio.Task[_KubeletAnswers] | None = None
        self._next: asyncio.Task[_KubeletAnswers] | None = None

    async def owner(self, slots: Collection[str]) -> Owner:
        """Return who was given exactly *slots*; raises NotYetError with what stands against it."""
        answers = await self._join_next()
        pods = self._pods()
        return owner_of(slots, listed=answers.listed, recorded=answers.recorded, pods=pods)

    async def _join_next(self) -> _KubeletAnswers:
        """Join the question that begins next."""
        if self._next is None:
            self._next = asyncio.create_task(self._ask_after(self._running))
            self._next.add_done_callback(_consume_error)
        # Shielded: a start that is cut off must not take the question from the others.
        return await asyncio.shield(self._next)

    async def _ask_after(self, running: asyncio.Task[_KubeletAnswers] | None) -> _KubeletAnswers:
        if running is not None:
            await asyncio.wait([running])
        self._running, self._next = self._next, None
        try:
            listed = await self._lister.list()
        except CallError as error:
            raise NotYetError(f"kubelet did not list who holds the slots: {error}") from error
        return _KubeletAnswers(listed, await asyncio.to_thread(self._recorded_containers))

    def _recorded_containers(self) -> tuple[RecordedContainer, ...]:
        try:
            with self._checkpoint.open("rb") as file:
                text = file.read(_MOST_BYTES)
            return recorded_containers(text, self._resource)
        except (OSError, CheckpointError) as error:
            raise NotYetError(f"kubelet's checkpoint cannot be read: {error}") from error


def _consume_error(query: asyncio.Task[_KubeletAnswers]) -> None:
    """Take note of a failure that nobody waits for any more."""
    if not query.cancelled():
        query.exception()
