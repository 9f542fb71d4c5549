"""Capacity: what the GPUs of each model have, what is promised of them, what still fits."""

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from allocator.catalog.boards import bare_name
from allocator.ledger.ledger import Ledger
from allocator.model.demand import NOTHING_LEARNED
from allocator.model.gpu import Gpu
from allocator.model.request import Mode
from allocator.model.units import MiB
from allocator.placement.mig import MigOptions
from allocator.scheduling.capacity import largest_free
from console.cluster.snapshot import ClusterView, DriverAccount, Machine
from console.languages.messages import message
from console.pages.parts.blocks import PageTable, TableColumn
from console.pages.parts.cell import TableCell, code, mib, number, percent

COLUMNS: Final = (
    TableColumn(key="model", title=message("Model")),
    TableColumn(key="mode", title=message("Mode")),
    TableColumn(key="gpus", title=message("GPUs"), numeric=True),
    TableColumn(key="unusable", title=message("Out of service"), numeric=True),
    TableColumn(key="memory_mib", title=message("Memory"), numeric=True),
    TableColumn(key="promised_mib", title=message("Promised"), numeric=True),
    TableColumn(key="promised_percent", title=message("Share"), numeric=True),
    TableColumn(key="fits_mib", title=message("Largest that fits"), numeric=True),
)

_NodeObjects = tuple[Ledger, Machine | None, DriverAccount]


@dataclass(slots=True)
class ModelCapacity:
    """The GPUs of one model in one mode; amounts in MiB."""

    gpus: int = 0
    unusable: int = 0
    memory: int = 0
    promised: int = 0
    fits: int | None = None

    def add(self, other: "ModelCapacity") -> None:
        """Add the GPUs of *other*."""
        self.gpus += other.gpus
        self.unusable += other.unusable
        self.memory += other.memory
        self.promised += other.promised
        if other.fits is not None:
            self.fits = max(self.fits or 0, other.fits)


@dataclass(slots=True)
class FreeRoom:
    """The most that one more container may have on a GPU, computed once for equal ones."""

    options: MigOptions
    _known: dict[object, MiB | None] = field(default_factory=dict)

    def __call__(self, gpu: Gpu) -> MiB | None:
        """Return the largest request that *gpu* takes, ``None`` where it takes none."""
        if gpu.mode is not Mode.MIG:
            return largest_free(gpu, self.options)
        key = (gpu.board, gpu.taken_slots, gpu.instances, len(gpu.grants), gpu.slots, gpu.foreign)
        if key not in self._known:
            self._known[key] = largest_free(gpu, self.options)
        return self._known[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSummary:
    """One node for the first page."""

    kinds: Mapping[tuple[str, Mode], ModelCapacity]
    closed_reason: str = ""
    broken: tuple[tuple[str, int, str], ...] = ()  # UUID and index of a GPU, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSummary:
    """All nodes for the first page; ``nodes`` are those with something wrong, by name."""

    kinds: Mapping[tuple[str, Mode], ModelCapacity]
    nodes: Mapping[str, NodeSummary]


class FleetMemory:
    """Summaries of nodes, of which only those that changed are made anew.

    The first page is read often, a cluster may have 5,000 nodes, and most do not change between
    two looks. Summaries are replaced as a whole, so that several threads may ask.
    """

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._known: Mapping[str, tuple[_NodeObjects, NodeSummary]] = {}
        self._keys: tuple[object, ...] = ()

    def summary(self, site: ClusterView) -> FleetSummary:
        """Return the summary of *site*."""
        # Objects are compared by identity, and kept here so that none takes the place of another.
        keys = (site.configuration.policy, site.configuration.settings)
        same = len(self._keys) == len(keys) and all(map(operator.is_, self._keys, keys))
        known = self._known if same else {}
        room = _room(site)
        fresh: dict[str, tuple[_NodeObjects, NodeSummary]] = {}
        for name, ledger in site.ledgers.items():
            objects = (ledger, (site.machines or {}).get(name), site.account(name))
            earlier = known.get(name)
            if earlier is not None and all(map(operator.is_, earlier[0], objects)):
                fresh[name] = earlier
            else:
                fresh[name] = (objects, _node_summary(site, name, room))
        self._known, self._keys = fresh, keys
        return _fleet_summary({name: summary for name, (_, summary) in fresh.items()})


def fleet_summary(site: ClusterView) -> FleetSummary:
    """Return the summary of *site*."""
    return FleetMemory().summary(site)


def _fleet_summary(nodes: Mapping[str, NodeSummary]) -> FleetSummary:
    kinds: dict[tuple[str, Mode], ModelCapacity] = {}
    for node in nodes.values():
        for key, kind in node.kinds.items():
            kinds.setdefault(key, ModelCapacity()).add(kind)
    wrong = {name: node for name, node in nodes.items() if node.closed_reason or node.broken}
    return FleetSummary(kinds=kinds, nodes=wrong)


def _node_summary(site: ClusterView, name: str, room: FreeRoom) -> NodeSummary:
    ledger, reasons = site.ledgers[name], site.account(name).reasons
    closed_reason = site.closed_reason(name)
    kinds: dict[tuple[str, Mode], ModelCapacity] = {}
    for gpu in ledger.node.gpus:
        kind = kinds.setdefault((gpu.model, gpu.mode), ModelCapacity())
        _count(kind, gpu, room, closed=bool(closed_reason))
    return NodeSummary(
        kinds=kinds,
        closed_reason=closed_reason,
        broken=tuple(
            (gpu.uuid, gpu.index, reasons.get(gpu.uuid, ""))
            for gpu in ledger.node.gpus
            if not gpu.healthy
        ),
    )


def _room(site: ClusterView) -> FreeRoom:
    geometries = site.configuration.policy.geometries
    return FreeRoom(MigOptions(demand=NOTHING_LEARNED, geometries=geometries, named=None))


def _count(kind: ModelCapacity, gpu: Gpu, room: FreeRoom, *, closed: bool) -> None:
    kind.gpus += 1
    kind.memory += gpu.memory
    kind.promised += gpu.memory_promised
    if closed or not gpu.healthy:
        kind.unusable += 1
        return
    fits = room(gpu)
    if fits is not None:
        kind.fits = max(kind.fits or 0, fits)


def capacity_table(fleet: FleetSummary) -> PageTable:
    """Return the capacity by model as a table, the most memory first."""
    kinds = sorted(fleet.kinds.items(), key=lambda pair: (-pair[1].memory, pair[0]))
    return PageTable(
        name="capacity",
        caption=message("Capacity by model"),
        columns=COLUMNS,
        rows=tuple(_rows(kinds)),
        empty=message("No GPU is known. Label a node, and its agent reports what it has:"),
        command="kubectl label node gpu-1 vgpu-admission.io/node=enabled",
    )


def _rows(
    kinds: Iterable[tuple[tuple[str, Mode], ModelCapacity]],
) -> Iterable[tuple[TableCell, ...]]:
    for (model, mode), kind in kinds:
        yield (
            code(bare_name(model)),
            code(str(mode)),
            number(kind.gpus),
            number(kind.unusable),
            mib(kind.memory),
            mib(kind.promised),
            percent(kind.promised, kind.memory),
            mib(kind.fits, why=message("nothing fits")),
        )
