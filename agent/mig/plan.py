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
    """Add an instance, still without compute, at exactly this placement."""

    placed: Placement


@dataclass(frozen=True, slots=True)
class CreateCompute:
    """Give compute to an instance of ours: to *instance*, or to what the step before created."""

    placed: Placement
    instance: Instance | None = None


Step = DestroyCompute | DestroyInstance | Create | CreateCompute


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconfiguration:
    """Steps that belong together, in order."""

    placed: Placement | None  # what they are for; None: they remove what a crash left unfinished
    steps: tuple[Step, ...]


class BlockedBy(StrEnum):
    """Why a promised placement is not available now."""

    BUSY = "busy"  # processes run in the way, or containers may
    FOREIGN = "foreign"  # an instance in the way was created by somebody else
    PROMISED = "promised"  # another promise has the slots
    IMPOSSIBLE = "impossible"  # the board has no such placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A promised placement that must wait."""

    placed: Placement
    cause: BlockedBy
    why: str  # a sentence for the pod's user
    by: tuple[Instance, ...] = ()  # the instances in its way

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
    """A plan that is being made, one promised placement after another."""

    situation: GpuSituation
    ready: dict[Placement, Instance] = field(default_factory=dict)
    reconfigurations: list[Reconfiguration] = field(default_factory=list)
    blocked: list[Blocked] = field(default_factory=list)
    to_remove: set[int] = field(default_factory=set)  # ids of instances
    taken: dict[Placement, int] = field(default_factory=dict)  # slot masks of decided placements

    def decide(self, placed: Placement) -> None:
        """Decide on one promised placement; earlier decisions stand."""
        other = next((p for p, mask in self.taken.items() if mask & placed.mask), None)
        instance = self.situation.instance_at(placed)
        if current_placement(self.situation.board, placed) is None:
            self._block(placed, BlockedBy.IMPOSSIBLE, f"{self._board} has no such placement")
        elif other is not None:
            self._block(
                placed, BlockedBy.PROMISED, f"it overlaps {placement_name(other)}, promised too"
            )
        elif instance is None:
            self._free_slots(placed)
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

    def _free_slots(self, placed: Placement) -> None:
        """Plan to destroy the idle instances in the way of *placed*, or block it."""
        in_the_way = self._instances_in_the_way(placed)
        immovable = [live for live in in_the_way if not live.idle]
        if immovable:
            self._block_by(placed, immovable)
            return
        self.to_remove |= {live.instance.id for live in in_the_way}
        removals = (step for live in in_the_way for step in removal_steps(live.instance))
        self._reconfigure(placed, (*removals, Create(placed), CreateCompute(placed)))

    def _instances_in_the_way(self, placed: Placement) -> list[LiveInstance]:
        """Return the instances that must go before *placed* can be created.

        They overlap its slots, or use up the engines that it needs: a profile may have a limit
        below the number of its placements, and the driver may have refused free slots.
        """
        board = self.situation.board
        remaining = [
            live for live in self.situation.live_instances if live.instance.id not in self.to_remove
        ]
        in_the_way = [live for live in remaining if live.mask(board) & placed.mask]
        surplus: list[LiveInstance] = []
        if placed.profile.limit is not None:
            others = [
                live
                for live in remaining
                if live.placed and live.placed.profile == placed.profile and live not in in_the_way
            ]
            excess = max(len(others) + 1 - placed.profile.limit, 0)
            surplus = [live for live in others if live.idle][:excess]
            if len(surplus) < excess:
                surplus += [live for live in others if not live.idle]
        in_the_way += surplus
        if placed in self.situation.engines_exhausted:
            in_the_way += [live for live in remaining if live.idle and live not in in_the_way]
        return in_the_way

    def _reconfigure(self, placed: Placement, steps: tuple[Step, ...]) -> None:
        self.taken[placed] = placed.mask
        self.reconfigurations.append(Reconfiguration(placed=placed, steps=steps))

    def _block_by(self, placed: Placement, instances: Iterable[LiveInstance]) -> None:
        causes = {
            BlockedBy.FOREIGN: [live for live in instances if not live.ours],
            BlockedBy.PROMISED: [live for live in instances if live.ours and live.promised],
            BlockedBy.BUSY: [
                live for live in instances if live.ours and live.busy and not live.promised
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
        instances = tuple(live.instance for live in by)
        self.blocked.append(Blocked(placed=placed, cause=cause, why=why, by=instances))

    def sweep(self) -> None:
        """Plan to remove unfinished instances that nobody needs."""
        for live in self.situation.live_instances:
            if live.unfinished and live.idle and live.instance.id not in self.to_remove:
                self.reconfigurations.append(
                    Reconfiguration(placed=None, steps=tuple(removal_steps(live.instance)))
                )


def plan(situation: GpuSituation) -> ReconfigurationPlan:
    """Return the plan for one GPU: existing instances first, then held placements, then by size."""
    draft = _Draft(situation)
    for placed in sorted(situation.promised, key=lambda p: _order(situation, p)):
        draft.decide(placed)
    draft.sweep()
    return ReconfigurationPlan(
        ready=MappingProxyType(draft.ready),
        reconfigurations=tuple(draft.reconfigurations),
        blocked=tuple(draft.blocked),
    )


def _order(situation: GpuSituation, placed: Placement) -> tuple[bool, bool, int, int, int]:
    instance = situation.instance_at(placed)
    whole = instance is not None and instance.ours and instance.instance.uuid is not None
    size = placed.profile.size
    return not whole, placed not in situation.held, -size, placed.start, placed.profile.id


def removal_steps(instance: Instance) -> Iterator[Step]:
    """Yield the steps that remove *instance*."""
    if instance.compute is not None:
        yield DestroyCompute(instance)
    yield DestroyInstance(instance)


def placement_name(placed: Placement) -> str:
    """Return *placed* in words, as ``1g.5gb at slot 3``."""
    return f"{placed.profile.name} at slot {placed.start}"


def _instance_name(live: LiveInstance) -> str:
    instance = live.instance
    shape = f"profile {instance.profile} at slot {instance.start}"
    what = shape if live.placed is None else placement_name(live.placed)
    return f"the MIG instance {instance.uuid or instance.id} ({what})"


def _foreign_text(live: LiveInstance) -> str:
    return f"{_instance_name(live)} was not created by this agent, which leaves it alone"


def _promised_text(live: LiveInstance) -> str:
    return f"{_instance_name(live)} is promised to another container"


def _busy_text(live: LiveInstance) -> str:
    if live.pids:
        return f"{_instance_name(live)} is still in use by {pids_text(live.pids)}"
    return f"{_instance_name(live)} is held by a container that may still be running"


def pids_text(numbers: Sequence[int]) -> str:
    """Return process ids in words, as ``pid 4, 5``; only the first few."""
    more = ", …" if len(numbers) > _MOST_PIDS else ""
    return f"pid {', '.join(map(str, numbers[:_MOST_PIDS]))}{more}"
