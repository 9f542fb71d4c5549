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
    """An instance that exists, and what may be done about it.

    ``placed`` is ``None`` where the board does not list its profile, so that nobody knows its
    slots. ``pids`` run on it; ``held`` says that a container may, ``promised`` that an entry of the
    ledger names its place, ``unfinished`` that it lacks compute because its creation or destruction
    was interrupted.
    """

    instance: Instance
    placed: Placement | None
    ours: bool
    pids: tuple[int, ...]
    held: bool
    promised: bool
    unfinished: bool

    @property
    def busy(self) -> bool:
        """Say whether it must not be touched, whoever made it."""
        return self.held or bool(self.pids)

    @property
    def is_reserved(self) -> bool:
        """Say whether it closes its slots to promises though no entry says so."""
        return not self.promised and (self.busy or not self.ours)

    @property
    def idle(self) -> bool:
        """Say whether it may go when a promise needs its slots."""
        return self.ours and not self.busy and not self.promised

    def mask(self, board: Board) -> int:
        """Return its memory slots as a bit mask: all of *board* where they are unknown."""
        return (1 << board.slots) - 1 if self.placed is None else self.placed.mask


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSituation:
    """One GPU at one moment: what is there, what the journal marks as ours, what is promised.

    ``used`` has pids by the UUID of their instance. ``held`` are placements at which a container
    may run, promised or not. ``without_room`` are promised placements for which the driver found no
    room though their slots were free: some engine is exhausted, so every idle instance makes way.
    """

    board: Board
    present: tuple[Instance, ...]
    marks: Marks
    used: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    promised: frozenset[Placement] = frozenset()
    held: frozenset[Placement] = frozenset()
    without_room: frozenset[Placement] = frozenset()

    @property
    def live_instances(self) -> tuple[LiveInstance, ...]:
        """Return every instance with its state."""
        return tuple(map(self._live_instance, self.present))

    def at(self, placed: Placement) -> LiveInstance | None:
        """Return what stands at exactly this place."""
        instances = (i for i in self.present if _is_placed_at(i, placed))
        return next(map(self._live_instance, instances), None)

    def _live_instance(self, instance: Instance) -> LiveInstance:
        placed = placement_of(self.board, instance)
        mark = self.marks.get(place_of(instance))
        return LiveInstance(
            instance=instance,
            placed=placed,
            ours=_is_ours(mark, instance),
            pids=() if instance.uuid is None else self.used.get(instance.uuid, ()),
            held=placed in self.held,
            promised=placed in self.promised,
            unfinished=instance.uuid is None and mark is not None and mark.pending,
        )


def place_of(instance: Instance) -> PlacementKey:
    """Return where *instance* is, as the journal calls it."""
    return PlacementKey(gpu=instance.gpu, profile=instance.profile, start=instance.start)


def placement_of(board: Board, instance: Instance) -> Placement | None:
    """Return where *instance* is, by the profiles of *board*."""
    profile = next((p for p in board.profiles if p.id == instance.profile), None)
    if profile is None or instance.start + profile.size > board.slots:
        return None
    return Placement(profile, instance.start)


def current_placement(board: Board, placed: Placement) -> Placement | None:
    """Return *placed* with its profile as *board* lists it now, ``None`` if it has no such place.

    A driver's update may change the memory or the name of a profile, not its id and its shape;
    another board's profiles may have the same ids.
    """
    wanted = placed.profile
    for profile in board.profiles:
        same = (profile.id, profile.size, profile.slices) == (wanted.id, wanted.size, wanted.slices)
        if same and placed.start in profile.starts:
            return Placement(profile, placed.start)
    return None


def _is_placed_at(instance: Instance, placed: Placement) -> bool:
    return instance.profile == placed.profile.id and instance.start == placed.start


def _is_ours(mark: Mark | None, instance: Instance) -> bool:
    """Say whether the journal knows *instance*; another UUID at a place of ours is a stranger.

    What stands at a place that was announced is ours: nothing would tell it from a stranger's that
    was made there after we were killed, before we came back.
    """
    return mark is not None and (mark.uuid is None or instance.uuid in {None, mark.uuid})


def journal_corrections(
    situation: GpuSituation, gpu: str
) -> Iterator[tuple[JournalAct, PlacementKey, str | None]]:
    """Yield what the journal should say of *gpu* and does not: act, place and UUID.

    What it calls ours and is not there was destroyed by others or never came to be; what is whole
    though it was begun, or doomed, is ours for good. What stands at a held place and is unknown
    became ours with its tenant: the journal was lost, or another agent made it. Nothing is held
    before it was ready, so it is no stranger's that came first.
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
