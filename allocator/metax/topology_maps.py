"""Topology maps: how well a node can serve a number of whole GPUs, as MetaX publishes it.

``gpu.topology.scores`` says the best score that so many GPUs can have now, ``gpu.topology.losses``
the least damage to the links of the GPUs that are left. Both are JSON objects whose keys are
numbers of GPUs. An absent or malformed map says nothing, which is never taken for the best.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from allocator.metax.names import LOSSES_KEY, SCORES_KEY
from allocator.model.problem import Problem
from allocator.model.request import FillPolicy
from allocator.model.untrusted import parse_untrusted_json, quote

LARGEST: Final = 1_000_000  # of one score; MetaX's own are below 2,000
_MOST_CHARACTERS: Final = 4096
_MOST_GPUS: Final = 64
_DIGITS: Final = 2
_NOTHING: Final[Mapping[int, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TopologyMaps:
    """What a node says about its links, by number of GPUs; empty where it says nothing."""

    scores: Mapping[int, int] = field(default_factory=lambda: _NOTHING)
    losses: Mapping[int, int] = field(default_factory=lambda: _NOTHING)
    problems: tuple[Problem, ...] = ()

    def value(self, count: int, policy: FillPolicy) -> int | None:
        """Return what the node is worth for *count* GPUs, the higher the better.

        By ``spread`` that is the best topology for the pod, by ``binpack`` the least damage to what
        is left: MetaX's two policies. ``None``: the node does not say.
        """
        if policy is FillPolicy.SPREAD:
            return self.scores.get(count)
        loss = self.losses.get(count)
        return None if loss is None else -loss


def topology_maps(annotations: Mapping[str, str]) -> TopologyMaps:
    """Return the maps in the *annotations* of a Node."""
    problems: list[Problem] = []
    scores, losses = (
        _map(key, annotations[key], problems) if key in annotations else _NOTHING
        for key in (SCORES_KEY, LOSSES_KEY)
    )
    return TopologyMaps(scores, losses, tuple(problems))


def _map(key: str, text: str, problems: list[Problem]) -> Mapping[int, int]:
    accepted = f"a JSON object from numbers of GPUs to numbers from 0 to {LARGEST}"
    value = parse_untrusted_json(text) if len(text) <= _MOST_CHARACTERS else None
    if not isinstance(value, dict):
        problems.append(Problem(path=key, what=f"{quote(text)} found", accepted=accepted))
        return _NOTHING
    numbers: dict[int, int] = {}
    for name, score in value.items():
        count = _count(name)
        if count is None or not _is_score(score):
            found = f"{quote(name)}: {quote(str(score)[:64])}"
            problems.append(Problem(path=key, what=found, accepted=accepted))
            return _NOTHING
        numbers[count] = score
    return MappingProxyType(numbers)


def _count(name: str) -> int | None:
    """Return a number of GPUs as it is written in decimal, without sign or leading zero."""
    plain = name.isascii() and name.isdigit() and len(name) <= _DIGITS and name[0] != "0"
    return int(name) if plain and int(name) <= _MOST_GPUS else None


def _is_score(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST
