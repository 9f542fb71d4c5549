"""Ladders: which MIG profiles of a board serve a container, the smallest first."""

from dataclasses import dataclass
from functools import lru_cache

from allocator.catalog.profiles import canonical_profile
from allocator.model.board import Board, Profile
from allocator.model.request import ContainerRequest
from allocator.model.units import WHOLE_GPU, CorePercent, MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileCapacity:
    """The most that one profile serves.

    ``percent`` is its share of the board's memory slots. A percentage is read as that share,
    not as MiB: half an A100 is the profile with half of its slots, although the driver keeps
    some of each half for itself. ``cores`` is its share of multiprocessors, which is not linear
    in the slices. ``cost`` is the share of the board it withholds, in thousandths.
    """

    profile: Profile
    memory: MiB
    percent: int
    cores: CorePercent
    cost: int


@lru_cache(maxsize=256)
def profiles_of(board: Board | None, named: str | None = None) -> tuple[ProfileCapacity, ...]:
    """Return the rungs of *board*, smallest first: its plain profiles, or only the *named* one."""
    if board is None:
        return ()
    profiles = board.plain if named is None else (canonical_profile(board, named),)
    rungs = (_rung(profile, board) for profile in profiles if profile is not None)
    return tuple(sorted(rungs, key=lambda rung: (rung.cost, rung.cores, rung.memory)))


def sufficient_profiles(
    ask: ContainerRequest, board: Board | None, named: str | None = None
) -> tuple[ProfileCapacity, ...]:
    """Return the rungs that serve *ask*, smallest first.

    A profile that the user *named* without an amount is the request itself.
    """
    memory, percent, cores = _least(ask, named)
    return tuple(
        rung
        for rung in profiles_of(board, named)
        if rung.memory >= memory and rung.percent >= percent and rung.cores >= cores
    )


def smallest_sufficient(
    ask: ContainerRequest, board: Board | None, named: str | None = None
) -> ProfileCapacity | None:
    """Return the first of the sufficient rungs."""
    if board is None:
        return None
    memory, percent, cores = _least(ask, named)
    for rung in profiles_of(board, named):
        if rung.memory >= memory and rung.cores >= cores and rung.percent >= percent:
            return rung
    return None


def _least(ask: ContainerRequest, named: str | None) -> tuple[int, int, int]:
    memory, percent = ask.memory, ask.percent
    whole = memory is None and percent is None and named is None
    return memory or 0, 100 if whole else percent or 0, ask.cores


def _rung(profile: Profile, board: Board) -> ProfileCapacity:
    return ProfileCapacity(
        profile=profile,
        memory=profile.memory,
        percent=100 * profile.size // board.slots,
        cores=CorePercent(WHOLE_GPU * profile.sms // board.sms),
        cost=-(-1000 * profile.size // board.slots),
    )
