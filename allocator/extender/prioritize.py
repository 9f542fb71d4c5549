"""Prioritize: scores as JSON, best node first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from allocator.config.settings import ScoreWeights
from allocator.extender.index import Index, NodeInfo
from allocator.extender.pod import SchedulingPod
from allocator.extender.score import favourite, gpu_closeness, score, score_json, scorer
from allocator.ledger.assign import PodClaim
from allocator.model.request import FillPolicy

EVEN_WEIGHTS: Final = ScoreWeights()


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
    fill_policy: FillPolicy,
) -> NodeScores:
    """Return the scores of *names* for *pod*, up to 10, of those that score at all.

    A scheduler adds nothing to a node that it hears nothing of. Of a large cluster most are idle,
    and each that is named costs it more than all else that it does with an answer. *packing* is
    the cluster's, and the pod's own goes before it.
    """
    claim = pod.claim
    if not isinstance(claim, PodClaim):
        return NodeScores(_json_list(()))
    policy = claim.request.packings.node or fill_policy
    table = index.score_tables.get(scorer(policy, weights))
    if table is not None and all(
        container_request.count == 1 for container_request in claim.request.containers
    ):
        parts = filter(None, map(table.parts.get, names))
        return NodeScores(_json_list(parts), favourite(table, names))
    score_of = partial(_score, claim=claim, fill_policy=policy, weights=weights)
    scores = ((name, score_of(index.node_infos.get(name))) for name in names)
    return NodeScores(_json_list(score_json(name, score) for name, score in scores if score))


def _json_list(parts: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(parts) + b"]"


def _score(
    info: NodeInfo | None, *, claim: PodClaim, fill_policy: FillPolicy, weights: ScoreWeights
) -> int:
    """Score one node; GPUs of a pod that asks for several had better be close together."""
    if info is None:
        return 0
    close = gpu_closeness(info.idle, claim.request)
    return score(info.node_class.load, fill_policy, weights, closeness=close)


def fullest_first(index: Index, names: Iterable[str]) -> list[str]:
    """Return *names*, which are known, the fullest node first."""
    fullness = {
        name: score(index.node_classes[name].load, FillPolicy.BINPACK, EVEN_WEIGHTS)
        for name in names
    }
    return sorted(fullness, key=lambda name: (-fullness[name], name))
