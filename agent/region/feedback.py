"""Feedback: which containers of a GPU may launch kernels, and whose compute limit applies.

The library of each container reads two words of its region. While the recent kernel is below 0,
its launches wait. While the utilization switch is 0, its compute limit does not apply, so that a
container without competitors may use the whole GPU.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent.region.decode import Region
from agent.region.seed import LAUNCHED, LIMITS_ON
from allocator.model.request import Priority

BLOCKED: Final = -1
RELEASED: Final = 0
LIMITS_OFF: Final = 0
# Seconds after its last kernel that a container counts as active. The library notes the time once
# a second, and for containers without a compute limit nothing but the time.
ACTIVE_SECONDS: Final = 5
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


@dataclass(frozen=True, slots=True)
class RegionFlags:
    """What to set in one region."""

    switch: int  # utilization switch
    recent: int  # recent kernel


def flags_by_container(
    containers: Mapping[str, SharingContainer], *, now: float
) -> dict[str, RegionFlags]:
    """Return what to set in the region of each container, at *now* in Unix seconds."""
    active = Counter(
        (gpu, container.priority)
        for container in containers.values()
        if _is_active(container, now)
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
        contended = held_back or any(active[gpu, container.priority] > 1 for gpu in container.gpus)
        limited = contended or container.region.layout.name not in SWITCH_READ_AT_EVERY_LAUNCH
        flags[key] = RegionFlags(
            switch=LIMITS_ON if limited else LIMITS_OFF,
            recent=BLOCKED if held_back else _next_recent_kernel(container.region),
        )
    return flags


def _is_active(container: SharingContainer, now: float) -> bool:
    """Say whether a container launched a kernel recently; a future time is not believed."""
    last = container.region.last_kernel
    launched = last is not None and -ACTIVE_SECONDS <= now - last <= ACTIVE_SECONDS
    return container.live and (launched or container.region.recent_kernel >= LAUNCHED)


def _next_recent_kernel(region: Region) -> int:
    """Return the next recent kernel: the library sets 2 at a launch, the agent counts down."""
    return min(max(RELEASED, region.recent_kernel - 1), LAUNCHED - 1)
