"""Usage: what a pod holds at its peak, and a node with grants added or removed.

Init containers run one after another, together with the sidecars that started before them, and
have ended when the app containers start. They share the GPUs of the app containers as far as
possible, so that what both use in turn counts once.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

import msgspec

from allocator.model.allocation import ContainerGrants, Entry, Grant
from allocator.model.gpu import Gpu, Node
from allocator.model.request import Stage
from allocator.model.units import NO_CORES, NO_MEMORY, CorePercent, MiB

Part = tuple[str, Grant]  # the name of a container, and one of its grants
_INIT: Final = Stage.INIT  # looked up once, because it is needed for every entry of every node


def peak_grants(containers: Sequence[ContainerGrants]) -> tuple[Grant, ...]:
    """Return what a pod holds at its peak, as grants that add up."""
    if len(containers) == 1:  # nearly every pod
        return containers[0].grants
    grants: list[Grant] = []
    for container in containers:
        if container.stage is _INIT:
            return tuple([grant for _, grant in parts(containers)])
        grants += container.grants
    return tuple(grants)


def parts(containers: Sequence[ContainerGrants]) -> list[Part]:
    """Return :func:`peak_grants`, each with the name of one of the containers that hold it."""
    if len(containers) == 1 or all(container.stage is not _INIT for container in containers):
        return [(container.name, grant) for container in containers for grant in container.grants]
    held: dict[str, dict[int, list[Part]]] = {}  # by GPU, then by number of the container
    for number, container in enumerate(containers):
        for grant in container.grants:
            own = held.setdefault(grant.gpu, {}).setdefault(number, [])
            own.append((container.name, grant))
    return [part for by_number in held.values() for part in _peak(_moments(by_number, containers))]


def _moments(
    held: Mapping[int, list[Part]], containers: Sequence[ContainerGrants]
) -> list[list[Part]]:
    """Return the grants on one GPU at the end, then those while each init container runs.

    *held* has them by the number of the container. Init containers without one are left out.
    """
    lasting: list[Part] = []
    moments = [lasting]
    for number, own in held.items():
        if containers[number].stage is _INIT:
            moments.append([*lasting, *own])
        else:
            lasting += own
    return moments


def _peak(moments: Sequence[list[Part]]) -> list[Part]:
    """Return grants with the largest number, memory and cores of any of *moments*."""
    has_mig = any(grant.placed is not None for _, grant in chain.from_iterable(moments))
    longest = max(moments, key=len)
    grants = _peak_placements(moments) if has_mig else longest.copy()
    memory = max(map(_memory, moments)) - _memory(grants)
    cores = max(map(_cores, moments)) - _cores(grants)
    if memory or cores:
        name, last = grants[-1]
        grants[-1] = (
            name,
            msgspec.structs.replace(
                last, memory=MiB(last.memory + memory), cores=CorePercent(last.cores + cores)
            ),
        )
    return grants


def _peak_placements(moments: Sequence[list[Part]]) -> list[Part]:
    """Return the grants at the end, and one without amounts for each further placement.

    A placement that only an init container uses stays reserved while the pod runs.
    """
    grants = list(moments[0])
    known = {grant.placed for _, grant in grants}
    for name, grant in chain.from_iterable(moments[1:]):
        if grant.placed not in known:
            known.add(grant.placed)
            grants.append((name, msgspec.structs.replace(grant, memory=NO_MEMORY, cores=NO_CORES)))
    return grants


def _memory(held: Iterable[Part]) -> int:
    return sum([grant.memory for _, grant in held])


def _cores(held: Iterable[Part]) -> int:
    return sum([grant.cores for _, grant in held])


def without_entries(node: Node, entries: Iterable[Entry]) -> Node:
    """Return *node* without the grants of *entries*, all of which it has.

    Of equal grants any one is removed, because their order has no meaning.
    """
    removed = Counter(grant for entry in entries for grant in peak_grants(entry.containers))
    return (
        replace(node, gpus=tuple(_without_grants(gpu, removed) for gpu in node.gpus))
        if removed
        else node
    )


def with_grants(node: Node, grants: Collection[Grant]) -> Node:
    """Return *node* with *grants* added; they must add up (:func:`peak_grants`)."""
    held: dict[str, list[Grant]] = {}
    for grant in grants:
        held.setdefault(grant.gpu, []).append(grant)
    gpus = (
        replace(gpu, grants=(*gpu.grants, *held[gpu.uuid])) if gpu.uuid in held else gpu
        for gpu in node.gpus
    )
    return replace(node, gpus=tuple(gpus)) if held else node


def _without_grants(gpu: Gpu, removed: Counter[Grant]) -> Gpu:
    left = []
    for grant in gpu.grants:
        if removed[grant]:
            removed[grant] -= 1
        else:
            left.append(grant)
    return gpu if len(left) == len(gpu.grants) else replace(gpu, grants=tuple(left))
