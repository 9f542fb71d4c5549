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
    """The answer to a scheduler."""

    answer: bytes  # JSON
    favourite: str = ""  # the one node that scores more than all others, if there is one


def score_nodes(
    index: Index,
    pod: SchedulingPod,
    names: Sequence[str],
    *,
    weights: ScoreWeights,
    fill_policy: FillPolicy,
) -> NodeScores:
    """Return the scores of *names* for *pod*, 1 to 10, without nodes that score 0.

    A scheduler takes a missing node for 0. Most nodes of a large cluster are idle, and parsing each
    named node is the scheduler's main cost of an answer. *fill_policy* is the cluster's; the pod's
    own overrides it.
    """
    claim = pod.claim
    if not isinstance(claim, PodClaim):
        return NodeScores(_json_list(()))
    policy = claim.request.fill_policies.node or fill_policy
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
    """Return the score of one node; of a pod with several GPUs also by how close they are."""
    if info is None:
        return 0
    close = gpu_closeness(info.idle, claim.request)
    return score(info.node_class.load, fill_policy, weights, closeness=close)


def fullest_first(index: Index, names: Iterable[str]) -> list[str]:
    """Return *names*, which must be known nodes, the fullest first."""
    fullness = {
        name: score(index.node_classes[name].load, FillPolicy.BINPACK, EVEN_WEIGHTS)
        for name in names
    }
    return sorted(fullness, key=lambda name: (-fullness[name], name))
