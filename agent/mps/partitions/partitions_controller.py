"""The partitions of one GPU: one for each container that starts, until its entry has ended."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final, assert_never

import structlog

from agent.mps.daemon import DaemonError, Daemons
from agent.mps.partitions.plan import (
    Held,
    MakePartition,
    Partitioned,
    RemovePartition,
    WriteBook,
    ended_by,
    partition_step,
)
from agent.mps.partitions.table import (
    LIST_PARTITIONS,
    HeldPartition,
    Holder,
    add_partition,
    partition_name,
    partition_table,
    remove_partition,
)
from agent.mps.protocols import HolderBook

_MOST_STEPS: Final = 512  # in one call of settle: three for each partition that a GPU may have
log = structlog.get_logger(__name__)


class PartitionsController:
    """Makes and removes the partitions of the GPU called *gpu*.

    After :meth:`settle`, ``chunks`` says how many the GPU has, and ``missing`` why a container that
    starts has no partition yet, by holder.
    """

    def __init__(self, gpu: str, daemons: Daemons, book: HolderBook) -> None:
        """Touch nothing yet."""
        self._gpu = gpu
        self._daemons = daemons
        self._book = book
        self._wanted: dict[str, HeldPartition] = {}
        self._ended: frozenset[str] = frozenset()  # containers of pods that have an entry still
        self._asked = 0
        self.served = 0
        self.holders: Collection[str] = frozenset()  # the containers with an entry on the GPU
        self.chunks = 0
        self.missing: Mapping[str, str] = {}

    @property
    def held(self) -> Held:
        """Return who holds what."""
        return self._book.book.get(self._gpu, {})

    def want(self, holder: Holder, start: HeldPartition) -> int:
        """Have a partition made for a container that starts.

        Return the number that ``served`` must reach before its partition is sure to stay.
        """
        ended = ended_by({**self._wanted, **self.held}, holder, start.stage)
        self._ended = (self._ended | ended) - {str(holder)}
        self._wanted[str(holder)] = start
        self._asked += 1
        return self._asked

    def name_of(self, holder: Holder) -> str:
        """Return the partition of a container as its variable names it, "" where it has none."""
        held = self.held.get(str(holder))
        return f"{self._gpu}/{held.name}" if held is not None and held.name else ""

    async def settle(self) -> None:
        """Make what is wanted and remove the rest; raises DaemonError, MpsAnswerError, OSError."""
        ask, gpu = self._daemons.ask, self._gpu
        for _ in range(_MOST_STEPS):
            table = partition_table(await ask(gpu, LIST_PARTITIONS))
            self.chunks = table.chunks
            asked = self._asked
            self._ended = self._ended & set(self.holders)
            holders = set(self.holders) - self._ended
            self._wanted = {key: held for key, held in self._wanted.items() if key in holders}
            step = partition_step(table, self.held, wanted=self._wanted, holders=holders)
            match step:
                case Partitioned(missing):
                    self.missing, self.served = missing, asked
                    return
                case WriteBook(held):
                    await self._write(held)
                case RemovePartition(name):
                    log.info("mps partition removed", gpu=gpu, name=name)
                    await ask(gpu, remove_partition(gpu, name))
                case MakePartition(key):
                    start = self.held[key]
                    name = partition_name(await ask(gpu, add_partition(gpu, start.chunks)))
                    log.info("mps partition made", gpu=gpu, name=name, holder=key)
                    named = HeldPartition(chunks=start.chunks, stage=start.stage, name=name)
                    await self._write({**self.held, key: named})
                case _:
                    assert_never(step)
        raise DaemonError("its partitions change faster than the agent can follow")

    async def forget(self) -> None:
        """Forget all partitions, which ended with their daemon; raises OSError."""
        self.chunks = 0
        self.missing = {}
        await self._write({})

    async def _write(self, held: Held) -> None:
        if held != self.held:
            await asyncio.to_thread(self._book.write, self._gpu, held)
