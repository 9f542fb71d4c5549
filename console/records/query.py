"""Questions to the store of records: which, of whom, and how many at a time."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

PAGE: Final = 100  # rows
LARGEST_PAGE: Final = 1000


class PodOutcome(StrEnum):
    """What became of a pod that was reviewed, as far as records tell."""

    REFUSED = "refused"
    ADMITTED = "admitted"  # nothing is known of it since
    WAITING = "waiting"  # no node took it
    BOUND = "bound"
    RUNNING = "running"
    OVER = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Whose records a reader may see; nothing else is counted, listed or hinted at.

    ``namespaces`` is ``None`` for all. ``cluster`` says whether records of nodes, settings and
    certificates are included, ``people`` whether names of requesters are.
    """

    namespaces: frozenset[str] | None = frozenset()
    cluster: bool = False
    people: bool = False

    def within(self, namespace: str) -> "Scope":
        """Return what of this scope is in *namespace*; all of it where that is empty."""
        if not namespace:
            return self
        seen = self.namespaces is None or namespace in self.namespaces
        return replace(self, namespaces=frozenset({namespace} if seen else ()))


NOTHING: Final = Scope()
EVERYTHING: Final = Scope(namespaces=None, cluster=True, people=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFilter:
    """Which decisions; an empty field filters nothing, and times are RFC 3339 in UTC."""

    namespace: str = ""
    pod: str = ""
    owner: str = ""
    requester: str = ""
    verdict: str = ""
    reason: str = ""
    mode: str = ""
    digest: str = ""
    node: str = ""
    state: str = ""
    since: str = ""  # of the last time that it was decided
    until: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """A page of a list, newest first: ``after`` is the cursor that the page before returned.

    A cursor is opaque; one that cannot be read raises :class:`BadCursorError`.
    """

    size: int = PAGE
    after: str = ""


class BadCursorError(ValueError):
    """A cursor that no page returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """Which records; an empty field filters nothing."""

    kinds: frozenset[str] = frozenset()
    namespace: str = ""
    pod: str = ""
    pod_uid: str = ""
    node: str = ""
    digest: str = ""
    since: str = ""
    until: str = ""
