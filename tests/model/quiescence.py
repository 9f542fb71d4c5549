"""A schedule from its beginning to its rest: what must have come true once nothing goes wrong."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from allocator.catalog.hami_keys import LOCK_ANNOTATION
from kube.workqueue import SWEEP_SECONDS
from tests.model.agents import Agent
from tests.model.cluster import World
from tests.model.invariants import BrokenError, everything_has_come_to_rest
from tests.model.oracle import has_room
from tests.model.replicas import Replica
from tests.model.requests import WEAK
from tests.model.room_oracle import fits
from tests.model.schedule import Run
from tests.model.schedulers import binding_of, under_way

STEPS: Final = 70
ROUNDS: Final = 6  # of putting things right, at most
QUIET: Final = 2  # sweeps: a pod without a promise is looked at once it was seen twice
CONTENTION: Final = 40  # steps


async def go(run: Run) -> None:
    """Take random steps, then let all that is under way come to its end."""
    await run.settled()
    for _ in range(STEPS):
        run.step()
        await run.settled()
    for one in run.replicas:
        await run.compare(one)
    await run.finish(run.schedulers.attempts)
    while run.world.tickets:  # also what the dead have sent
        run.proceed(faults=False)
        await run.settled()
    await _come_to_rest(run)
    run.schedulers.peace = True
    await _bind_the_rest(run)
    await _restarted(run)
    await _contend(run)


async def _come_to_rest(run: Run) -> None:
    await _elected(run)
    await _parked(run)
    await _swept(run, agents=(), leader_dies=run.world.rng.random() < 0.5)
    _who_is_not_accounted_for_is_shut(run)
    _nobody_waits_in_vain(run)
    for agent in run.agents:
        if not agent.present:
            agent.join()
    await _asked(run)
    await _swept(run, agents=run.agents, leader_dies=run.world.rng.random() < 0.5)
    _at_rest(run)
    await run.compare(run.replicas[0])
    _nobody_waits_in_vain(run)


def _at_rest(run: Run) -> None:
    """Check what must be so; where Volcano keeps account too, only what it can name is room."""

    def has_room_there(node: str, uid: str) -> bool:
        if not has_room(run.world.decoded(node).node.gpus, run.world.asked[uid]):
            return False
        (pod,) = [pod for pod in run.world.pods.values() if pod["metadata"]["uid"] == uid]
        return run.volcano is None or fits(pod, run.world.gpu_nodes[node], run.around)

    everything_has_come_to_rest(run.world, run.agents, told=run.told(), has_room=has_room_there)
    for name, machine in run.world.machines.items():
        if lock := machine["metadata"].get("annotations", {}).get(LOCK_ANNOTATION):
            raise BrokenError(f"L2 {name} is still locked: {lock}")


async def _elected(run: Run) -> Replica:
    """Let everybody stand for the lease until it has surely passed on; return who holds it (L5)."""
    for _ in range(2):
        run.world.loop.now += 100
        for one in run.replicas:
            await run.finish([under_way(one, one.election.round())])
            if one.election.is_leader:
                return one
    raise BrokenError("L5 nobody takes the lease of who is dead")


async def _parked(run: Run) -> None:
    """Let every pod that waits hear what the cluster is like, before anything is put right."""
    run.catch_up()
    await run.settled()
    leader = await _elected(run)
    await run.finish([under_way(leader, run.wake(leader))])
    await _asked(run)  # watches that were broken are back by now


async def _asked(run: Run) -> None:
    """Let every pod that waits be asked for once more, of one that knows all there is."""
    run.catch_up()
    await run.settled()
    for pod in run.schedulers.waiting():
        run.schedulers.ask(run.replicas[0], pod)


async def _swept(run: Run, *, agents: Sequence[Agent], leader_dies: bool = False) -> None:
    """Let whoever leads sweep, in peace, until nothing changes any more (L2).

    Of the *agents*, each says what is so once a second. Whatever was put off is due again by the
    time that the next one leads; who dies has changed something, and has not seen it yet.
    """
    for _ in range(ROUNDS):
        before = run.world.changes
        leader = await _elected(run)
        quiet = 0
        while quiet < QUIET:
            last = run.world.changes
            await _second(run, leader, agents)
            quiet = quiet + 1 if run.world.changes == last else 0
            if leader_dies and not quiet:
                leader_dies = False
                run.replace(run.replicas.index(leader))
                leader = await _elected(run)
        if run.world.changes == before:
            return
    raise BrokenError(f"L2 there is still something to do after {ROUNDS} rounds")


async def _second(run: Run, leader: Replica, agents: Sequence[Agent]) -> None:
    """Let a second pass, as between two sweeps, and each duty sweep once."""
    run.world.loop.now += SWEEP_SECONDS
    for agent in agents:
        agent.allocate()
        agent.end(lingering=0.0)
        run.terminate(agent)
        agent.settle()
    works = (leader.election.round(), *map(leader.sweep, leader.duties), run.wake(leader))
    await run.finish([under_way(leader, work) for work in works])


def _who_is_not_accounted_for_is_shut(run: Run) -> None:
    """Check that nothing can be promised where no agent has spoken since the node began anew."""
    for agent in run.agents:
        status = {} if agent.ledger is None else agent.ledger["status"]
        life = (status.get("bootID"), status.get("nodeUID"))
        spoken = agent.present and life == (f"boot-{agent.boots}", f"node-{agent.joined}")
        if status.get("inventory") and not spoken:
            raise BrokenError(f"L2 {agent.name} is open, and nobody has accounted for it")


def _nobody_waits_in_vain(run: Run) -> None:
    """Check that whoever found no room heard when there was some (L4)."""
    stuck = run.schedulers.stuck(run.replicas[0])
    if stuck:
        raise BrokenError(f"L4 {stuck} wait, and nobody wakes their scheduler")


async def _bind_the_rest(run: Run) -> None:
    """Let every pod that waits try each node once, in peace, though watches may lag (L1)."""
    schedulers = run.schedulers
    for name in [pod["metadata"]["name"] for pod in schedulers.waiting()]:
        for agent in run.agents:
            pod = run.world.pods[name]
            if pod["spec"].get("nodeName"):
                break
            attempt = asyncio.ensure_future(schedulers.attempt(binding_of(pod, agent.name)))
            await run.finish([attempt], lagging=run.world.rng.random() < 0.5)
            _had_no_room(run, name, agent)
            agent.allocate()
    if schedulers.unanswered_in_peace:
        raise BrokenError(f"L1 {schedulers.unanswered_in_peace} binds were not answered")
    _at_rest(run)


def _had_no_room(run: Run, name: str, agent: Agent) -> None:
    """Check that a pod which is still without a node does not fit on the one it just tried."""
    pod, stored = run.world.pods[name], agent.ledger
    if not pod["spec"].get("nodeName") and stored and fits(pod, stored, run.around):
        raise BrokenError(f"L1 {name} was not bound to {agent.name}, where it fits")


async def _restarted(run: Run) -> None:
    """Start every component anew: what was promised before is promised afterwards (L3)."""
    for agent in run.agents:
        agent.start()
    before = _promised(run.world)
    for place in range(len(run.replicas)):
        run.replace(place)
    for agent in run.agents:
        agent.accounted = False
        agent.report()
    await _swept(run, agents=run.agents)
    after = _promised(run.world)
    if after != before:
        raise BrokenError(f"L3 promised were {before}, and after a restart {after}")
    _at_rest(run)


def _promised(world: World) -> Mapping[tuple[str, str], object]:
    """Return what each pod is promised, by node and uid."""
    return {
        (name, entry["pod"]["uid"]): entry["containers"]
        for name, stored in world.gpu_nodes.items()
        for entry in stored["spec"]["entries"]
    }


async def _contend(run: Run) -> None:
    """Let those who matter more want in where everything is taken, and watches lag again (S15)."""
    for name in sorted(run.world.pods.keys() - WEAK):
        run.remade(name)
    for _ in range(CONTENTION):
        run.contend()
        await run.settled()
