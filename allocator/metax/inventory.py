"""The GPUs of a MetaX node, from what MetaX's components publish on its Node object.

A native node offers whole GPUs: it publishes their number, and labels their model. A node in mode
sgpu publishes its cards. MetaX names no UUID of a whole GPU and chooses it by itself at Allocate.
So whole GPUs have names of ours, in the form that HAMi gives them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from allocator.metax.cards import MOST_CARDS, MetaxCard, decode_cards
from allocator.metax.names import (
    CARDS_KEY,
    GPU,
    MEMORY_LABEL,
    MODEL_LABEL,
    MODES_CONFIG_MAP,
    SGPU,
)
from allocator.metax.node_modes import NodeMode
from allocator.model.problem import Problem
from allocator.model.untrusted import quote
from allocator.request.quantity import parse_plain

USUAL_MEMORY: Final = 65536  # MiB of a GPU whose node has no label for it: what HAMi assumes
UNTOLD_MODEL: Final = "MetaX GPU"
_LONGEST_NAME: Final = 80  # of the node, in the name of a whole GPU
_MEMORY: Final = re.compile(r"([1-9][0-9]{0,3})(?:GB|GiB)", re.ASCII)
_MODEL: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,62}", re.ASCII)
_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedGpus:
    """What of a Node its GPUs follow from."""

    annotations: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    labels: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    capacity: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    allocatable: Mapping[str, str] = field(default_factory=lambda: _EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaxGpus:
    """The GPUs of one node; ``closed`` says why none of them may be given out, if so."""

    mode: NodeMode
    cards: tuple[MetaxCard, ...] = ()
    closed: str = ""
    problems: tuple[Problem, ...] = ()


def metax_gpus(
    name: str, published: PublishedGpus, *, configured: NodeMode | None = None
) -> MetaxGpus | None:
    """Return the GPUs of node *name*, ``None`` where it offers none in either mode.

    *configured* is its mode by MetaX's ConfigMap, if there is one. A node that offers both modes,
    or another one than it should, is about to change, so it takes no pods until it has.
    """
    whole, shared = _number(published.allocatable, GPU), _number(published.allocatable, SGPU)
    if whole and shared:
        return MetaxGpus(
            mode=configured or NodeMode.SGPU,
            closed=f"it offers both {GPU} and {SGPU}, which are the same GPUs; let "
            f"{MODES_CONFIG_MAP} name one mode, and wait until the other is withdrawn",
        )
    if not whole and not shared:
        return None
    mode = NodeMode.NATIVE if whole else NodeMode.SGPU
    if configured is not None and configured is not mode:
        return MetaxGpus(
            mode=configured,
            closed=f"{MODES_CONFIG_MAP} sets its mode to {configured}, but it still offers "
            f"{GPU if whole else SGPU}; wait until MetaX's device plugin has changed it",
        )
    return _whole_gpus(name, published) if whole else _shared_gpus(published)


def _shared_gpus(published: PublishedGpus) -> MetaxGpus:
    decoded = decode_cards(published.annotations.get(CARDS_KEY, ""))
    closed = ""
    if not decoded.cards:
        closed = f"its annotation {CARDS_KEY} names no GPU that can be read"
    return MetaxGpus(
        mode=NodeMode.SGPU, cards=decoded.cards, closed=closed, problems=decoded.problems
    )


def _whole_gpus(name: str, published: PublishedGpus) -> MetaxGpus:
    """Return as many GPUs as the node has; the last ones stand for those that are broken.

    MetaX's plugin takes a broken GPU out of allocatable and does not say which one it is.
    """
    healthy = min(_number(published.allocatable, GPU), MOST_CARDS)
    number = min(max(_number(published.capacity, GPU), healthy), MOST_CARDS)
    model, memory, problems = _labels_of(published.labels)
    cards = tuple(
        MetaxCard(
            uuid=f"{name[:_LONGEST_NAME]}-metax-{index}",
            model=model,
            shares=1,
            memory=memory,
            healthy=index < healthy,
            numa=None,
            zone=None,
        )
        for index in range(number)
    )
    return MetaxGpus(mode=NodeMode.NATIVE, cards=cards, problems=problems)


def _labels_of(labels: Mapping[str, str]) -> tuple[str, int, tuple[Problem, ...]]:
    """Return the model and the MiB of each whole GPU by the labels of the node."""
    model, memory = labels.get(MODEL_LABEL, ""), labels.get(MEMORY_LABEL)
    if _MODEL.fullmatch(model) is None:
        model = UNTOLD_MODEL
    if memory is None:
        return model, USUAL_MEMORY, ()
    match = _MEMORY.fullmatch(memory)
    if match is not None:
        return model, int(match[1]) * 1024, ()
    problem = Problem(
        path=MEMORY_LABEL, what=f"{quote(memory)}, read as 64GB", accepted="GiB such as 64GB"
    )
    return model, USUAL_MEMORY, (problem,)


def _number(amounts: Mapping[str, str], name: str) -> int:
    """Return a number of GPUs or shares as kubelet writes it; 0 for anything else."""
    return parse_plain(amounts.get(name, "")) or 0
