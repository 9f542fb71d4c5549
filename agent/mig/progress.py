"""Progress: which promised instances of a GPU exist, and why the others do not yet."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from agent.driver.driver import Device
from agent.mig.instance_state import LiveInstance
from agent.mig.journal import PlacementKey
from agent.mig.plan import Blocked, placement_name
from agent.share import ReadyInstance
from allocator.model.board import Placement
from allocator.model.gpu import Gpu
from allocator.model.request import Mode

_STUCK_AFTER: Final = 3  # failures in a row after which an operator should know


class Outcome(StrEnum):
    """How an attempt to reconfigure a GPU ended. Public API: a metric's label."""

    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedReconfiguration:
    """A reconfiguration that failed, and when it is tried again."""

    what: str  # the placement to fill, or what is to be removed, in words
    failures: int  # in a row
    why: str  # of the last failure
    due: float  # when it is tried again, in seconds of the monotonic clock

    @property
    def is_stuck(self) -> bool:
        """Say whether it has failed too often to be only slow."""
        return self.failures >= _STUCK_AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far one GPU is, by the promised placements, as it was last observed."""

    instances: tuple[LiveInstance, ...] = ()
    # placements that have their instance
    ready: Mapping[PlacementKey, ReadyInstance] = field(
        default_factory=lambda: MappingProxyType({})
    )
    # placements that cannot be created now
    blocked: Mapping[PlacementKey, Blocked] = field(default_factory=lambda: MappingProxyType({}))
    # why placements that have their instance lack the device files to reach it by
    unreachable: Mapping[PlacementKey, str] = field(default_factory=lambda: MappingProxyType({}))
    # by the placement to fill or to clear
    failures: Mapping[PlacementKey, FailedReconfiguration] = field(
        default_factory=lambda: MappingProxyType({})
    )
    problem: str = ""  # why the GPU could not be observed since


@dataclass(frozen=True, slots=True)
class Delay:
    """Why a promise has no instance yet; a *lasting* reason does not pass within seconds."""

    why: str
    lasting: bool = False


def instance_or_delay(progress: Progress, place: PlacementKey) -> ReadyInstance | Delay:
    """Return the instance that is promised at *place*, or why it is not ready."""
    ready = progress.ready.get(place)
    blocked = progress.blocked.get(place)
    failure = progress.failures.get(place)
    if ready is not None:
        return ready
    if progress.problem:
        return Delay(progress.problem, lasting=True)
    if blocked is not None:
        return Delay(blocked.why, lasting=blocked.is_lasting)
    if failure is not None:
        times = "once" if failure.failures == 1 else f"{failure.failures} times"
        return Delay(f"{failure.why} (tried {times})", lasting=failure.is_stuck)
    return Delay(progress.unreachable.get(place, "it is being created"))


def waiting_message(gpu: str, placed: Placement, why: str) -> str:
    """Return the sentence that kubelet shows for a pod that cannot start yet."""
    return f"MIG instance {placement_name(placed)} of {gpu} is not ready yet: {why}"


def mode_clash(mode: Mode, before: Gpu | None) -> str:
    """Return why a GPU in *mode* takes no new entries; empty if it does.

    The mode was changed, by hand or by a reboot, while the GPU had entries that need the other one.
    """
    in_mig_mode = mode is Mode.MIG
    if before is None or all((grant.mode is Mode.MIG) is in_mig_mode for grant in before.grants):
        return ""
    what, state = ("shares without MIG", "on") if in_mig_mode else ("MIG instances", "off")
    return f"its MIG mode is {state}, but {what} are promised on it"


def mig_off_reason(device: Device) -> str:
    """Return why *device* has no instances, and how to change that."""
    if device.mig is None:
        return f"{device.model} does not support MIG"
    if device.mig.pending:
        return "MIG mode takes effect at the GPU's next reset: drain and reboot the node"
    return f"MIG mode is off: drain the node and run nvidia-smi -i {device.pci} -mig 1"


def reconfigurations(
    before: Progress, now: Progress, *, seconds: float
) -> Iterator[tuple[Outcome, str]]:
    """Yield how the layout of a GPU changed since *before*, and which changes failed since."""
    old_layout, new_layout = _layout(before.instances), _layout(now.instances)
    if new_layout != old_layout:
        yield Outcome.DONE, f"{old_layout} → {new_layout} in {seconds:.1f} s"
    layout_text = f"layout unknown: {now.problem}" if now.problem else f"layout now: {new_layout}"
    for place, failure in now.failures.items():
        if failure != before.failures.get(place):
            yield Outcome.FAILED, f"{failure.what}: {failure.why}; {layout_text}"


def _layout(present: Iterable[LiveInstance]) -> str:
    """Return the instances by memory slot, as ``1g.5gb at 0, 1 + 3g.20gb at 4``."""
    starts: dict[str, list[int]] = {}
    for live in sorted(present, key=lambda live: live.instance.start):
        starts.setdefault(_instance_kind(live), []).append(live.instance.start)
    groups = (f"{shape} at {', '.join(map(str, slots))}" for shape, slots in starts.items())
    return " + ".join(groups) or "no instances"


def _instance_kind(live: LiveInstance) -> str:
    name = f"profile {live.instance.profile}" if live.placed is None else live.placed.profile.name
    return name if live.instance.uuid else f"{name} without compute instance"
