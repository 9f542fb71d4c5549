"""How a policy without memory places: the lowest rank over all free placements of all GPUs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from allocator.model.board import Profile
from benchmarks.mig import SlotPick

Rank = Callable[[int, Profile, int], tuple[float, ...]]
"""Judge one placement by taken slots, profile and start; lower is better."""


@dataclass(frozen=True, slots=True)
class Greedy:
    """A policy by *rank*; then the lower start, then the first GPU. Seats are remembered."""

    rank: Rank
    known: dict[tuple[int, str], tuple[tuple[float, ...], int] | None] = field(default_factory=dict)

    def __call__(self, masks: Sequence[int], profile: Profile) -> SlotPick | None:
        """Place one arrival on the GPU where its best free placement ranks lowest."""
        best: tuple[tuple[float, ...], int] | None = None
        gpu = -1
        for mask in dict.fromkeys(masks):
            seat = self._seat(mask, profile)
            if seat is not None and (best is None or seat[0] < best[0]):
                best, gpu = seat, masks.index(mask)
        return None if best is None else SlotPick(gpu, profile.mask(best[1]))

    def _seat(self, mask: int, profile: Profile) -> tuple[tuple[float, ...], int] | None:
        key = mask, profile.name
        if key not in self.known:
            free = (start for start in profile.starts if not profile.mask(start) & mask)
            ranked = ((self.rank(mask, profile, start), start) for start in free)
            self.known[key] = min(ranked, default=None)
        return self.known[key]
