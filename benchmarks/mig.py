"""What the MIG benchmarks share: the board, what a policy is, and ours from production code."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from allocator.catalog.boards import board_named
from allocator.mig.learned_demand import with_arrival
from allocator.mig.slot_policy import SlotChoice, slot_policy
from allocator.model.board import Board, Profile
from allocator.model.demand import NOTHING_LEARNED, Demand


def _board(product: str) -> Board:
    found = board_named(product)
    if found is None:
        raise LookupError(f"the catalogue has no MIG board {product!r}")
    return found


A100: Final = _board("NVIDIA A100-SXM4-40GB")


@dataclass(frozen=True, slots=True)
class SlotPick:
    """A GPU by its index, and the memory slots to take on it as a bit mask."""

    gpu: int
    slots: int


Policy = Callable[[Sequence[int], Profile], SlotPick | None]
"""Given the taken slots of each GPU and a new arrival: its place, or ``None`` to turn it away.

Called exactly once per arrival, so that a policy may learn from what it sees.
"""


@dataclass(slots=True)
class Ours:
    """The product's policy, cold at first; ``profiles`` are those that the site gives out."""

    board: Board
    profiles: tuple[Profile, ...]
    demand: Demand = NOTHING_LEARNED

    def __call__(self, masks: Sequence[int], profile: Profile) -> SlotPick | None:
        """Place one arrival, then learn from it."""
        seats = slot_policy(self.board, self.demand, self.profiles)
        best: tuple[int, SlotChoice] | None = None
        for mask in dict.fromkeys(masks):  # equal GPUs rank equally; the first one is taken
            seat = seats.choose(mask, profile)
            if seat is not None and (best is None or seat.rank < best[1].rank):
                best = mask, seat
        self.demand = with_arrival(self.demand, self.board, profile, failed=best is None)
        if best is None:
            return None
        mask, seat = best
        return SlotPick(masks.index(mask), profile.mask(seat.start))
