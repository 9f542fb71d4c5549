"""Holdings: what a pod holds at most, and a node with more promised on it, or less.

Init containers run one after another, beside the sidecars that started before them, and are over
when the apps start. What they hold is what the apps will hold, as far as that goes: it counts once.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

import msgspec

from allocator.model.allocation import ContainerGrants, Entry, Grant
from allocator.model.gpu import Gpu, Node
from allocator.model.request import Stage
from allocator.model.units import NO_CORES, NO_MEMORY, CorePercent, MiB

Part = tuple[str, Grant]  # with the name of the container that holds it
_INIT: Final = Stage.INIT  # looked up once: every promise of every node that is read asks for it


def peak_grants(containers: Sequence[ContainerGrants]) -> tuple[Grant, ...]:
    """Return what a pod holds at most, as grants that add up: its own, unless some take turns."""
    if len(containers) == 1:  # nearly every pod
        return containers[0].grants
    grants: list[Grant] = []
    for held in containers:
        if held.stage is _INIT:
            return tuple([grant for _, grant in parts(containers)])
        grants += held.grants
    return tuple(grants)


def parts(containers: Sequence[ContainerGrants]) -> list[Part]:
    """Return :func:`holding` with a container that holds each: of those that take turns, one."""
    if len(containers) == 1 or all(held.stage is not _INIT for held in containers):
        return [(held.name, grant) for held in containers for grant in held.grants]
    gpus = dict.fromkeys(grant.gpu for held in containers for grant in held.grants)
    return [part for gpu in gpus for part in _peak(_moments(gpu, containers))]


def _moments(gpu: str, containers: Iterable[ContainerGrants]) -> list[list[Part]]:
    """Return what is held on one GPU at a time: in the end, and while each init container runs."""
    lasting: list[Part] = []
    moments = [lasting]
    for held in containers:
        own = [(held.name, grant) for grant in held.grants if grant.gpu == gpu]
        if held.stage is _INIT:
            moments.append([*lasting, *own])
        else:
            lasting += own
    return moments


def _peak(moments: Sequence[list[Part]]) -> list[Part]:
    """Return as many grants as are ever held at a time, with as much as is ever held in all."""
    cut = any(grant.placed is not None for _, grant in chain.from_iterable(moments))
    longest = max(moments, key=len)
    found = _places(moments) if cut else longest.copy()
    memory = max(map(_memory, moments)) - _memory(found)
    cores = max(map(_cores, moments)) - _cores(found)
    if memory or cores:
        name, last = found[-1]
        found[-1] = (
            name,
            msgspec.structs.replace(
                last, memory=MiB(last.memory + memory), cores=CorePercent(last.cores + cores)
            ),
        )
    return found


def _places(moments: Sequence[list[Part]]) -> list[Part]:
    """Return what is held in the end, and each further place, which is kept free all the time."""
    found = list(moments[0])
    known = {grant.placed for _, grant in found}
    for name, grant in chain.from_iterable(moments[1:]):
        if grant.placed not in known:
            known.add(grant.placed)
            found.append((name, msgspec.structs.replace(grant, memory=NO_MEMORY, cores=NO_CORES)))
    return found


def _memory(held: Iterable[Part]) -> int:
    return sum([grant.memory for _, grant in held])


def _cores(held: Iterable[Part]) -> int:
    return sum([grant.cores for _, grant in held])


def without_entries(node: Node, entries: Iterable[Entry]) -> Node:
    """Return *node* without what the pods of *entries* hold, which it has.

    Of equal grants any one goes: they add up, and no decision rests on their order.
    """
    gone = Counter(grant for entry in entries for grant in peak_grants(entry.containers))
    return (
        replace(node, gpus=tuple(_without_grants(gpu, gone) for gpu in node.gpus)) if gone else node
    )


def with_grants(node: Node, grants: Collection[Grant]) -> Node:
    """Return *node* with *grants*, which add up, besides those that it has."""
    held: dict[str, list[Grant]] = {}
    for grant in grants:
        held.setdefault(grant.gpu, []).append(grant)
    gpus = (
        replace(gpu, grants=(*gpu.grants, *held[gpu.uuid])) if gpu.uuid in held else gpu
        for gpu in node.gpus
    )
    return replace(node, gpus=tuple(gpus)) if held else node


def _without_grants(gpu: Gpu, gone: Counter[Grant]) -> Gpu:
    left = []
    for grant in gpu.grants:
        if gone[grant]:
            gone[grant] -= 1
        else:
            left.append(grant)
    return gpu if len(left) == len(gpu.grants) else replace(gpu, grants=tuple(left))
