"""The cluster at one version: nodes, their GPUs, and the grants on them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from allocator.model.allocation import Grant
from allocator.model.board import Board, Placement
from allocator.model.demand import NOTHING_LEARNED, Demand
from allocator.model.request import NVIDIA, Mode
from allocator.model.units import NO_MEMORY, WHOLE_GPU, CorePercent, MiB

MOST_CHUNKS: Final = 100


def whole_chunks(cores: CorePercent, *, of: int) -> int:
    """Return how many chunks of a GPU a grant of *cores* takes, at least one; 0 *of* none."""
    return max(1, -(-cores * of // WHOLE_GPU)) if of else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One physical GPU and the grants on it."""

    uuid: str
    index: int
    model: str  # product name as the driver reports it
    memory: MiB
    mode: Mode  # one of those that its family has for GPUs
    slots: int  # how many containers may share it
    board: Board | None = None
    healthy: bool = True
    numa: int | None = None  # NUMA node
    foreign: MiB = NO_MEMORY  # held by processes outside our ledger
    # In no particular order. They add up: what init containers and later containers of one pod
    # use in turn is counted once (allocator.model.usage.peak_grants).
    grants: tuple[Grant, ...] = ()
    instances: tuple[Placement, ...] = ()  # live MIG instances, busy or idle
    deviceshare: bool = False  # Volcano's scheduler allocates on it too, by listed positions
    links: tuple[str, ...] = ()  # UUIDs of the GPUs that NVLink connects it with
    # The number of NVLinks to each of these; empty: unknown, or the same for all, by a switch.
    link_counts: tuple[int, ...] = ()
    switch: str | None = None  # PCI address of its PCIe switch
    family: str = NVIDIA  # a name in allocator.families.registry
    # Into how many equal chunks its compute is divided, where a container holds some of them for
    # itself; 0: it is not divided. At most MOST_CHUNKS, so that each chunk is at least 1 %.
    chunks: int = 0
    chunk_sms: int = 0  # multiprocessors of one chunk

    @property
    def memory_promised(self) -> MiB:
        """Return the memory of all grants."""
        return MiB(sum(g.memory for g in self.grants))

    @property
    def cores_promised(self) -> CorePercent:
        """Return the compute share of all grants."""
        return self.cores_of(self.grants)

    def cores_of(self, grants: Iterable[Grant]) -> CorePercent:
        """Return the compute share of *grants* on this GPU, each rounded up to whole chunks."""
        if not self.chunks:
            return CorePercent(sum([grant.cores for grant in grants]))
        return self.percent_of(sum([self.chunks_for(grant.cores) for grant in grants]))

    def chunks_for(self, cores: CorePercent) -> int:
        """Return how many chunks a grant of *cores* takes, at least one; 0 without chunks."""
        return whole_chunks(cores, of=self.chunks)

    def percent_of(self, chunks: int) -> CorePercent:
        """Return the share that *chunks* withhold, in percent of all of them, rounded up.

        What is left is the largest request that the other chunks can serve, so that comparing
        percents says the same as comparing chunks.
        """
        return CorePercent(-(-WHOLE_GPU * chunks // self.chunks))

    def cores_with(self, promised: CorePercent, cores: CorePercent) -> CorePercent:
        """Return the share promised once *cores* are too, where *promised* already is."""
        if not self.chunks:
            return CorePercent(promised + cores)
        taken = promised * self.chunks // WHOLE_GPU  # percent_of rounded up by less than a chunk
        return self.percent_of(taken + self.chunks_for(cores))

    @property
    def taken_slots(self) -> int:
        """Return the MIG memory slots of all grants as a bit mask."""
        mask = 0
        for grant in self.grants:
            if grant.placed is not None:
                mask |= grant.placed.mask
        return mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine with GPUs."""

    name: str
    gpus: tuple[Gpu, ...]
    fresh: bool = True  # False: its inventory is too old to refuse a pod because of it
    # What its device plugin says of the links between its GPUs, as pairs of a number of GPUs with
    # the best score that so many can have, and with the least damage to the links that are left.
    # Empty: it says nothing. They change with every pod and rank nodes only.
    link_scores: tuple[tuple[int, int], ...] = ()
    link_losses: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class GpuKind:
    """One kind of GPU in the fleet; at CREATE a pod is compared with an empty GPU of each kind."""

    model: str
    memory: MiB
    mode: Mode
    board: Board | None
    family: str = NVIDIA


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The cluster at one version; replaced, never edited."""

    version: str
    nodes: Mapping[str, Node] = field(default_factory=lambda: MappingProxyType({}))  # by name
    # The largest number of each kind on one node: a decision at CREATE takes as many steps as
    # there are kinds, not as there are GPUs.
    offers: Mapping[GpuKind, int] = field(default_factory=lambda: MappingProxyType({}))
    mixed: bool = False  # a node has several kinds in one mode, so no kind bounds what it can take
    complete: bool = False  # False: an inventory is missing or stale; refuse nothing for capacity
    demand: Demand = NOTHING_LEARNED  # part of the snapshot so that a decision can be replayed
