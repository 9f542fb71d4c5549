"""A schedule from its beginning to its rest: what must have come true once nothing goes wrong."""

import asyncio

import orjson

from allocator.core.podfacts import seen
from tests.model.invariants import BrokenError, everything_has_come_to_rest
from tests.model.replicas import Replica
from tests.model.run import Run
from tests.model.schedulers import under_way
from tests.model.wishes import WEAK

STEPS = 70
ROUNDS = 6  # of putting things right, at most
CONTENTION = 40  # steps


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
    await _contend(run)


async def _come_to_rest(run: Run) -> None:
    await _elected(run)
    await _parked(run)
    for number in range(ROUNDS):
        before = run.world.changes
        await _rest(run, leader_dies=number == 0 and run.world.rng.random() < 0.5)
        if run.world.changes == before:
            break
    everything_has_come_to_rest(run.world, run.agents, run.told())
    await run.compare(run.replicas[0])
    stuck = run.schedulers.stuck(run.replicas[0])
    if stuck:
        raise BrokenError(f"L4 {stuck} wait, and nobody wakes their scheduler")


async def _elected(run: Run) -> Replica:
    """Let everybody stand for the lease until it has surely passed on; return who holds it (L5)."""
    for _ in range(2):
        run.world.loop.now += 100
        for one in run.replicas:
            await run.finish([under_way(one, one.election.round())])
            if one.election.leading:
                return one
    raise BrokenError("L5 nobody takes the lease of who is dead")


async def _parked(run: Run) -> None:
    """Let every pod that waits hear what the cluster is like, before anything is put right."""
    run.catch_up()
    await run.settled()
    leader = await _elected(run)
    await run.finish([under_way(leader, run.wake(leader))])
    for pod in run.schedulers.waiting():
        run.schedulers.ask(run.replicas[0], pod)


async def _rest(run: Run, *, leader_dies: bool) -> None:
    """Let agents and one replica work on everything that is there, in peace."""
    leader = await _elected(run)
    for agent in run.agents:
        if not agent.present:
            agent.join()
        agent.end(lingering=0.0)
        run.terminate(agent)
        agent.settle()
    for agent in run.agents:
        await run.finish([under_way(leader, leader.upkeep.tend(agent.name))])
    for node, uid in run.promises():
        await run.finish([under_way(leader, leader.reconciler.settle(node, uid))])
    for pod in run.bound():
        work = leader.late.commit(seen(orjson.dumps(pod)))
        await run.finish([under_way(leader, work)])
    if leader_dies:
        run.replace(run.replicas.index(leader))
        leader = await _elected(run)
    await run.finish([under_way(leader, run.wake(leader))])


async def _bind_the_rest(run: Run) -> None:
    """Let every pod that waits try each node once, in peace: each hears yes or no (L1)."""
    schedulers = run.schedulers
    for name in [pod["metadata"]["name"] for pod in schedulers.waiting()]:
        for agent in run.agents:
            if run.world.pods[name]["spec"].get("nodeName"):
                break
            work = schedulers.attempt(name, agent.name, knows_uid=True, dry=False)
            await run.finish([asyncio.ensure_future(work)])
    if schedulers.unanswered_in_peace:
        raise BrokenError(f"L1 {schedulers.unanswered_in_peace} binds were not answered")
    everything_has_come_to_rest(run.world, run.agents, run.told())


async def _contend(run: Run) -> None:
    """Let those who matter more want in where everything is taken, and watches lag again (S15)."""
    for name in sorted(run.world.pods.keys() - WEAK):
        run.remade(name)
    for _ in range(CONTENTION):
        run.contend()
        await run.settled()
