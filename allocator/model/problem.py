"""Problems: what is wrong with a document, where, and what would be accepted."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One defect of a document. Texts are in lower case, without a full stop."""

    path: str  # such as nvidia.knownMigGeometries[1].models[0]
    what: str  # with the offending value
    accepted: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}; accepted: {self.accepted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[T]):
    """A document that may be used, with warnings about it."""

    value: T
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """A document that may not be used; callers keep the last good one."""

    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)
