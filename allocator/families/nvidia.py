"""The family ``nvidia``: GPUs that our agent or Volcano's device plugin serves."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from typing import Final, NamedTuple

from allocator.catalog.vocabularies import VOLCANO
from allocator.families.family import BoundPod, Family, LinkDistances
from allocator.model.gpu import Gpu
from allocator.model.request import NVIDIA, Mode
from allocator.volcano.device_list import LIST_ANNOTATION, ListedDevice, encode_list

FEWER: Final = 3  # what fewer NVLinks than any two GPUs of the node have add to a distance
APART: Final = 6  # what a missing link adds
# What tells vc-scheduler that a pod's time has come: no later pod waits behind it.
_DONE: Final = str(2**64 - 1)


def link_distances(gpus: Sequence[Gpu]) -> LinkDistances:
    """Return how far *gpus* are apart: one object for all machines that are built alike.

    Two GPUs are closest where NVLink joins them, by as many links as any two GPUs of the node, then
    by fewer, else where they hang on one PCIe switch, else where they sit on one NUMA node.
    Instances of cut GPUs speak to no other GPU over either, so of those only the NUMA node counts.
    """
    places = {gpu.uuid: position for position, gpu in enumerate(gpus)}
    return _link_distances(tuple([_location(gpu, places) for gpu in gpus]))


class _GpuLocation(NamedTuple):
    """What of a GPU decides who is close to it."""

    numa: int | None
    switch: str | None
    links: tuple[tuple[int, int], ...]  # position of the other GPU, and the number of NVLinks


def _location(gpu: Gpu, places: dict[str, int]) -> _GpuLocation:
    if gpu.mode is Mode.MIG:
        return _GpuLocation(gpu.numa, None, ())
    if not gpu.links:
        return _GpuLocation(gpu.numa, gpu.switch, ())
    known = len(gpu.link_counts) == len(gpu.links)
    counts = gpu.link_counts if known else (1,) * len(gpu.links)
    pairs = zip(gpu.links, counts, strict=True)
    links = tuple([(places[uuid], count) for uuid, count in pairs if uuid in places])
    return _GpuLocation(gpu.numa, gpu.switch, links)


@lru_cache(maxsize=256)
def _link_distances(gpus: tuple[_GpuLocation, ...]) -> LinkDistances:
    if not any(gpu.numa is not None or gpu.switch or gpu.links for gpu in gpus):
        return LinkDistances((0,) * len(gpus), ())
    positions = range(len(gpus))
    links = [dict(gpu.links) for gpu in gpus]
    pairs = combinations(positions, 2)
    most = max((min(links[a].get(b, 0), links[b].get(a, 0)) for a, b in pairs), default=0)
    distances = [
        [_distance(gpus, a, b, links=links, most=most) for b in positions] for a in positions
    ]
    firsts: list[int] = []  # one GPU of each kind
    kinds: list[int] = []
    within: list[int] = []
    for at in positions:
        like = (k for k, first in enumerate(firsts) if _alike(distances, at, first))
        kind = next(like, len(firsts))
        if kind == len(firsts):
            firsts.append(at)
            within.append(0)
        else:
            within[kind] = distances[at][firsts[kind]]
        kinds.append(kind)
    between = [[distances[a][b] for b in firsts] for a in firsts]
    for kind, distance in enumerate(within):
        between[kind][kind] = distance
    return LinkDistances(tuple(kinds), tuple(map(tuple, between)))


def _distance(
    gpus: Sequence[_GpuLocation], a: int, b: int, *, links: Sequence[dict[int, int]], most: int
) -> int:
    """Return an index into :data:`allocator.placement.topology.WORTH`.

    A link that only one end knows of is none. *most* is the largest number of links between two
    GPUs of the node.
    """
    one, other = gpus[a], gpus[b]
    joined = min(links[a].get(b, 0), links[b].get(a, 0))
    if one.switch and one.switch == other.switch:
        host = 0
    else:
        host = 1 if one.numa is not None and one.numa == other.numa else 2
    if not joined:
        return host + APART
    return host if joined == most else host + FEWER


def _alike(distances: Sequence[Sequence[int]], a: int, b: int) -> bool:
    return all(distances[a][c] == distances[b][c] for c in range(len(distances)) if c not in {a, b})


def binding_annotations(bound: BoundPod) -> dict[str, str]:
    """Return Volcano's six as its plugin leaves them, or as its scheduler hands them over to it."""
    seconds = str(int(bound.now.timestamp()))
    devices = _devices(bound)
    return {
        "volcano.sh/vgpu-node": bound.assignment.node,
        "volcano.sh/vgpu-time": _DONE if bound.ours else seconds,
        LIST_ANNOTATION: devices,
        "volcano.sh/devices-to-allocate": "" if bound.ours else devices,
        "volcano.sh/bind-time": seconds,
        "volcano.sh/bind-phase": "success" if bound.ours else "allocating",
    }


def _devices(bound: BoundPod) -> str:
    """List the devices of each container of the spec; memory is what was asked for, also in MIG."""
    factor = next((v.memory_factor for v in bound.vocabularies if v.name == VOLCANO.name), 1)
    totals = {gpu.uuid: gpu.memory for gpu in bound.node.gpus}
    container_requests = {one.name: one for one in bound.request.containers}
    parts: dict[str, list[ListedDevice]] = {}
    for held in bound.assignment.containers:
        if (container_request := container_requests.get(held.name)) is not None:
            parts[held.name] = [
                ListedDevice(
                    grant.gpu,
                    container_request.memory_on(totals[grant.gpu]) // factor,
                    container_request.cores,
                    grant.position,
                )
                for grant in held.grants
            ]
    return encode_list(parts.get(name, ()) for name in bound.containers)


NVIDIA_FAMILY: Final = Family(
    name=NVIDIA,
    plugin="Volcano's",
    gpu_modes=(Mode.MIG, Mode.HAMI_CORE, Mode.MPS),
    default_modes=(Mode.MIG, Mode.HAMI_CORE),
    binding_annotations=binding_annotations,
    link_distances=link_distances,
)
