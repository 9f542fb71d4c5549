"""Choosing: from a snapshot and a request to the grants of a pod, or to what stands in its way."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Final

from allocator.core import hami
from allocator.core.advice import advised
from allocator.core.arrangement import arrangement
from allocator.core.candidates import candidates, closed
from allocator.core.fit import peak, soft_cost
from allocator.core.fleet import snapshot_of
from allocator.core.geometry import Geometries
from allocator.core.headroom import headroom
from allocator.core.mig import Cutter
from allocator.core.modes import weigh
from allocator.core.packing import Chosen, Rooms, occupied
from allocator.core.refusals import unservable
from allocator.core.settings import Prefer
from allocator.model.decision import Assignment, Candidate, ContainerGrants, Finding
from allocator.model.gpu import Grant, Node, Snapshot
from allocator.model.request import Mode, PodRequest
from allocator.model.units import NO_MEMORY, MiB

ATTEMPTS: Final = 4096  # of one decision's search for several containers at once
ATTEMPTS_ON_NODE: Final = 256


class Verdict(StrEnum):
    """Whether a request fits."""

    FITS = "fits"
    NOT_NOW = "not-now"  # the hardware would take it if it were empty, or may: not all is known
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What an operator decided: between modes that both fit, and how GPUs may be cut."""

    prefer: Prefer = Prefer.COST
    geometries: Geometries | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A decision: an assignment, or findings; and every GPU's verdict on every container.

    ``rule`` says in words why this mode, where both modes fitted.
    """

    assignment: Assignment | None
    verdict: Verdict
    findings: tuple[Finding, ...]
    candidates: tuple[Candidate, ...]
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """One way to serve a pod; ``cost`` is in thousandths of a GPU, the lower ``rank`` is better."""

    assignment: Assignment
    cost: int
    rank: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """Where to look, and by which rules."""

    nodes: tuple[Node, ...]
    modes: tuple[Mode, ...]
    cutter: Cutter
    prefer: Prefer


def choose(
    snapshot: Snapshot,
    request: PodRequest,
    *,
    mode: Mode | None = None,
    node: str | None = None,
    terms: Terms = Terms(),
) -> Choice:
    """Choose GPUs and places for *request* in *snapshot*, on one *node* or on the best of all.

    Without a *mode*, and with none named by the user, the one that withholds least of what is
    free wins, by the same rule as at CREATE. A question without side effects: nothing is
    reserved, and the same snapshot always gives the same answer.
    """
    search = _search(snapshot, request, mode=mode, node=node, terms=terms)
    best = _best(search, request)
    found = tuple(
        candidates(search.nodes, request, modes=search.modes, cutter=search.cutter)
    )
    if best is not None:
        plan, rule = best
        return Choice(
            assignment=plan.assignment,
            verdict=Verdict.FITS,
            findings=(),
            candidates=found,
            rule=rule,
        )
    verdict, findings = _unfit(search, request, snapshot=snapshot, found=found)
    return Choice(assignment=None, verdict=verdict, findings=findings, candidates=found)


def _search(
    snapshot: Snapshot, request: PodRequest, *, mode: Mode | None, node: str | None, terms: Terms
) -> _Search:
    named = mode or request.named
    nodes = sorted(snapshot.nodes) if node is None else [node]
    return _Search(
        nodes=tuple(snapshot.nodes[name] for name in nodes if name in snapshot.nodes),
        modes=(Mode.MIG, Mode.HAMI_CORE) if named is None else (named,),
        cutter=Cutter(
            demand=snapshot.demand, geometries=terms.geometries, named=request.profile
        ),
        prefer=terms.prefer,
    )


def _best(search: _Search, request: PodRequest) -> tuple[_Plan, str] | None:
    """Return the best plan of all nodes and modes, and why its mode."""
    budget = iter(range(ATTEMPTS))
    plans = {
        mode: min(_plans(search, request, mode, budget), key=lambda plan: plan.rank, default=None)
        for mode in search.modes
    }
    fitting = {mode: plan for mode, plan in plans.items() if plan is not None}
    if len(fitting) > 1:
        mode, rule = weigh({mode: plan.cost for mode, plan in fitting.items()}, search.prefer)
        return fitting[mode], f"{mode}: {rule}"
    return next(((plan, "") for plan in fitting.values()), None)


def _plans(
    search: _Search, request: PodRequest, mode: Mode, budget: Iterator[int]
) -> Iterator[_Plan]:
    """Yield the best plan of each node that has one."""
    for node in search.nodes:
        rooms = tuple(
            headroom(gpu) for gpu in node.gpus if closed(gpu, request, (mode,)) is None
        )
        chosen = _arranged(search, request, mode, rooms, islice(budget, ATTEMPTS_ON_NODE)) if rooms else None
        if chosen is not None:
            yield _plan(node, request, mode, rooms, chosen)
