"""One schedule: replicas, nodes, pods, whoever wants to bind them, and all that goes wrong."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from allocator.mig.positions import with_volcano_positions
from allocator.request.pod_summary import pod_summary
from tests.builders.gpunodes import Json, gpu_node
from tests.builders.model import snapshot
from tests.model.agents import Agent
from tests.model.cluster import World, over
from tests.model.commits import committed
from tests.model.device_lists import GEOMETRIES
from tests.model.invariants import check, one_leads
from tests.model.replica_caches import differ
from tests.model.replicas import (
    Fault,
    Replica,
    Task,
    Wiring,
    outcome,
    replica,
    sight_of,
)
from tests.model.requests import AROUND, EVERY_NODE, live, nodes_of
from tests.model.schedulers import Schedulers, under_way
from tests.model.tenants import forge
from tests.model.volcano import SCHEDULER, Volcano
from webhook.admission.context import AdmissionContext

PODS = 5
BESIDE_VOLCANO = AdmissionContext(
    settings=AROUND.settings,
    snapshot=snapshot(*map(with_volcano_positions, EVERY_NODE)),
    geometries=GEOMETRIES,
)


@dataclass(slots=True)
class Run:
    """One schedule: two replicas, two nodes or three, five pods, and whoever wants to bind them."""

    world: World
    wiring: Wiring
    fault: Fault
    agents: list[Agent] = field(default_factory=list)
    replicas: list[Replica] = field(default_factory=list)
    schedulers: Schedulers = field(init=False)
    volcano: Volcano | None = None  # it serves the nodes too, and keeps account of them
    checked: int = 0

    def __post_init__(self) -> None:
        """Set everything up as it is on a good day."""
        world = self.world
        world.committed = committed
        for one in nodes_of(world):
            world.gpu_nodes[one.name] = gpu_node(one)
            agent = self.fault.agent(world, one)
            self.agents.append(agent)
            agent.join()
            agent.report()
        for i in range(PODS):
            self.create(f"p{i}", "a")
        self.schedulers = Schedulers(world=world, fault=self.fault, replicas=self.replicas)
        if world.rng.random() < 0.5:
            self.volcano = Volcano(world, self.schedulers)
        self.replicas += [self.replica(), self.replica()]

    @property
    def around(self) -> AdmissionContext:
        return AROUND if self.volcano is None else BESIDE_VOLCANO

    def replica(self) -> Replica:
        return replica(self.world, self.wiring, self.fault, around=self.around)

    def create(self, name: str, generation: str) -> None:
        """Make a pod, for one of the schedulers that it may name."""
        pod = live(self.world, name, generation)
        pod["spec"]["schedulerName"] = self.world.rng.choice(("default-scheduler", SCHEDULER))
        self.world.place(pod)

    def crash(self) -> None:
        """Kill a replica between two awaits; another one takes its place."""
        self.replace(self.world.rng.randrange(len(self.replicas)))

    def replace(self, place: int) -> None:
        self.replicas[place].die()
        self.replicas[place] = self.replica()

    def remake(self) -> None:
        """Delete a pod and make one of the same name, as a StatefulSet does."""
        self.remade(self.world.rng.choice(sorted(self.world.pods)))

    def remade(self, name: str) -> None:
        uid = self.world.pods[name]["metadata"]["uid"].partition("-")[2]
        self.create(name, uid + "x")

    def terminate(self, agent: Agent) -> None:
        """Let a node end the containers of a pod that was deleted; then the pod is gone."""
        leaving = sorted(agent.leaving().items()) if agent.present else []
        for uid, name in leaving:
            agent.running.pop(uid, None)
            self.remade(name)

    def promises(self) -> list[tuple[str, str]]:
        return [
            (name, entry["pod"]["uid"])
            for name, stored in sorted(self.world.gpu_nodes.items())
            for entry in stored["spec"]["entries"]
        ]

    def bound(self) -> list[Json]:
        pods = self.world.pods.values()
        return [pod for pod in pods if pod["spec"].get("nodeName") and not over(pod)]

    def told(self) -> set[str]:
        """Return the uids of pods that heard why they have no entry."""
        events = [event for one in self.replicas for event in one.events]
        return {event.regarding.uid for event in events if event.reason == "VgpuUnpromised"}

    def step(self) -> None:
        """Let one thing happen."""
        rng, world = self.world.rng, self.world
        agent, one = rng.choice(self.agents), rng.choice(self.replicas)
        match rng.random():
            case dice if dice < 0.16 and len(self.schedulers.attempts) < 12:
                self.scheduling(one)
            case dice if dice < 0.24:
                self.mishap(agent)
            case dice if dice < 0.28:
                world.loop.now += rng.choice([0.05, 0.3, 1.0, 2.0, 100.0])
            case dice if dice < 0.39:
                ways = (agent.start, agent.start, agent.start, agent.end, agent.report)
                rng.choice((*ways, lambda: self.terminate(agent)))()
            case dice if dice < 0.48:
                self.keep_house(one)
            case dice if dice < 0.61:
                rng.choice(one.sight.feeds).something()
            case _:
                self.proceed(faults=True)

    def contend(self) -> None:
        """Let one thing happen around those who wait for room, or make it."""
        rng = self.world.rng
        agent, one = rng.choice(self.agents), rng.choice(self.replicas)
        match rng.random():
            case dice if dice < 0.3:
                self.schedulers.schedule(one)
            case dice if dice < 0.5:
                rng.choice(one.sight.feeds).something()
            case dice if dice < 0.6:
                rng.choice((agent.start, agent.report, lambda: self.terminate(agent)))()
            case dice if dice < 0.65:
                self.keep_house(one)
            case _:
                self.proceed(faults=False)

    def scheduling(self, one: Replica) -> None:
        """Let some scheduler take a turn; most of them never ask an extender."""
        if self.volcano is not None and self.world.rng.random() < 0.3:
            self.volcano.bind_gang()
        elif self.world.rng.random() < 0.5:
            self.schedulers.schedule(one)
        else:
            self.schedulers.bind_something()

    def mishap(self, agent: Agent) -> None:
        """Let something happen that nobody asked for."""
        world = self.world
        rare: tuple[Callable[[], None], ...] = (
            self.crash,
            self.remake,
            self.schedulers.bypass,
            lambda: agent.fall_ill(world.rng.randrange(3)),
            lambda: world.lose(agent.name) if agent.name in world.gpu_nodes else None,
            agent.reboot,
            agent.complete,
            agent.leave if agent.present else agent.join,
            lambda: forge(world),
            agent.crowd,
            agent.recut,
        )
        world.rng.choices(rare, (3, 7, 3, 2, 4, 1, 1, 4, 4, 2, 1))[0]()

    def keep_house(self, one: Replica) -> None:
        """Let a replica look where its caches say, or anywhere, with a reason or without."""
        rng = self.world.rng
        under_way(one, rng.choice(self.errands(one))())
        if rng.random() < 0.5:
            under_way(one, one.sweep(rng.choice(tuple(one.duties))))

    def errands(self, one: Replica) -> Sequence[Callable[[], Coroutine[Any, Any, Any]]]:
        """Return what a replica might do for some node, promise or pod, as far as there are any."""
        rng, promises, bound = self.world.rng, self.promises(), self.bound()
        works: list[Callable[[], Coroutine[Any, Any, Any]]]
        works = [
            lambda: one.upkeep.reconcile(rng.choice(nodes_of(self.world)).name),
            lambda: self.lead(one),
        ]
        if promises:
            works += [lambda: one.reconciler.reclaim(*rng.choice(promises))] * 2
        if bound:
            pod = pod_summary(orjson.dumps(rng.choice(bound)))
            works.append(lambda: one.late.commit(pod))
        return works

    async def lead(self, one: Replica) -> None:
        """Stand for the lease, and do what only its holder does."""
        await one.election.round()
        await self.wake(one)

    async def wake(self, one: Replica) -> None:
        if one.election.is_leader:
            await one.waker.sweep(None if self.fault.termless else one.election.term)

    def proceed(self, *, faults: bool) -> None:
        """Carry a call one step on, or let time pass where there is none."""
        world = self.world
        if world.tickets:
            world.step(world.rng.choice(world.tickets), faults=faults)
        else:
            world.loop.now += 0.1

    async def settled(self) -> None:
        """Let every task run until it waits for what is not there, and check what they did."""
        await self.world.loop.settled()
        one_leads([one.election.is_leader for one in self.replicas])
        if self.world.changes != self.checked:
            self.checked = self.world.changes
            check(self.world, self.agents)

    async def finish(self, tasks: Sequence[Task], *, lagging: bool = False) -> None:
        """Let calls go on without trouble until *tasks* are done, and watches unless *lagging*."""
        while not all(task.done() for task in tasks):
            if not lagging:
                self.catch_up()
            self.proceed(faults=False)
            await self.settled()
        for task in tasks:
            outcome(task)

    def catch_up(self) -> None:
        for one in self.replicas:
            one.sight.catch_up()

    async def compare(self, one: Replica) -> None:
        """Hold what a replica sees to what it would see if it began now (S14)."""
        anew = sight_of(self.world, self.fault, one.sight.clock)
        anew.begin_with(one.sight)
        try:
            await self.world.loop.settled()
            differ(one.sight, anew)
        finally:
            anew.close()
