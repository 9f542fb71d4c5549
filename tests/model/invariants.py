"""What must hold after every step, whatever was lost, delayed, doubled or crashed.

The numbers are those of DESIGN.md §5: S1 to S3 no GPU is promised twice, S5 a bound pod has one
entry on its node, S8 and S10 nothing is promised on what has changed since it was read.
"""

import json
from collections.abc import Iterable, Iterator

from allocator.core.gpunode import decode
from allocator.core.ledger import wire_of
from allocator.model.gpu import Gpu
from allocator.model.request import Mode
from tests.gpunodes import Json
from tests.model.world import World

ASSIGNMENT = "vgpu-admission.io/assignment"


class BrokenError(Exception):
    """An invariant does not hold."""


def check(world: World) -> None:
    """Raise :class:`BrokenError` with what is wrong, if anything is."""
    for found in (*_promises(world), *_bound(world)):
        raise BrokenError(found)


def _promises(world: World) -> Iterator[str]:
    for name, stored in world.gpu_nodes.items():
        decoded = decode(stored)
        yield from (f"{name}: {problem}" for problem in decoded.problems)
        uids = [entry.uid for entry in decoded.entries]
        if len(set(uids)) < len(uids):
            yield f"S5 {name}: a pod has two entries: {uids}"
        for gpu in decoded.node.gpus:
            yield from _hard(gpu) if gpu.mode is Mode.MIG else _soft(gpu)


def _hard(gpu: Gpu) -> Iterator[str]:
    mask = 0
    for grant in gpu.grants:
        placed = grant.placed
        if placed is None or placed.start not in placed.profile.starts or mask & placed.mask:
            yield f"S3 {gpu.uuid}: {[str(g.placed) for g in gpu.grants]}"
            return
        mask |= placed.mask


def _soft(gpu: Gpu) -> Iterator[str]:
    over = gpu.memory_promised > gpu.memory or gpu.cores_promised > 100
    alone = all(grant.cores < 100 for grant in gpu.grants) or len(gpu.grants) == 1
    if over or len(gpu.grants) > gpu.slots or (gpu.grants and not alone):
        yield f"S1 {gpu.uuid}: {[(g.memory, g.cores) for g in gpu.grants]}"


def _bound(world: World) -> Iterator[str]:
    for pod in world.pods.values():
        node, uid = pod["spec"].get("nodeName"), pod["metadata"]["uid"]
        if not node:
            continue
        held = [entry for entry in decode(world.gpu_nodes[node]).entries if entry.uid == uid]
        if len(held) != 1:
            yield f"S5 {uid} is bound to {node} with {len(held)} entries"
            continue
        told = pod["metadata"]["annotations"].get(ASSIGNMENT, "null")
        promised = json.dumps([wire_of(entry)["containers"] for entry in held])
        if not world.unsound and [json.loads(told)] != json.loads(promised):
            yield f"S5 {uid} was told {told}, promised {promised}"


def new_grants_are_sound(old: Json, new: Json) -> None:
    """Check at the moment of a commit that what it adds is on GPUs that work (S10)."""
    before = {json.dumps(entry["containers"]) for entry in old["spec"]["entries"]}
    healthy = {gpu["uuid"] for gpu in new["status"]["gpus"] if gpu["healthy"]}
    for entry in new["spec"]["entries"]:
        if json.dumps(entry["containers"]) not in before and not healthy.issuperset(_gpus(entry)):
            raise BrokenError(f"S10 {entry['pod']['uid']} was promised a GPU that is ill")


def nothing_held_is_freed(old: Json, new: Json) -> None:
    """Check at the moment of a removal that no container may still run on what it frees (S7)."""
    before, after = ({e["pod"]["uid"] for e in one["spec"]["entries"]} for one in (old, new))
    if gone := (before - after).intersection(old["status"].get("held", ())):
        raise BrokenError(f"S7 {sorted(gone)} are held and were freed")


def nothing_is_left_behind(world: World) -> None:
    """Check that promises are those of bound pods, once everything has come to rest (L2)."""
    for name, stored in world.gpu_nodes.items():
        left = {entry["pod"]["uid"] for entry in stored["spec"]["entries"]}
        bound = {
            pod["metadata"]["uid"]
            for pod in world.pods.values()
            if pod["spec"].get("nodeName") == name
        }
        if left != bound:
            raise BrokenError(f"L2 {name} promises {sorted(left)}, bound are {sorted(bound)}")


def _gpus(entry: Json) -> Iterable[str]:
    return {device["gpu"] for held in entry["containers"] for device in held["devices"]}
