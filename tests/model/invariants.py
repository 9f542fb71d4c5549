"""What must hold after every step, whatever was lost, delayed, doubled or crashed.

The numbers are those of DESIGN.md §5: S1 to S3 no GPU is promised twice, nor used twice by what
really runs, S5 a bound pod has one entry on its node, S7 nothing is freed that may still run, S8
and S10 nothing is promised on what has changed since it was read, S13 what is accounted is what
was asked for and what runs, whatever a tenant writes. L5 nobody leads for longer than their lease.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

import orjson

from allocator.core.ledger import wire_of
from allocator.model.gpu import Gpu
from allocator.model.request import Mode
from tests.gpunodes import Json
from tests.model.agents import Agent, bound_to, over
from tests.model.world import World

ASSIGNMENT = "vgpu-admission.io/assignment"


class BrokenError(Exception):
    """An invariant does not hold."""


def check(world: World, agents: Sequence[Agent]) -> None:
    """Raise :class:`BrokenError` with what is wrong, if anything is."""
    for found in (*_promises(world), *_bound(world), *_running(agents), *_accounted(world, agents)):
        raise BrokenError(found)


def one_leads(leading: Sequence[bool]) -> None:
    """Check that at most one replica does what only one may do."""
    if sum(leading) > 1:
        raise BrokenError("L5 two replicas hold the lease")


def _accounted(world: World, agents: Sequence[Agent]) -> Iterator[str]:
    """Hold what is promised to a pod that runs to what it runs on."""
    for agent in agents:
        entries = world.decoded(agent.name).entries if agent.name in world.gpu_nodes else ()
        for entry in entries:
            real = agent.running.get(entry.uid)
            if real is not None and real.containers != entry.containers:
                yield f"S13 {entry.uid} runs on {real.containers}, promised {entry.containers}"


def _running(agents: Sequence[Agent]) -> Iterator[str]:
    """Hold what really runs on each GPU to the same rules as what is promised there."""
    for agent in agents:
        for gpu in agent.used():
            yield from _hard(gpu) if gpu.mode is Mode.MIG else _soft(gpu)


def _promises(world: World) -> Iterator[str]:
    for name in world.gpu_nodes:
        decoded = world.decoded(name)
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
        if not node or over(pod):
            continue
        entries = world.decoded(node).entries if node in world.gpu_nodes else ()
        held = [entry for entry in entries if entry.uid == uid]
        late = uid in world.bypassed or node in world.lost  # it may have to wait for its entry
        if len(held) != 1 and not (late and not held):
            yield f"S5 {uid} is bound to {node} with {len(held)} entries"
            continue
        told = pod["metadata"]["annotations"].get(ASSIGNMENT, "null")
        promised = orjson.dumps([wire_of(entry)["containers"] for entry in held]).decode()
        sure = not world.unsound and not late and uid not in world.forged
        if sure and [orjson.loads(told)] != orjson.loads(promised):
            yield f"S5 {uid} was told {told}, promised {promised}"


def new_grants_are_sound(world: World, old: Json, new: Json) -> None:
    """Check at the moment of a commit that what it adds is what was asked for, on GPUs that work.

    These are S13 and S10.
    """
    before = {orjson.dumps(entry["containers"]) for entry in old["spec"]["entries"]}
    healthy = {gpu["uuid"] for gpu in new["status"].get("gpus", ()) if gpu["healthy"]}
    for entry in new["spec"]["entries"]:
        uid, devices = entry["pod"]["uid"], [d for c in entry["containers"] for d in c["devices"]]
        if orjson.dumps(entry["containers"]) in before:
            continue
        if not healthy.issuperset(_gpus(entry)):
            raise BrokenError(f"S10 {uid} was promised a GPU that is ill")
        if len(devices) != 1 or not _serves(devices[0], world.asked[uid]):
            raise BrokenError(f"S13 {uid} asked for {world.asked[uid]} MiB, promised {devices}")


def _serves(device: Json, memory: int) -> bool:
    """Say whether a device is what was asked for: as much, or an instance that is no smaller."""
    found: int = device["memoryMiB"]
    return found >= memory if device["mode"] == "mig" else found == memory


def nothing_held_is_freed(old: Json, new: Json) -> None:
    """Check at the moment of a removal that no container may still run on what it frees (S7).

    Where the node has left the cluster, nothing may be promised instead: it has been shut.
    """
    before, after = ({e["pod"]["uid"] for e in one["spec"]["entries"]} for one in (old, new))
    gone = (before - after).intersection(old["status"].get("held", ()))
    if gone and old["status"].get("inventory"):
        raise BrokenError(f"S7 {sorted(gone)} are held and were freed")


def everything_has_come_to_rest(
    world: World, agents: Sequence[Agent], told: Collection[str]
) -> None:
    """Check that every promise is a bound pod's, and every bound pod has one or heard why (L2).

    A pod that was bound past the hook, or whose ledger was lost, may find no room.
    """
    unbound = {
        pod["metadata"]["uid"] for pod in world.pods.values() if not pod["spec"].get("nodeName")
    }
    for agent in agents:
        stored = world.gpu_nodes[agent.name]
        left = {entry["pod"]["uid"] for entry in stored["spec"]["entries"]}
        bound = set(bound_to(world, agent.name))
        if left & unbound:
            raise BrokenError(f"L5 {agent.name} still promises {sorted(left & unbound)}")
        if not left <= bound or not bound - left <= set(told):
            raise BrokenError(f"L2 {agent.name} promises {sorted(left)}, bound are {sorted(bound)}")
        if not stored["status"].get("inventory"):
            raise BrokenError(f"L3 {agent.name} is shut for ever")


def _gpus(entry: Json) -> Iterable[str]:
    return {device["gpu"] for held in entry["containers"] for device in held["devices"]}
