"""What must hold after every step, whatever was lost, delayed, doubled or crashed.

The numbers are those of docs/design.md, invariants: S1 to S4 no GPU is promised twice, nor used
twice by what really runs, S5 a bound pod has one entry on its node, S6 nothing runs without one,
S12 a dry run writes nothing, S13 what is accounted is what runs, whatever a tenant writes. L5
nobody leads for longer than their lease. What must hold in the moment of a write is in ``commits``.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

import orjson

from allocator.ledger.commit import wire_of
from tests.model.agents import Agent
from tests.model.cluster import World, over
from tests.model.history import entries, running
from tests.model.oracle import wrong

ASSIGNMENT = "vgpu-admission.io/assignment"
Room = Callable[[str, str], bool]  # whether a node has room, by name, for a pod, by uid


class BrokenError(Exception):
    """An invariant does not hold."""


def check(world: World, agents: Sequence[Agent]) -> None:
    """Raise :class:`BrokenError` with what is wrong, if anything is."""
    for path in world.past.strays:
        raise BrokenError(f"S12 a dry run wrote to {path}")
    for found in (
        *_promises(world),
        *_bound(world),
        *_running(agents),
        *_started(world, agents),
        *_accounted(world, agents),
    ):
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
            yield from wrong(gpu)


def _promises(world: World) -> Iterator[str]:
    for name in world.gpu_nodes:
        decoded = world.decoded(name)
        yield from (f"{name}: {problem}" for problem in decoded.problems)
        uids = [entry.uid for entry in decoded.entries]
        if len(set(uids)) < len(uids):
            yield f"S5 {name}: a pod has two entries: {uids}"
        for gpu in decoded.node.gpus:
            yield from wrong(gpu)


def _started(world: World, agents: Sequence[Agent]) -> Iterator[str]:
    """Yield what runs without an entry that its agent has said is held, or found in use (S6)."""
    for agent in agents:
        stored = world.gpu_nodes.get(agent.name)
        if stored is None or not agent.present:
            continue
        said = agent.accounted and bool(stored["status"].get("inventory"))
        for uid in agent.running:
            entered = uid in entries(stored)
            if not entered and (agent.name, uid) not in world.past.bereft:
                yield f"S6 {uid} runs on {agent.name} without an entry"
            if entered and said and uid not in running(stored):
                yield f"S6 {uid} runs on {agent.name}, which does not say so"


def _bound(world: World) -> Iterator[str]:
    for pod in world.pods.values():
        node, uid = pod["spec"].get("nodeName"), pod["metadata"]["uid"]
        if not node or over(pod):
            continue
        found = world.decoded(node).entries if node in world.gpu_nodes else ()
        held = [entry for entry in found if entry.uid == uid]
        if len(held) != 1 and not (not held and (node, uid) in world.past.excused):
            yield f"S5 {uid} is bound to {node} with {len(held)} entries"
            continue
        told = pod["metadata"]["annotations"].get(ASSIGNMENT, "null")
        promised = orjson.dumps([wire_of(entry)["containers"] for entry in held]).decode()
        if not _untold(world, node, uid) and [orjson.loads(told)] != orjson.loads(promised):
            yield f"S5 {uid} was told {told}, promised {promised}"


def _untold(world: World, node: str, uid: str) -> bool:
    """Say whether a pod's annotations may tell of another promise than it has, or of anything."""
    elsewhere = world.past.displaced | world.past.exchanged
    return uid in world.bypassed | world.forged or (node, uid) in elsewhere


def everything_has_come_to_rest(
    world: World, agents: Sequence[Agent], *, told: Collection[str], has_room: Room
) -> None:
    """Check that every promise is a bound pod's, and every bound pod has one or heard why (L2)."""
    unbound = {
        pod["metadata"]["uid"] for pod in world.pods.values() if not pod["spec"].get("nodeName")
    }
    for agent in agents:
        stored = world.gpu_nodes[agent.name]
        left, bound = set(entries(stored)), set(world.bound(agent.name))
        if left & unbound:
            raise BrokenError(f"L5 {agent.name} still promises {sorted(left & unbound)}")
        if not left <= bound or not bound - left <= set(told):
            raise BrokenError(f"L2 {agent.name} promises {sorted(left)}, bound are {sorted(bound)}")
        if not stored["status"].get("inventory"):
            raise BrokenError(f"L3 {agent.name} is shut for ever")
        for uid in sorted(bound - left):
            for found in _wrongly_turned_away(world, agent, uid, has_room=has_room):
                raise BrokenError(f"L2 {uid} {found}")


def _wrongly_turned_away(world: World, agent: Agent, uid: str, *, has_room: Room) -> Iterator[str]:
    """Yield why a bound pod should have an entry after all.

    One that was bound past the hook, or whose ledger was lost, may find no room. What it runs on
    already nobody may be promised instead, and a tenant may write itself out of any promise.
    """
    if uid not in world.bypassed and (agent.name, uid) not in world.past.displaced:
        yield f"has no entry on {agent.name}, and neither came past the hook nor lost its ledger"
    if uid in agent.running or uid in world.forged:
        return
    if has_room(agent.name, uid):
        yield f"was turned away, and has room on {agent.name}: {world.decoded(agent.name).node}"
