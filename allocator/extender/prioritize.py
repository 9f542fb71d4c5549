"""Prioritize: scores as JSON, best node first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from allocator.config.settings import ScoreWeights
from allocator.extender.index import Index, NodeInfo
from allocator.extender.pod import SchedulingPod
from allocator.extender.score import closeness, favourite, score, score_json, scorer
from allocator.ledger.assign import PodClaim
from allocator.model.request import FillPolicy

EVEN: Final = ScoreWeights()


@dataclass(frozen=True, slots=True)
class NodeScores:
    """Scores as JSON, and the node that scores more than all others, if one does."""

    answer: bytes
    favourite: str = ""


def score_nodes(
    index: Index,
    pod: SchedulingPod,
    names: Sequence[str],
    *,
    weights: ScoreWeights,
    packing: FillPolicy,
) -> NodeScores:
    """Return the scores of *names* for *pod*, up to 10, of those that score at all.

    A scheduler adds nothing to a node that it hears nothing of. Of a large cluster most are idle,
    and each that is named costs it more than all else that it does with an answer. *packing* is
    the cluster's, and the pod's own goes before it.
    """
    wanted = pod.wanted
    if not isinstance(wanted, PodClaim):
        return NodeScores(_json_list(()))
    chosen = wanted.request.packings.node or packing
    table = index.ratings.get(scorer(chosen, weights))
    if table is not None and all(
        container_request.count == 1 for container_request in wanted.request.containers
    ):
        found = filter(None, map(table.parts.get, names))
        return NodeScores(_json_list(found), favourite(table, names))
    of = partial(_score, wanted=wanted, packing=chosen, weights=weights)
    scores = ((name, of(index.sites.get(name))) for name in names)
    return NodeScores(_json_list(score_json(name, score) for name, score in scores if score))


def _json_list(parts: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(parts) + b"]"


def _score(
    site: NodeInfo | None, *, wanted: PodClaim, packing: FillPolicy, weights: ScoreWeights
) -> int:
    """Score one node; GPUs of a pod that asks for several had better be close together."""
    if site is None:
        return 0
    close = closeness(site.idle, wanted.request)
    return score(site.node_class.load, packing, weights, near=close)


def best_first(index: Index, names: Iterable[str]) -> list[str]:
    """Return *names*, which are known, the fullest node first."""
    fullness = {name: score(index.standings[name].load, FillPolicy.BINPACK, EVEN) for name in names}
    return sorted(fullness, key=lambda name: (-fullness[name], name))
