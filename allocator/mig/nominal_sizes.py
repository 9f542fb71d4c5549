"""Nominal sizes: amounts that people take from the name of a profile, which has a little less.

The driver keeps some of each slice: ``1g.5gb`` has 4864 MiB, not 5120. Who asks for 5120 gets
the next larger profile, which may take twice as much of the GPU.
"""

from dataclasses import dataclass

from allocator.mig.profiles import ProfileCapacity, profiles_of, shape_of, smallest_sufficient
from allocator.model.board import Board
from allocator.model.request import ContainerRequest

_MIB_PER_GB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedProfile:
    """A profile that a container misses by what the driver keeps, and the one that it gets."""

    missed: ProfileCapacity
    needed: ProfileCapacity


def missed_profile(
    container_request: ContainerRequest, board: Board | None, named: str | None = None
) -> MissedProfile | None:
    """Return the profile of *board* whose name promises what *container_request* asks for.

    It takes less of the GPU than the smallest sufficient one. ``None`` where there is none, where
    nothing serves, or where the user *named* a profile.
    """
    memory = container_request.memory
    needed = smallest_sufficient(container_request, board) if named is None else None
    if memory is None or needed is None:
        return None
    missed = [
        profile
        for profile in profiles_of(board)
        if memory <= _nominal_memory(profile)
        and profile.cost < needed.cost
        and profile.cores >= container_request.cores
    ]
    if not missed:
        return None
    return MissedProfile(missed=max(missed, key=lambda each: each.memory), needed=needed)


def _nominal_memory(profile: ProfileCapacity) -> int:
    """Return the MiB that the profile's name promises."""
    shape = shape_of(profile.profile.name)
    return shape.gb * _MIB_PER_GB if shape is not None else 0
