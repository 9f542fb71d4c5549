"""Checks the API objects after a storm: pods without entry, doubled, or overcommitted."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from allocator.catalog.keys import ASSIGNMENT_KEY
from allocator.ledger.decode import decode
from allocator.model.gpu import Gpu
from allocator.model.request import Mode
from allocator.model.units import WHOLE_GPU
from tests.cluster.api import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Names of pods and GPUs with which something is wrong, by what it is."""

    unbound: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()  # bound to a node that promises them nothing
    doubled: tuple[str, ...] = ()  # promised something twice there
    stray: tuple[str, ...] = ()  # promised something on another node too, by a bind that failed
    misled: tuple[str, ...] = ()  # told of something else than they were promised
    overfull: tuple[str, ...] = ()  # GPUs that promise more than they have

    @property
    def wrong_count(self) -> int:
        """Return how many things are wrong."""
        parts = (self.unbound, self.lost, self.doubled, self.stray, self.misled, self.overfull)
        return sum(map(len, parts))


ALL_WELL: Final = Truth()


def truth(pods: Iterable[Json], gpu_nodes: Iterable[Json]) -> Truth:
    """Compare *pods*, all of which asked for a GPU, with all promises."""
    ledgers = list(gpu_nodes)
    promised = _promises_by_uid(ledgers)
    found: defaultdict[str, list[str]] = defaultdict(list)
    for pod in pods:
        problem = _problem(pod, promised.get(pod["metadata"]["uid"], []))
        if problem:
            found[problem].append(pod["metadata"]["name"])
    overfull = [
        gpu.uuid for one in ledgers for gpu in decode(one).node.gpus if _more_than_it_has(gpu)
    ]
    return Truth(**{kind: tuple(names) for kind, names in found.items()}, overfull=tuple(overfull))


def _promises_by_uid(gpu_nodes: Iterable[Json]) -> Mapping[str, list[tuple[str, object]]]:
    """Return by pod uid each node that promises it something, and what."""
    found: defaultdict[str, list[tuple[str, object]]] = defaultdict(list)
    for one in gpu_nodes:
        for entry in one["spec"]["entries"]:
            found[entry["pod"]["uid"]].append((one["metadata"]["name"], entry["containers"]))
    return found


def _problem(pod: Json, promises: list[tuple[str, object]]) -> str:
    node = pod["spec"].get("nodeName")
    if not node:
        return "unbound"
    here = [containers for name, containers in promises if name == node]
    if not here:
        return "lost"
    if len(here) > 1:
        return "doubled"
    if len(promises) > 1:
        return "stray"
    told = (pod["metadata"].get("annotations") or {}).get(ASSIGNMENT_KEY, "null")
    return "" if msgspec.json.decode(told) == here[0] else "misled"


def _more_than_it_has(gpu: Gpu) -> bool:
    if gpu.mode is Mode.MIG:
        slots = sum(grant.placed.mask.bit_count() for grant in gpu.grants if grant.placed)
        return slots > gpu.taken_slots.bit_count()
    return (
        gpu.memory_promised > gpu.memory
        or gpu.cores_promised > WHOLE_GPU
        or len(gpu.grants) > gpu.slots
    )
