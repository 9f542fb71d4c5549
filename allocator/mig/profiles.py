"""Profile names and aliases; which profiles serve a request, smallest first."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from allocator.model.board import Board, Profile
from allocator.model.request import ContainerRequest
from allocator.model.units import WHOLE_GPU, CorePercent, MiB


class ProfileShape(NamedTuple):
    """The parts of a profile name such as ``1g.10gb+me``."""

    slices: int  # 1
    gb: int  # 10
    attributes: str  # +me


_PROFILE_NAME: Final = re.compile(
    r"([1-9]\d?)g\.(\d{1,4})gb((?:[+-][a-z][a-z0-9.]*(?:,[a-z][a-z0-9.]*)*)?)", re.ASCII
)


@lru_cache(maxsize=1024)
def shape_of(profile: str) -> ProfileShape | None:
    """Return the parts of a GPU instance profile's name; ``None`` for any other text."""
    match = _PROFILE_NAME.fullmatch(profile)
    return ProfileShape(int(match[1]), int(match[2]), match[3]) if match else None


def canonical_profile(board: Board, name: str) -> Profile | None:
    """Return the profile of *board* that *name* means.

    Drivers round the same memory differently (7g.79gb is 7g.80gb, 1g.24gb is 1g.23gb), so one
    GB of difference is an alias; compute slices and attributes must agree.
    """
    exact = board.profile(name)
    wanted = shape_of(name)
    if exact is not None or wanted is None:
        return exact
    return next((p for p in board.profiles if _alias(wanted, shape_of(p.name))), None)


def _alias(wanted: ProfileShape, present: ProfileShape | None) -> bool:
    return (
        present is not None
        and wanted.slices == present.slices
        and wanted.attributes == present.attributes
        and abs(wanted.gb - present.gb) <= 1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileCapacity:
    """The most that one profile serves."""

    profile: Profile
    memory: MiB
    # Share of the board's memory slots. A percentage asked for means this share, not MiB: half an
    # A100 is the profile with half of its slots, although the driver keeps some of each half.
    percent: int
    cores: CorePercent  # share of multiprocessors, which is not linear in the slices
    cost: int  # share of the board that it takes from others, in thousandths


@lru_cache(maxsize=256)
def profiles_of(board: Board | None, named: str | None = None) -> tuple[ProfileCapacity, ...]:
    """Return the plain profiles of *board*, or only the *named* one, smallest first."""
    if board is None:
        return ()
    profiles = board.plain if named is None else (canonical_profile(board, named),)
    capacities = (_capacity(profile, board) for profile in profiles if profile is not None)
    return tuple(sorted(capacities, key=lambda each: (each.cost, each.cores, each.memory)))


def sufficient_profiles(
    container_request: ContainerRequest, board: Board | None, named: str | None = None
) -> tuple[ProfileCapacity, ...]:
    """Return the profiles that serve *container_request*, smallest first.

    A profile that the user *named* without an amount is the request itself.
    """
    memory, percent, cores = _least_amounts(container_request, named)
    return tuple(
        profile
        for profile in profiles_of(board, named)
        if profile.memory >= memory and profile.percent >= percent and profile.cores >= cores
    )


def smallest_sufficient(
    container_request: ContainerRequest, board: Board | None, named: str | None = None
) -> ProfileCapacity | None:
    """Return the first of :func:`sufficient_profiles`, or ``None``."""
    if board is None:
        return None
    memory, percent, cores = _least_amounts(container_request, named)
    for profile in profiles_of(board, named):
        if profile.memory >= memory and profile.cores >= cores and profile.percent >= percent:
            return profile
    return None


def _least_amounts(container_request: ContainerRequest, named: str | None) -> tuple[int, int, int]:
    memory, percent = container_request.memory, container_request.percent
    whole = memory is None and percent is None and named is None
    return memory or 0, 100 if whole else percent or 0, container_request.cores


def _capacity(profile: Profile, board: Board) -> ProfileCapacity:
    return ProfileCapacity(
        profile=profile,
        memory=profile.memory,
        percent=100 * profile.size // board.slots,
        cores=CorePercent(WHOLE_GPU * profile.sms // board.sms),
        cost=-(-1000 * profile.size // board.slots),
    )
