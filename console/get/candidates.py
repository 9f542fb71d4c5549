"""Candidates of a stored decision: what each GPU, or kind of GPU, answered then."""

from dataclasses import dataclass, replace
from typing import Final

MOST_CANDIDATES: Final = 100  # rows of one decision that are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRow:
    """One kind of GPU at admission, or one GPU at a bind, compared with a container's request.

    ``None`` and empty texts are unknown, or do not apply.
    """

    container: str  # its name
    model: str
    memory_mib: int  # of the GPU
    mode: str  # in which it would serve, or else in which it is
    fits: bool
    reason: str = ""  # why it does not fit
    detail: str = ""
    cost_per_mille: int | None = None  # of a GPU, withheld from others; at admission by the pod
    named: bool = False  # it decided the mode, or it was given
    # At admission only.
    count: int | None = None  # the most on one node
    # At a bind only.
    node: str = ""
    gpu: str = ""  # UUID
    index: int | None = None
    rank: int | None = None  # 1 is the first choice for this container, if it came alone
    wished: bool = False  # the scheduler named it


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateList:
    """What one decision weighed, or ``unknown`` with the reason why that cannot be told."""

    rows: tuple[CandidateRow, ...] = ()  # named ones first, then those that fit
    total: int = 0  # rows, also those that were left out
    fitting: int = 0  # of the total
    unknown: str = ""
    note: str = ""  # what to know about how the rows were computed


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionCandidates:
    """The candidates of a pod's decisions; ``None`` where it has no such record."""

    admission: CandidateList | None = None
    bind: CandidateList | None = None


def in_english(candidates: DecisionCandidates) -> DecisionCandidates:
    """Return *candidates* with plain texts: messages of pages cannot be encoded."""
    return DecisionCandidates(
        admission=_english_list(candidates.admission), bind=_english_list(candidates.bind)
    )


def _english_list(found: CandidateList | None) -> CandidateList | None:
    if found is None:
        return None
    return replace(found, unknown=str(found.unknown), note=str(found.note))


def candidate_list(rows: list[CandidateRow], note: str = "") -> CandidateList:
    """Return *rows* in their order, those that were named and that fit before the others."""
    ordered = sorted(rows, key=_order)
    return CandidateList(
        rows=tuple(ordered[:MOST_CANDIDATES]),
        total=len(rows),
        fitting=sum(row.fits for row in rows),
        note=note,
    )


def _order(row: CandidateRow) -> tuple[bool, bool, int, int]:
    no_rank = row.rank is None
    cost = row.cost_per_mille or 0
    return not row.named, not row.fits, 0 if no_rank else row.rank or 0, cost
