"""Prioritize: scores as JSON, best node first."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from allocator.config.settings import ScoreWeights
from allocator.extender.index import Index, NodeInfo
from allocator.extender.pod import SchedulingPod
from allocator.extender.score import favourite, gpu_closeness, score, score_json, scorer
from allocator.families.registry import family_of
from allocator.ledger.assign import PodClaim
from allocator.model.request import FillPolicy, PodRequest

EVEN_WEIGHTS: Final = ScoreWeights()
_ALL_CLOSE: Final = 1000


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
    told = _link_values(index, names, request=claim.request, policy=policy)
    table = index.score_tables.get(scorer(policy, weights))
    if table is not None and not told and all(one.count == 1 for one in claim.request.containers):
        parts = filter(None, map(table.parts.get, names))
        return NodeScores(_json_list(parts), favourite(table, names))
    closeness = _closeness_of(claim.request, told)
    score_of = partial(_score, fill_policy=policy, weights=weights, closeness=closeness)
    scores = ((name, score_of(name, index.node_infos.get(name))) for name in names)
    return NodeScores(_json_list(score_json(name, score) for name, score in scores if score))


def _json_list(parts: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(parts) + b"]"


_Closeness = Callable[[str, NodeInfo], int | None]


def _score(
    name: str,
    info: NodeInfo | None,
    *,
    fill_policy: FillPolicy,
    weights: ScoreWeights,
    closeness: _Closeness,
) -> int:
    """Return the score of one node; of a pod with several GPUs also by how close they are."""
    if info is None:
        return 0
    return score(info.node_class.load, fill_policy, weights, closeness=closeness(name, info))


def _link_values(
    index: Index, names: Iterable[str], *, request: PodRequest, policy: FillPolicy
) -> Mapping[str, int]:
    """Return what the links of nodes are worth for *request*, where its family values them itself.

    A node that says nothing is left out.
    """
    value_of = family_of(request).node_value
    if value_of is None:
        return {}
    values: dict[str, int] = {}
    for name in names:
        info = index.node_infos.get(name)
        value = None if info is None else value_of(info.node, request, policy)
        if value is not None:
            values[name] = value
    return values


def _closeness_of(request: PodRequest, told: Mapping[str, int]) -> _Closeness:
    """Return how close together the GPUs of *request* would be on a node, in thousandths.

    Of nodes with a value in *told* the best one has all of them, and the worst none, as have nodes
    without. Where all are worth the same, all of these have all. For a pod that wants no links to
    count it is ``None``.
    """
    if not told and request.ignore_links:
        return lambda _, __: None
    if not told:
        return lambda _, info: gpu_closeness(info.idle, request)
    least, most = min(told.values()), max(told.values())
    if least == most:
        return lambda name, _: _ALL_CLOSE if name in told else 0
    range_ = most - least
    return lambda name, _: _ALL_CLOSE * (told.get(name, least) - least) // range_


def fullest_first(index: Index, names: Iterable[str]) -> list[str]:
    """Return *names*, which must be known nodes, the fullest first."""
    fullness = {
        name: score(index.node_classes[name].load, FillPolicy.BINPACK, EVEN_WEIGHTS)
        for name in names
    }
    return sorted(fullness, key=lambda name: (-fullness[name], name))
