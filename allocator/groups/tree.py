"""The tree of supernodes that MetaX's topo-master tells: nodes in dragonflies in switchboxes.

It comes over plain HTTP from whoever answers, so every field is bounded. What cannot be read is
left out with a problem that names its place: a part of the tree is better than none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from allocator.model.problem import Problem
from allocator.model.untrusted import is_safe_name, parse_untrusted_json, quote

LARGEST: Final = 4 * 1024 * 1024  # bytes of an answer
MOST_NODES: Final = 16_384
MOST_DOMAINS: Final = 8_192
MOST_PROBLEMS: Final = 16  # told of one tree
READY: Final = "Ready"  # the status of what may be scheduled to


class Tier(IntEnum):
    """How far apart nodes of a domain are; smaller is closer."""

    NODE = 0
    DRAGONFLY = 1
    SWITCHBOX = 2


_TIERS: Final = MappingProxyType({"dragonfly": Tier.DRAGONFLY, "switchbox": Tier.SWITCHBOX})
_NODE_KIND: Final = "node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Nodes that exchange data without leaving a fabric."""

    name: str
    tier: Tier
    nodes: tuple[str, ...]  # those that are ready, sorted
    parts: tuple[str, ...] = ()  # names of the dragonflies of a switchbox, sorted

    def __str__(self) -> str:
        return f"{self.tier.name.lower()} {quote(self.name)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Domains, the closer ones first and then by name."""

    domains: tuple[Domain, ...] = ()
    # By node, the domains around it: its dragonfly before its switchbox.
    around: Mapping[str, tuple[Domain, ...]] = field(default_factory=lambda: MappingProxyType({}))


NO_TREE: Final = Tree()


@dataclass(frozen=True, slots=True)
class DecodedTree:
    """A tree, and what of it could not be read."""

    tree: Tree
    problems: tuple[Problem, ...] = ()


class TreeError(ValueError):
    """An answer that is no tree at all; the text says what was expected."""


def decode_tree(text: str) -> DecodedTree:
    """Read the answer to ``GET /node_group``; raises :class:`TreeError`."""
    if len(text) > LARGEST:
        raise TreeError(f"the tree has {len(text)} characters; at most {LARGEST} are read")
    value = parse_untrusted_json(text)
    if not isinstance(value, list):
        raise TreeError("the tree is no JSON array of groups, or is too deep")
    reader = _Reader()
    for number, item in enumerate(value):
        reader.read(item, f"[{number}]", within=None)
    return DecodedTree(_tree(reader.domains), tuple(reader.problems[:MOST_PROBLEMS]))


class _Reader:
    """Walks one answer; depth is bounded by the parser."""

    def __init__(self) -> None:
        self.domains: list[Domain] = []
        self.problems: list[Problem] = []
        self._names: set[str] = set()  # of domains
        self._nodes: set[str] = set()  # ready or not

    def read(self, item: object, path: str, *, within: Tier | None) -> tuple[list[str], list[str]]:
        """Take one element; return its ready nodes, and the names of dragonflies in it."""
        if not isinstance(item, dict):
            self._note(path, f"{type(item).__name__} is no group", "an object")
            return [], []
        name, kind, status = item.get("name"), item.get("kind"), item.get("status")
        if not isinstance(name, str) or not is_safe_name(name):
            self._note(f"{path}.name", f"{_quote_value(name)} is no name of an object", "a name")
            return [], []
        if kind == _NODE_KIND:
            return self._node(name, path, ready=status == READY, within=within), []
        tier = _TIERS.get(kind) if isinstance(kind, str) else None
        if tier is None or (within is not None and tier >= within):
            accepted = "switchbox, then dragonfly, then node"
            self._note(f"{path}.kind", f"{_quote_value(kind)} is not known there", accepted)
            return [], []
        return self._domain(item, name, path, tier=tier)

    def _node(self, name: str, path: str, *, ready: bool, within: Tier | None) -> list[str]:
        if within is None or name in self._nodes or len(self._nodes) >= MOST_NODES:
            what = f"node {quote(name)} is in no group, in two, or one of too many"
            self._note(path, what, f"each node once, at most {MOST_NODES}")
            return []
        self._nodes.add(name)
        return [name] if ready else []

    def _domain(
        self, item: Mapping[str, object], name: str, path: str, *, tier: Tier
    ) -> tuple[list[str], list[str]]:
        if name in self._names or len(self._names) >= MOST_DOMAINS:
            what = f"group {quote(name)} is there twice, or one of too many"
            self._note(path, what, f"each group once, at most {MOST_DOMAINS}")
            return [], []
        self._names.add(name)
        children = item.get("child")
        if not isinstance(children, list):
            self._note(f"{path}.child", f"{_quote_value(children)} is no list", "an array")
            return [], []
        nodes, parts = list[str](), list[str]()
        for number, child in enumerate(children):
            found, below = self.read(child, f"{path}.child[{number}]", within=tier)
            nodes += found
            parts += below
        if item.get("status") != READY:
            # Nodes keep their dragonfly where only the switchbox above it is not ready.
            return ([], []) if tier is Tier.DRAGONFLY else (nodes, parts)
        self.domains.append(
            Domain(name=name, tier=tier, nodes=tuple(sorted(nodes)), parts=tuple(sorted(parts)))
        )
        return nodes, [name] if tier is Tier.DRAGONFLY else []

    def _note(self, path: str, what: str, accepted: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(Problem(path=path, what=what, accepted=accepted))


def _quote_value(value: object) -> str:
    return quote(str(value)[:64]) if isinstance(value, str | int) else type(value).__name__


def _tree(domains: list[Domain]) -> Tree:
    ordered = sorted(domains, key=lambda domain: (domain.tier, domain.name))
    around: dict[str, tuple[Domain, ...]] = {}
    for domain in ordered:
        for node in domain.nodes:
            around[node] = (*around.get(node, ()), domain)
    return Tree(domains=tuple(ordered), around=MappingProxyType(around))
