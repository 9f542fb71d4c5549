"""Plan: which MIG instances of one GPU to destroy and create, so that every entry has its own.

The result is data: steps to perform, and for each entry that must wait a reason for its user. An
instance that is in use or was not created by this agent is never touched. An idle one stays until
an entry needs its slots. One that exists at a promised placement already is used as it is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from agent.driver.driver import Instance
from agent.mig.instance_state import GpuSituation, LiveInstance, current_placement
from allocator.model.board import Placement

_MOST_PIDS: Final = 4  # pids that a text names


@dataclass(frozen=True, slots=True)
class DestroyCompute:
    """Take the compute instance, and with it the UUID, from an idle instance of ours."""

    instance: Instance


@dataclass(frozen=True, slots=True)
class DestroyInstance:
    """Remove an instance of ours that has no compute instance, any more or yet."""

    instance: Instance


@dataclass(frozen=True, slots=True)
class Create:
    """Add an instance, still without compute, at exactly this place."""

    placed: Placement


@dataclass(frozen=True, slots=True)
class CreateCompute:
    """Give compute to an instance of ours: to *instance*, or to what the step before created."""

    placed: Placement
    instance: Instance | None = None


Step = DestroyCompute | DestroyInstance | Create | CreateCompute


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconfiguration:
    """Steps that belong together, in order; ``placed`` is the placement they are for.

    It is ``None`` for steps that only remove what a crash left unfinished.
    """

    placed: Placement | None
    steps: tuple[Step, ...]


class BlockedBy(StrEnum):
    """Why a promised placement is not available now."""

    BUSY = "busy"  # processes run in the way, or containers may
    FOREIGN = "foreign"  # somebody else made what is in the way
    PROMISED = "promised"  # another promise has the slots
    IMPOSSIBLE = "impossible"  # the board has no such place


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A placement that must wait for *cause*; ``by`` are the instances in its way."""

    placed: Placement
    cause: BlockedBy
    why: str
    by: tuple[Instance, ...] = ()

    @property
    def is_lasting(self) -> bool:
        """Say whether waiting a few seconds is pointless."""
        return self.cause is not BlockedBy.BUSY


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconfigurationPlan:
    """What to do about one GPU: ready placements, ordered changes, blocked ones."""

    ready: Mapping[Placement, Instance] = field(default_factory=lambda: MappingProxyType({}))
    reconfigurations: tuple[Reconfiguration, ...] = ()
    blocked: tuple[Blocked, ...] = ()


