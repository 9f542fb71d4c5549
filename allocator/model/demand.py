"""What arriving pods have taught about each board: which profiles they ask for, what failed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardDemand:
    """The recent past of one board.

    ``counts`` are decayed arrivals by profile name; ``failures`` is the decayed share, 0 to 1,
    of arrivals that found no place at their first attempt.
    """

    counts: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    failures: float = 0.0

    @property
    def arrivals(self) -> float:
        """Return the decayed number of arrivals."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What was learned, by board name; replaced, never edited."""

    boards: Mapping[str, BoardDemand] = field(default_factory=lambda: MappingProxyType({}))


NOTHING_LEARNED: Final = Demand()
