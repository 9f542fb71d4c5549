"""Instance state: which instances on a GPU are ours, in use, or promised.

The driver knows which instances exist, the journal which of them are ours; they may disagree.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from agent.driver.driver import Instance
from agent.mig.journal import JournalAct, Mark, Marks, PlacementKey
from allocator.model.board import Board, Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveInstance:
    """An instance that exists, and what may be done about it."""

    instance: Instance
    placed: Placement | None  # None: the board does not list its profile, so its slots are unknown
    ours: bool  # this agent created it
    pids: tuple[int, ...]  # the processes on it
    held: bool  # a container may run on it
    promised: bool  # an entry of the ledger names its placement
    unfinished: bool  # without compute, because its creation or destruction was interrupted

    @property
    def busy(self) -> bool:
        """Say whether something uses it, or may; then it must not be changed."""
        return self.held or bool(self.pids)

    @property
    def is_reserved(self) -> bool:
        """Say whether its slots are unavailable though no entry says so."""
        return not self.promised and (self.busy or not self.ours)

    @property
    def idle(self) -> bool:
        """Say whether it may be destroyed when a promise needs its slots."""
        return self.ours and not self.busy and not self.promised

    def mask(self, board: Board) -> int:
        """Return its memory slots as a bit mask: all of *board* where they are unknown."""
        return (1 << board.slots) - 1 if self.placed is None else self.placed.mask


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSituation:
    """One GPU at one moment: what exists, what the journal marks as ours, what is promised."""

    board: Board
    present: tuple[Instance, ...]  # as the driver lists them
    marks: Marks  # the journal's, of all GPUs
    # pids by the UUID of their MIG instance
    pids_by_instance: Mapping[str, tuple[int, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    promised: frozenset[Placement] = frozenset()  # by entries of the ledger
    held: frozenset[Placement] = frozenset()  # where a container may run, promised or not
    # Promised placements that the driver refused though their slots were free. Some engine is
    # exhausted, so every idle instance has to make way.
    engines_exhausted: frozenset[Placement] = frozenset()

    @property
    def live_instances(self) -> tuple[LiveInstance, ...]:
        """Return every instance with its state."""
        return tuple(map(self._live_instance, self.present))

    def instance_at(self, placed: Placement) -> LiveInstance | None:
        """Return the instance at exactly this placement."""
        instances = (i for i in self.present if _is_placed_at(i, placed))
        return next(map(self._live_instance, instances), None)

    def _live_instance(self, instance: Instance) -> LiveInstance:
        placed = placement_of(self.board, instance)
        mark = self.marks.get(place_of(instance))
        return LiveInstance(
            instance=instance,
            placed=placed,
            ours=_is_ours(mark, instance),
            pids=() if instance.uuid is None else self.pids_by_instance.get(instance.uuid, ()),
            held=placed in self.held,
            promised=placed in self.promised,
            unfinished=instance.uuid is None and mark is not None and mark.pending,
        )


def place_of(instance: Instance) -> PlacementKey:
    """Return the journal's key of *instance*."""
    return PlacementKey(gpu=instance.gpu, profile=instance.profile, start=instance.start)


def placement_of(board: Board, instance: Instance) -> Placement | None:
    """Return the placement of *instance*, ``None`` where *board* does not list it."""
    profile = next((p for p in board.profiles if p.id == instance.profile), None)
    if profile is None or instance.start + profile.size > board.slots:
        return None
    return Placement(profile, instance.start)


def current_placement(board: Board, placed: Placement) -> Placement | None:
    """Return *placed* with its profile as *board* lists it now, ``None`` if it has no such place.

    A driver's update may change the memory or the name of a profile, not its id and its shape;
    another board's profiles may have the same ids.
    """
    before = placed.profile
    for profile in board.profiles:
        same = (profile.id, profile.size, profile.slices) == (before.id, before.size, before.slices)
        if same and placed.start in profile.starts:
            return Placement(profile, placed.start)
    return None


def _is_placed_at(instance: Instance, placed: Placement) -> bool:
    return instance.profile == placed.profile.id and instance.start == placed.start


def _is_ours(mark: Mark | None, instance: Instance) -> bool:
    """Say whether the journal marks *instance* as ours; one with another UUID is foreign.

    A mark without a UUID was written before the instance was created. Any instance at its place
    counts as ours: one that somebody else created there while the agent was down looks the same.
    """
    return mark is not None and (mark.uuid is None or instance.uuid in {None, mark.uuid})


def journal_corrections(
    situation: GpuSituation, gpu: str
) -> Iterator[tuple[JournalAct, PlacementKey, str | None]]:
    """Yield the records that the journal lacks of *gpu*: act, place and UUID.

    A marked instance that does not exist was destroyed by others or never created: GONE. One that
    is complete though its mark is pending is ours: COMMIT. So is one without a mark at a held
    placement. The journal was lost, or another agent created it; it cannot be foreign, because a
    placement is held only after its instance was ready.
    """
    instances = {place_of(instance): instance for instance in situation.present}
    for place, mark in sorted(situation.marks.items(), key=lambda pair: pair[0]):
        if place.gpu != gpu:
            continue
        instance = instances.get(place)
        if instance is None or not _is_ours(mark, instance):
            yield JournalAct.GONE, place, None
        elif mark.pending and instance.uuid is not None:
            yield JournalAct.COMMIT, place, instance.uuid
    for place, instance in sorted(instances.items(), key=lambda pair: pair[0]):
        unknown = place not in situation.marks and instance.uuid is not None
        if unknown and placement_of(situation.board, instance) in situation.held:
            yield JournalAct.COMMIT, place, instance.uuid
