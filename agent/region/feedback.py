"""Feedback: which containers of a GPU may launch kernels, and whose compute limit applies.

The library of each container reads two words of its region. While the recent kernel is below 0,
its launches wait. While the utilization switch is 0, its compute limit does not apply, so that a
container without competitors may use the whole GPU.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from agent.region.decode import Region
from agent.region.seed import LAUNCHED, LIMITS_ON
from allocator.model.request import Priority

BLOCKED: Final = -1
RELEASED: Final = 0
LIMITS_OFF: Final = 0
ACTIVE_SECONDS: Final = 5  # seconds after it was last seen computing that a container is active
# Layouts whose library reads the switch at every launch. Some versions of the later ones read it
# once, when a process starts, so that one that starts alone would never be limited again.
SWITCH_READ_AT_EVERY_LAUNCH: Final = frozenset("ABC")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingContainer:
    """A container that shares GPUs."""

    gpus: frozenset[str]
    priority: Priority  # as admitted, never as in the region, which the tenant can write
    region: Region
    live: bool  # whether it has a process
    # Percent of compute that the driver has seen its processes use of these GPUs. None: the driver
    # does not say of one of them.
    utilization: int | None = None
    # Percent of compute that it was promised of them. None: of one of them it has no limit.
    cores: int | None = None


@dataclass(frozen=True, slots=True)
class RegionFlags:
    """What to set in one region."""

    switch: int  # utilization switch
    recent: int  # recent kernel


@dataclass(frozen=True, slots=True)
class ComputeActivity:
    """When each container was last seen computing, in Unix seconds."""

    seen: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def advance(
        self, containers: Mapping[str, SharingContainer], now: float
    ) -> tuple["ComputeActivity", frozenset[str]]:
        """Return the next state, and the containers that are active at *now*."""
        seen = {}
        for key, container in containers.items():
            computed_at = _computed_at(container, now) or self.seen.get(key)
            if container.live and computed_at is not None:
                seen[key] = computed_at
        active = frozenset(key for key, at in seen.items() if abs(now - at) <= ACTIVE_SECONDS)
        return ComputeActivity(seen), active


def _computed_at(container: SharingContainer, now: float) -> float | None:
    """Return when a container last computed, as far as a look at *now* tells; ``None``: it did not.

    The library sets the recent kernel at each launch that it limits. Of other launches it notes
    the time, which it also writes whenever a program attaches to the region, as nvidia-smi does. So
    the driver's figure decides about them, and the time only where there is no such figure.
    """
    if container.region.recent_kernel >= LAUNCHED:
        return now
    if container.utilization is not None:
        return now if container.utilization > 0 else None
    return container.region.last_kernel


def flags_by_container(
    containers: Mapping[str, SharingContainer],
    active_containers: Collection[str],
    waiting: Collection[str] = (),
) -> dict[str, RegionFlags]:
    """Return what to set in the region of each container, some of which are active.

    Those *waiting* have computed beyond their promise.
    """
    active = Counter(
        (gpu, container.priority)
        for key, container in containers.items()
        if key in active_containers
        for gpu in container.gpus
    )
    first_priority = {
        gpu: min(p for g, p in active if g == gpu) for gpu in {gpu for gpu, _ in active}
    }
    flags = {}
    for key, container in containers.items():
        held_back = any(
            first_priority.get(gpu, container.priority) < container.priority
            for gpu in container.gpus
        )
        waits = held_back or key in waiting
        contended = held_back or any(active[gpu, container.priority] > 1 for gpu in container.gpus)
        limited = contended or container.region.layout.name not in SWITCH_READ_AT_EVERY_LAUNCH
        flags[key] = RegionFlags(
            switch=LIMITS_ON if limited else LIMITS_OFF,
            recent=BLOCKED if waits else _next_recent_kernel(container.region),
        )
    return flags


def _next_recent_kernel(region: Region) -> int:
    """Return the next recent kernel: the library sets 2 at a launch, the agent counts down."""
    return min(max(RELEASED, region.recent_kernel - 1), LAUNCHED - 1)
