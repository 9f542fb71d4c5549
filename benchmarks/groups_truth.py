"""What the API objects say of groups, and what an exhaustive placement reaches."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Boxes = Mapping[str, Mapping[str, Sequence[str]]]  # switchboxes of dragonflies of nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsTruth:
    """Groups whose pods are all bound, groups in several switchboxes, and bound pods."""

    placed: int
    split: int
    bound: int


def groups_truth(pods: Sequence[Mapping[str, Any]], boxes: Boxes, members: int) -> GroupsTruth:
    """Judge *pods* of groups of so many *members* by their label ``group``."""
    box_of = {
        node: box for box, flies in boxes.items() for nodes in flies.values() for node in nodes
    }
    nodes: dict[str, list[str]] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node:
            nodes.setdefault(pod["metadata"]["labels"]["group"], []).append(node)
    found = nodes.values()
    return GroupsTruth(
        placed=sum(len(one) == members for one in found),
        split=sum(len({box_of.get(node, node) for node in one}) > 1 for one in found),
        bound=sum(map(len, found)),
    )


def most_groups(boxes: Boxes, broken: Collection[str], members: int) -> int:
    """Return how many groups of *members* whole nodes fit, each in one switchbox.

    A dragonfly is part of its switchbox, so that no placement reaches more.
    """
    whole = [
        sum(node not in broken for nodes in flies.values() for node in nodes)
        for flies in boxes.values()
    ]
    return sum(count // members for count in whole)