@dataclass(slots=True)
class _Draft:
    """A plan in the making; ``to_remove`` are instance ids, ``taken`` the slots given out."""

    situation: GpuSituation
    ready: dict[Placement, Instance] = field(default_factory=dict)
    reconfigurations: list[Reconfiguration] = field(default_factory=list)
    blocked: list[Blocked] = field(default_factory=list)
    to_remove: set[int] = field(default_factory=set)
    taken: dict[Placement, int] = field(default_factory=dict)

    def serve(self, placed: Placement) -> None:
        """Decide on one promise, beside those that were decided on before."""
        other = next((p for p, mask in self.taken.items() if mask & placed.mask), None)
        instance = self.situation.at(placed)
        if current_placement(self.situation.board, placed) is None:
            self._block(placed, BlockedBy.IMPOSSIBLE, f"{self._board} has no such placement")
        elif other is not None:
            self._block(
                placed, BlockedBy.PROMISED, f"it overlaps {placement_name(other)}, promised too"
            )
        elif instance is None:
            self._make_room(placed)
        elif not instance.ours:
            self._block(placed, BlockedBy.FOREIGN, _foreign_text(instance), instance)
        elif instance.instance.uuid is None:
            self._reconfigure(placed, (CreateCompute(placed, instance.instance),))
        else:
            self.taken[placed] = placed.mask
            self.ready[placed] = instance.instance

    @property
    def _board(self) -> str:
        return f"the board {self.situation.board.name}"

    def _make_room(self, placed: Placement) -> None:
        """Destroy what is idle in the way of *placed*, or say what is not."""
        existing = [
            one for one in self.situation.live_instances if one.instance.id not in self.to_remove
        ]
        board = self.situation.board
        in_the_way = [one for one in existing if one.mask(board) & placed.mask]
        same_profile = [
            one for one in existing if one.placed and one.placed.profile == placed.profile
        ]
        surplus = 0
        if placed.profile.limit is not None:  # slots may be free where engines are not
            surplus = (
                len(same_profile)
                - len([o for o in in_the_way if o in same_profile])
                + 1
                - placed.profile.limit
            )
        removable = [one for one in same_profile if one.idle and one not in in_the_way]
        in_the_way += removable[: max(surplus, 0)]
        if placed in self.situation.without_room:
            in_the_way += [one for one in existing if one.idle and one not in in_the_way]
        immovable = [one for one in in_the_way if not one.idle]
        if surplus > len(removable):
            immovable += [one for one in same_profile if not one.idle and one not in immovable]
        if immovable:
            self._block_by(placed, immovable)
            return
        self.to_remove |= {one.instance.id for one in in_the_way}
        removals = (step for one in in_the_way for step in removal_steps(one.instance))
        self._reconfigure(placed, (*removals, Create(placed), CreateCompute(placed)))

    def _reconfigure(self, placed: Placement, steps: tuple[Step, ...]) -> None:
        self.taken[placed] = placed.mask
        self.reconfigurations.append(Reconfiguration(placed=placed, steps=steps))

    def _block_by(self, placed: Placement, instances: Iterable[LiveInstance]) -> None:
        causes = {
            BlockedBy.FOREIGN: [one for one in instances if not one.ours],
            BlockedBy.PROMISED: [one for one in instances if one.ours and one.promised],
            BlockedBy.BUSY: [
                one for one in instances if one.ours and one.busy and not one.promised
            ],
        }
        texts = {
            BlockedBy.FOREIGN: _foreign_text,
            BlockedBy.PROMISED: _promised_text,
            BlockedBy.BUSY: _busy_text,
        }
        for cause, live_instances in causes.items():
            if live_instances:
                self._block(placed, cause, texts[cause](live_instances[0]), *live_instances)
                return

    def _block(self, placed: Placement, cause: BlockedBy, why: str, *by: LiveInstance) -> None:
        instances = tuple(one.instance for one in by)
        self.blocked.append(Blocked(placed=placed, cause=cause, why=why, by=instances))

    def sweep(self) -> None:
        """Remove what was announced, never finished, and is promised to nobody."""
        for one in self.situation.live_instances:
            if one.unfinished and one.idle and one.instance.id not in self.to_remove:
                self.reconfigurations.append(
                    Reconfiguration(placed=None, steps=tuple(removal_steps(one.instance)))
                )


def plan(situation: GpuSituation) -> ReconfigurationPlan:
    """Return the plan for one GPU: existing instances first, then held placements, then by size."""
    draft = _Draft(situation)
    for placed in sorted(situation.promised, key=lambda p: _order(situation, p)):
        draft.serve(placed)
    draft.sweep()
    return ReconfigurationPlan(
        ready=MappingProxyType(draft.ready),
        reconfigurations=tuple(draft.reconfigurations),
        blocked=tuple(draft.blocked),
    )


def _order(situation: GpuSituation, placed: Placement) -> tuple[bool, bool, int, int, int]:
    instance = situation.at(placed)
    whole = instance is not None and instance.ours and instance.instance.uuid is not None
    size = placed.profile.size
    return not whole, placed not in situation.held, -size, placed.start, placed.profile.id


def removal_steps(instance: Instance) -> Iterator[Step]:
    """Yield the steps that remove *instance*."""
    if instance.compute is not None:
        yield DestroyCompute(instance)
    yield DestroyInstance(instance)


def placement_name(placed: Placement) -> str:
    """Return *placed* as people read it."""
    return f"{placed.profile.name} at slot {placed.start}"


def _instance_name(one: LiveInstance) -> str:
    instance = one.instance
    shape = f"profile {instance.profile} at slot {instance.start}"
    what = shape if one.placed is None else placement_name(one.placed)
    return f"the MIG instance {instance.uuid or instance.id} ({what})"


def _foreign_text(one: LiveInstance) -> str:
    return f"{_instance_name(one)} was not created by this agent, which leaves it alone"


def _promised_text(one: LiveInstance) -> str:
    return f"{_instance_name(one)} is promised to another container"


def _busy_text(one: LiveInstance) -> str:
    if one.pids:
        return f"{_instance_name(one)} is still in use by {pids_text(one.pids)}"
    return f"{_instance_name(one)} is held by a container that may still be running"


def pids_text(numbers: Sequence[int]) -> str:
    """Return process ids as people read them, some of them."""
    more = ", …" if len(numbers) > _MOST_PIDS else ""
    return f"pid {', '.join(map(str, numbers[:_MOST_PIDS]))}{more}"
