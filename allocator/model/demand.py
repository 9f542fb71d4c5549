"""Demand: what was learned from arriving pods about each board."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardDemand:
    """The recent demand for the profiles of one board."""

    # Decayed number of arrivals by profile name.
    counts: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    failures: float = 0.0  # decayed share, 0 to 1, of arrivals whose first attempt failed

    @property
    def arrivals(self) -> float:
        """Return the decayed number of arrivals."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What was learned so far; replaced, never edited."""

    # By board name.
    boards: Mapping[str, BoardDemand] = field(default_factory=lambda: MappingProxyType({}))


NOTHING_LEARNED: Final = Demand()
