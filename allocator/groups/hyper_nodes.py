"""Volcano's HyperNodes of a tree of supernodes: dragonflies in tier 1, switchboxes in tier 2."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from allocator.catalog.vocabularies import OWN
from allocator.groups.tree import Domain, Tier, Tree

API_VERSION: Final = "topology.volcano.sh/v1alpha1"
SOURCE_LABEL: Final = "volcano.sh/network-topology-source"  # as Volcano's own discovery writes it
SOURCE: Final = OWN.rstrip("/")
HIGHEST_TIER: Final = int(Tier.SWITCHBOX)


@dataclass(frozen=True, slots=True, kw_only=True)
class HyperNode:
    """A HyperNode as the API server has it: whose it is, and its spec."""

    name: str
    ours: bool
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class HyperNodeChanges:
    """What to write and to delete, and names that somebody else has taken."""

    written: Mapping[str, Mapping[str, Any]]  # specs by name, those of lower tiers first
    deleted: tuple[str, ...]  # those of higher tiers first
    taken: tuple[str, ...] = ()


def hyper_node_specs(tree: Tree) -> Mapping[str, Mapping[str, Any]]:
    """Return the specs of all HyperNodes by name, those of lower tiers first.

    A domain without nodes has none, because a HyperNode without members is not valid.
    """
    filled = [domain for domain in tree.domains if domain.nodes]
    names = {domain.name for domain in filled}
    return MappingProxyType({domain.name: _spec(domain, names) for domain in filled})


def _spec(domain: Domain, names: set[str]) -> dict[str, Any]:
    if domain.tier is Tier.SWITCHBOX:
        kind, members = "HyperNode", [part for part in domain.parts if part in names]
    else:
        kind, members = "Node", list(domain.nodes)
    return {
        "tier": int(domain.tier),
        "tierName": domain.tier.name.lower(),
        "members": [{"type": kind, "selector": {"exactMatch": {"name": one}}} for one in members],
    }


def changes(wanted: Mapping[str, Mapping[str, Any]], there: list[HyperNode]) -> HyperNodeChanges:
    """Return what makes the HyperNodes that are *there* those *wanted*; only ours are touched."""
    ours = {one.name: one for one in there if one.ours}
    foreign = {one.name for one in there if not one.ours}
    written = {
        name: spec
        for name, spec in wanted.items()
        if name not in foreign and (name not in ours or ours[name].spec != spec)
    }
    gone = [one for one in ours.values() if one.name not in wanted]
    gone.sort(key=lambda one: (-_tier(one.spec), one.name))
    return HyperNodeChanges(
        written=MappingProxyType(written),
        deleted=tuple(one.name for one in gone),
        taken=tuple(sorted(foreign & set(wanted))),
    )


def _tier(spec: Mapping[str, Any]) -> int:
    tier = spec.get("tier")
    return tier if isinstance(tier, int) else 0
