"""Fleet documents: nodes as a fleet file, without pods, UUIDs and anything else that names people.

What the format has no words for is left out: NVLink, NUMA nodes and Volcano's positions.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import orjson

from allocator.catalog.boards import model_named, models_like
from allocator.config.fleet_file import MOST_GPUS, MOST_SLOTS, load_fleet
from allocator.model.board import Placement
from allocator.model.gpu import Gpu, Node
from allocator.model.problem import Rejected
from allocator.model.request import Mode
from allocator.model.units import WHOLE_GPU

Json = dict[str, Any]
_PARTS: Final = ("busy", "idle", "foreign")


@dataclass(frozen=True, slots=True)
class FleetDocument:
    """The content of a fleet file, and a sentence for each node that it has no words for."""

    content: Json
    left_out: tuple[str, ...]


def fleet_document(nodes: Iterable[Node]) -> FleetDocument:
    """Return *nodes* as a fleet file that :func:`load_fleet` reads."""
    tables: list[Json] = []
    left_out: list[str] = []
    for node in nodes:
        if not node.gpus:
            continue
        table = _table(node)
        read = load_fleet(orjson.dumps({"nodes": [table]}).decode())
        if isinstance(read, Rejected):
            left_out.append(f"node {node.name} is left out: {read.problems[0]}")
        else:
            tables.append(table)
    return FleetDocument({"nodes": tables}, tuple(left_out))


def _table(node: Node) -> Json:
    gpus = node.gpus[:MOST_GPUS]
    table: Json = {"name": node.name, "gpus": [*_kinds(gpus)]}
    for part in _PARTS:
        items = [
            {"gpu": index, **item} for index, gpu in enumerate(gpus) for item in _items(gpu)[part]
        ]
        table |= {part: items} if items else {}
    unhealthy = [index for index, gpu in enumerate(gpus) if not gpu.healthy]
    return table | ({"unhealthy": unhealthy} if unhealthy else {})


def _kinds(gpus: Iterable[Gpu]) -> Iterator[Json]:
    """Yield each run of equal GPUs, so that indexes stay what they are."""
    for (name, memory, mode, slots, chunks), run in groupby(gpus, key=_kind):
        kind = {
            "count": len(list(run)),
            "model": name,
            "memory": memory,
            "mode": mode,
            "slots": slots,
        }
        number, sms = chunks
        yield kind | ({"chunks": number, "chunkSMs": sms} if number else {})


def _kind(gpu: Gpu) -> tuple[str, int, str, int, tuple[int, int]]:
    slots = min(max(gpu.slots, len(gpu.grants), 1), MOST_SLOTS)
    chunks = (gpu.chunks, gpu.chunk_sms) if gpu.mode is Mode.MPS else (0, 0)
    return _model_name(gpu.model), gpu.memory, str(gpu.mode), slots, chunks


def _model_name(name: str) -> str:
    """Return a name that a fleet file takes for this model, and not for part of another's name."""
    if model_named(name) is not None or not models_like(name):
        return name
    return f"{name} (as reported)"


def _items(gpu: Gpu) -> Mapping[str, list[Json]]:
    """Return what is on one GPU, within what it has, as a fleet file may hold no more."""
    if gpu.mode is Mode.MIG:
        busy, idle = _instances(gpu)
        promised = sum(placed.profile.memory for placed in busy)
        parts = {"busy": list(map(_instance, busy)), "idle": list(map(_instance, idle))}
    else:
        shares = list(_shares(gpu))
        promised = sum(share["memory"] for share in shares)
        parts = {"busy": shares, "idle": []}
    foreign = min(gpu.foreign, gpu.memory - promised)
    return {**parts, "foreign": [{"memory": foreign}] if foreign > 0 else []}


def _shares(gpu: Gpu) -> Iterator[Json]:
    memory, cores = int(gpu.memory), int(WHOLE_GPU)
    for grant in gpu.grants[:MOST_SLOTS]:
        share = {"memory": min(grant.memory, memory), "cores": min(grant.cores, cores)}
        if share["memory"] > 0:
            memory, cores = memory - share["memory"], cores - share["cores"]
            yield share


def _instances(gpu: Gpu) -> tuple[list[Placement], list[Placement]]:
    """Return the placements that are promised, and further live instances; none overlap."""
    taken = 0
    busy: list[Placement] = []
    idle: list[Placement] = []
    promised = [grant.placed for grant in gpu.grants if grant.placed is not None]
    for placements, found in ((promised, busy), (gpu.instances, idle)):
        for placed in placements:
            if not placed.mask & taken:
                taken |= placed.mask
                found.append(placed)
    return busy, idle


def _instance(placed: Placement) -> Json:
    return {"profile": placed.profile.name, "start": placed.start}
