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
from agent.region.seed import LAUNCHED, ON
from allocator.model.request import Priority

BLOCKED: Final = -1
RELEASED: Final = 0
OFF: Final = 0
# Seconds after its last kernel that a container counts as active. The library notes the time once
# a second, and for containers without a compute limit nothing but the time.
ACTIVE: Final = 5
# Layouts whose library reads the switch at every launch. Some versions of the later ones read it
# once, when a process starts, so that one that starts alone would never be limited again.
FOLLOWING: Final = frozenset("ABC")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
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


def orders(tasks: Mapping[str, Task], *, now: float) -> dict[str, RegionFlags]:
    """Return what to set in the region of each task, at *now* in Unix seconds."""
    active = Counter(
        (gpu, task.priority) for task in tasks.values() if _active(task, now) for gpu in task.gpus
    )
    first = {gpu: min(p for g, p in active if g == gpu) for gpu in {gpu for gpu, _ in active}}
    found = {}
    for key, task in tasks.items():
        held_back = any(first.get(gpu, task.priority) < task.priority for gpu in task.gpus)
        contended = held_back or any(active[gpu, task.priority] > 1 for gpu in task.gpus)
        limited = contended or task.region.layout.name not in FOLLOWING
        found[key] = RegionFlags(
            switch=ON if limited else OFF, recent=BLOCKED if held_back else _count_down(task.region)
        )
    return found


def _active(task: Task, now: float) -> bool:
    """Say whether a task has launched a kernel of late; a time to come is an invention."""
    last = task.region.last_kernel
    launched = last is not None and -ACTIVE <= now - last <= ACTIVE
    return task.live and (launched or task.region.recent > 1)


def _count_down(region: Region) -> int:
    """Return the next recent kernel: the library sets 2 at a launch, and it is counted down."""
    return min(max(RELEASED, region.recent - 1), LAUNCHED - 1)
