"""Problems: what is wrong with an outside document, where, and what would be accepted."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One defect of a configuration or inventory document.

    ``path`` is the place, as ``nvidia.knownMigGeometries[1].models[0]``; ``what`` holds the
    offending value. Lower case, no stop.
    """

    path: str
    what: str
    accepted: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}; accepted: {self.accepted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[T]):
    """A document that may be used, and what was odd about it."""

    value: T
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """A document that may not be used: whoever holds an older good one keeps it."""

    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)
