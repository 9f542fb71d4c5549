"""Feedback: which containers of a GPU may launch kernels, and whose compute limit applies.

The library of each container looks at two words of its region. While the recent kernel is below
0 its launches wait; where the utilization switch is 0 its compute limit does not hold, so that a
container that is alone may use what nobody else asks for.
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
    """A container that shares GPUs.

    Its ``priority`` is what admission let it have, never what the region says: its tenant writes
    there too. ``live`` says that it has a process.
    """

    gpus: frozenset[str]
    priority: Priority
    region: Region
    live: bool


@dataclass(frozen=True, slots=True)
class RegionFlags:
    """What to set in one region."""

    switch: int
    recent: int


def flags_by_container(
    containers: Mapping[str, SharingContainer], *, now: float
) -> dict[str, RegionFlags]:
    """Return what to set in the region of each task, at *now* in Unix seconds."""
    active = Counter(
        (gpu, task.priority)
        for task in containers.values()
        if _is_active(task, now)
        for gpu in task.gpus
    )
    first_priority = {
        gpu: min(p for g, p in active if g == gpu) for gpu in {gpu for gpu, _ in active}
    }
    flags = {}
    for key, task in containers.items():
        held_back = any(first_priority.get(gpu, task.priority) < task.priority for gpu in task.gpus)
        contended = held_back or any(active[gpu, task.priority] > 1 for gpu in task.gpus)
        limited = contended or task.region.layout.name not in SWITCH_READ_AT_EVERY_LAUNCH
        flags[key] = RegionFlags(
            switch=LIMITS_ON if limited else LIMITS_OFF,
            recent=BLOCKED if held_back else _next_recent_kernel(task.region),
        )
    return flags


def _is_active(container: SharingContainer, now: float) -> bool:
    """Say whether a task has launched a kernel of late; a time to come is an invention."""
    last = container.region.last_kernel
    launched = last is not None and -ACTIVE_SECONDS <= now - last <= ACTIVE_SECONDS
    return container.live and (launched or container.region.recent_kernel > 1)


def _next_recent_kernel(region: Region) -> int:
    """Return the next recent kernel: the library sets 2 at a launch, and it is counted down."""
    return min(max(RELEASED, region.recent_kernel - 1), LAUNCHED - 1)
