"""Owners: queries kubelet, at each start of a container, for the pod that holds its slots."""

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
    """Kubelet's podresources."""

    async def list(self) -> tuple[ListedContainer, ...]:
        """Return the containers that hold slots; raises CallError."""


@dataclass(frozen=True, slots=True)
class _KubeletAnswers:
    """What kubelet answered and recorded in one query."""

    listed: tuple[ListedContainer, ...]
    recorded: tuple[RecordedContainer, ...]


class OwnerClient:
    """Finds owners from kubelet's *checkpoint* file, from *lister*, and from the live *pods*.

    Concurrent starts share one query to kubelet, but never one that began before the start: its
    answer could name the slot's previous holder.
    """

    def __init__(
        self,
        resource: str,
        checkpoint: Path,
        *,
        lister: Lister,
        pods: Callable[[], Mapping[str, PodName]],
    ) -> None:
        """Touch nothing yet; *pods* returns the live pods of this node by uid."""
        self._resource = resource
        self._checkpoint = checkpoint
        self._lister = lister
        self._pods = pods
        self._running: asyncio.Task[_KubeletAnswers] | None = None
        self._next: asyncio.Task[_KubeletAnswers] | None = None

    async def owner(self, slots: Collection[str]) -> Owner:
        """Return the container that was given exactly *slots*; raises NotYetError."""
        answers = await self._join_next_query()
        pods = self._pods()
        return owner_of(slots, listed=answers.listed, recorded=answers.recorded, pods=pods)

    async def _join_next_query(self) -> _KubeletAnswers:
        """Return the answers of the query that begins next."""
        if self._next is None:
            self._next = asyncio.create_task(self._query_after(self._running))
            self._next.add_done_callback(_consume_error)
        # Shielded: a start that is cancelled must not end the query of the others.
        return await asyncio.shield(self._next)

    async def _query_after(self, running: asyncio.Task[_KubeletAnswers] | None) -> _KubeletAnswers:
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
    """Mark a failure as retrieved: nobody may wait for it any more."""
    if not query.cancelled():
        query.exception()
