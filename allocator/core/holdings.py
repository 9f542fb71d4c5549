"""Holdings: a node with more promised on it, or less; GPUs that are not concerned stay the same."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace

from allocator.model.gpu import Gpu, Grant, Node
from allocator.model.ledger import Entry


def freed(node: Node, entries: Iterable[Entry]) -> Node:
    """Return *node* without the grants of *entries*, which it has."""
    gone = Counter(grant for e in entries for held in e.containers for grant in held.grants)
    return replace(node, gpus=tuple(_freed(gpu, gone) for gpu in node.gpus)) if gone else node


def granted(node: Node, grants: Collection[Grant]) -> Node:
    """Return *node* with *grants* besides those that it has."""
    held: dict[str, list[Grant]] = {}
    for grant in grants:
        held.setdefault(grant.gpu, []).append(grant)
    gpus = (
        replace(gpu, grants=(*gpu.grants, *held[gpu.uuid])) if gpu.uuid in held else gpu
        for gpu in node.gpus
    )
    return replace(node, gpus=tuple(gpus)) if held else node


def _freed(gpu: Gpu, gone: Counter[Grant]) -> Gpu:
    left = []
    for grant in gpu.grants:
        if gone[grant]:
            gone[grant] -= 1
        else:
            left.append(grant)
    return gpu if len(left) == len(gpu.grants) else replace(gpu, grants=tuple(left))
