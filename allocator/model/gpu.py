"""The cluster at one version: nodes, their GPUs, what is promised on them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from allocator.model.allocation import Grant
from allocator.model.board import Board, Placement
from allocator.model.demand import NOTHING_LEARNED, Demand
from allocator.model.request import Mode
from allocator.model.units import NO_MEMORY, CorePercent, MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One physical GPU and what is promised on it.

    ``grants`` add up, in whatever order: what containers of one pod have in turn is in them once
    (``holdings``).
    ``model`` is the product name as the driver reports it. ``mode`` is MIG or hami-core.
    ``slots`` is how many containers may share it. ``foreign`` is memory that processes
    outside our ledger hold. ``instances`` are live MIG instances, busy or idle. ``deviceshare``
    says that Volcano's scheduler keeps account of it too, by listed positions. ``links`` are
    UUIDs of GPUs that NVLink joins with it, ``switch`` is the PCI address of the PCIe switch
    that it hangs on.
    """

    uuid: str
    index: int
    model: str
    memory: MiB
    mode: Mode
    slots: int
    board: Board | None = None
    healthy: bool = True
    numa: int | None = None
    foreign: MiB = NO_MEMORY
    grants: tuple[Grant, ...] = ()
    instances: tuple[Placement, ...] = ()
    deviceshare: bool = False
    links: tuple[str, ...] = ()
    switch: str | None = None

    @property
    def memory_promised(self) -> MiB:
        """Return the MiB that grants hold."""
        return MiB(sum(g.memory for g in self.grants))

    @property
    def cores_promised(self) -> CorePercent:
        """Return the share of compute that grants hold."""
        return CorePercent(sum(g.cores for g in self.grants))

    @property
    def taken_slots(self) -> int:
        """Return the MIG memory slots that grants hold as a bit mask."""
        mask = 0
        for grant in self.grants:
            if grant.placed is not None:
                mask |= grant.placed.mask
        return mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine with GPUs; ``fresh`` is false when its inventory is too old to refuse on."""

    name: str
    gpus: tuple[Gpu, ...]
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class GpuKind:
    """One kind of GPU in the fleet: what CREATE decides on, as if it were empty."""

    model: str
    memory: MiB
    mode: Mode
    board: Board | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The cluster at one *version*; replaced, never edited.

    ``offers`` maps each kind of GPU to the largest number of it on one node, so that a
    decision at CREATE costs as many steps as there are kinds, not as there are GPUs.
    ``mixed`` says that some node carries several kinds in one mode, so that no single kind
    tells what a node can take. ``complete`` is false while some inventory is missing or stale:
    then nothing may be refused for want of capacity. ``demand`` is what arriving pods have
    taught so far: part of the snapshot, so that a decision can be replayed.
    """

    version: str
    nodes: Mapping[str, Node] = field(default_factory=lambda: MappingProxyType({}))
    offers: Mapping[GpuKind, int] = field(default_factory=lambda: MappingProxyType({}))
    mixed: bool = False
    complete: bool = False
    demand: Demand = NOTHING_LEARNED
