"""How demand is learned from arrivals, and rounded for the placement policy."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from allocator.mig.profiles import smallest_sufficient
from allocator.model.board import Board, Profile
from allocator.model.demand import BoardDemand, Demand
from allocator.model.request import Mode, PodRequest

ARRIVALS_MEMORY: Final = 1000  # arrivals after which a count has decayed to 1/e
FAILURES_MEMORY: Final = 500
COLD: Final = 32  # below so many arrivals their shares mean nothing
CALM: Final = 0.04  # failed share up to which every profile in use is reserved for alike
_UNSEEN: Final = BoardDemand()


@dataclass(frozen=True, slots=True)
class LearnedDemand:
    """Demand as the policy sees it: rounded, so that a table built for it stays valid longer."""

    percents: tuple[int, ...]  # shares of arrivals, in the order of the profiles given
    # How far, in quarters, reservations follow those shares: 0 treats all profiles in use alike,
    # 4 favours those that arrive often, which under overload completes the most pods.
    tilt: int


def with_arrival(demand: Demand, board: Board, profile: Profile, *, failed: bool) -> Demand:
    """Return *demand* after one pod asked for *profile* of *board*.

    Call it once per pod, with whether its first attempt *failed*: a retry is no new demand.
    In a mixed fleet call it for every board that could have served the pod, so that all of
    them learn at the same pace.
    """
    before = demand.boards.get(board.name, _UNSEEN)
    counts = {name: n - n / ARRIVALS_MEMORY for name, n in before.counts.items()}
    counts[profile.name] = counts.get(profile.name, 0.0) + 1
    after = BoardDemand(
        counts=MappingProxyType(counts),
        failures=before.failures + (failed - before.failures) / FAILURES_MEMORY,
    )
    return Demand(boards=MappingProxyType({**demand.boards, board.name: after}))


def with_arrivals(
    demand: Demand, request: PodRequest, boards: Iterable[Board], *, failed: bool
) -> Demand:
    """Return *demand* after one pod arrived, on every one of *boards* that could have served it."""
    if request.named_mode not in (None, Mode.MIG):
        return demand
    for board in boards:
        for container_request in request.containers:
            profile = smallest_sufficient(container_request, board, request.profile)
            if profile is not None:
                demand = with_arrival(demand, board, profile.profile, failed=failed)
    return demand


def demand_of(demand: Demand, board: Board, profiles: Sequence[Profile]) -> LearnedDemand | None:
    """Return the demand for *profiles* of *board*; ``None`` while too few have arrived."""
    known = demand.boards.get(board.name, _UNSEEN)
    counts = [known.counts.get(profile.name, 0.0) for profile in profiles]
    arrivals = sum(counts)
    if arrivals < COLD:
        return None
    overload = min(max(known.failures / CALM - 1, 0), 1)
    return LearnedDemand(tuple(round(100 * n / arrivals) for n in counts), round(4 * overload))
