"""One schedule: replicas, nodes, pods, whoever wants to bind them, and all that goes wrong."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from allocator.core.podfacts import seen
from kube.errors import UnreachableError
from tests.gpunodes import Json, gpu_node
from tests.model.agents import Agent
from tests.model.invariants import (
    BrokenError,
    check,
    everything_has_come_to_rest,
    new_grants_are_sound,
    nothing_held_is_freed,
)
from tests.model.replicas import (
    NODES,
    WISHES,
    Fault,
    Replica,
    Task,
    Wiring,
    live,
    outcome,
    patch_of,
    replica,
    review,
)
from tests.model.world import World

STEPS = 100
ROUNDS = 6  # of putting things right, at most


@dataclass(slots=True)
class Run:
    """One schedule: two replicas, two nodes, four pods, and whoever wants to bind them."""

    world: World
    wiring: Wiring
    fault: Fault
    agents: list[Agent] = field(default_factory=list)
    replicas: list[Replica] = field(default_factory=list)
    attempts: "list[asyncio.Task[None]]" = field(default_factory=list)
    peace: bool = False  # nothing goes wrong any more
    unanswered_in_peace: int = 0
    landed: int = 0
    checked: int = 0

    def start(self) -> None:
        world = self.world
        world.committed = committed
        for one in NODES:
            world.gpu_nodes[one.name] = gpu_node(one)
            agent = Agent(world, one)
            self.agents.append(agent)
            agent.join()
            agent.report()
        for i in range(4):
            world.place(live(f"p{i}", "a", world.rng.randrange(len(WISHES))))
        self.replicas = [self.replica(), self.replica()]

    def replica(self) -> Replica:
        return replica(self.world, self.wiring, self.fault)

    async def attempt(self, name: str, target: str, *, knows_uid: bool, dry: bool) -> None:
        """Bind one pod as a scheduler does: the hook, up to three times, then the registry."""
        world, asked_at = self.world, self.world.loop.time()
        metadata: Json = {"name": name}
        if knows_uid:
            metadata["uid"] = world.pods[name]["metadata"]["uid"]
        binding = {"metadata": metadata, "target": {"kind": "Node", "name": target}}
        for _ in range(3):
            answer = await self.reviewed(binding, dry=dry)
            if answer is not None:
                break
            await asyncio.sleep(1)
        else:
            self.unanswered_in_peace += self.peace
            return
        if not answer["allowed"] or dry:
            return
        ops = patch_of(answer)
        if self.fault.careless:
            ops = [op for op in ops if op["path"] != "/metadata/uid"]
        if self.fault.tidy:
            self.release_elsewhere(world.pods[name]["metadata"]["uid"], target)
        await self.land(binding, ops, asked_at)

    async def land(self, binding: Json, ops: list[Json], asked_at: float) -> None:
        world = self.world
        with contextlib.suppress(UnreachableError):
            if await world.call(lambda: world.land(binding, ops, asked_at=asked_at)) == b"201":
                self.landed += 1

    def release_elsewhere(self, uid: str, target: str) -> None:
        for name, stored in list(self.world.gpu_nodes.items()):
            entries = stored["spec"]["entries"]
            kept = [entry for entry in entries if entry["pod"]["uid"] != uid]
            if name != target and kept != entries:
                self.world.gpu_nodes[name] = {**stored, "spec": {"entries": kept}}

    async def reviewed(self, binding: Json, *, dry: bool) -> Json | None:
        """Ask one replica, sometimes both; ``None`` where no answer came."""
        body = review(binding, dry=dry)
        asked = self.world.rng.sample(self.replicas, self.world.rng.choice([1, 1, 1, 2]))
        tasks = [self.under_way(one, one.binder.bind(body)) for one in asked]
        await asyncio.wait(tasks)
        found = [outcome(task) for task in tasks if not task.cancelled()]
        answers = [orjson.loads(body)["response"] for body in found if body is not None]
        return self.world.rng.choice(answers) if answers else None

    def under_way(self, one: Replica, work: Coroutine[Any, Any, Any]) -> Task:
        """Let a replica work on something, for as long as it lives."""
        task = asyncio.ensure_future(work)
        one.tasks.append(task)
        return task

    def bypass(self) -> None:
        """Bind a pod past the hook, as where its namespace has lost the label."""
        name = self.world.rng.choice(sorted(self.world.pods))
        pod = self.world.pods[name]
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": self.a_node()}}
        if not pod["spec"].get("nodeName"):
            self.world.bypassed.add(pod["metadata"]["uid"])
            self.world.land(binding, [], asked_at=self.world.loop.time())

    def crash(self) -> None:
        """Kill a replica between two awaits; another one takes its place."""
        place = self.world.rng.randrange(len(self.replicas))
        for task in self.replicas[place].tasks:
            task.cancel()
        self.replicas[place] = self.replica()

    def remake(self) -> None:
        """Delete a pod and make one of the same name, as a StatefulSet does."""
        name = self.world.rng.choice(sorted(self.world.pods))
        uid = self.world.pods[name]["metadata"]["uid"].partition("-")[2]
        self.world.place(live(name, uid + "x", self.world.rng.randrange(len(WISHES))))

    def a_node(self) -> str:
        return self.world.rng.choice([agent.name for agent in self.agents])

    async def go(self) -> None:
        """Take random steps, then let all that is under way come to its end."""
        for _ in range(STEPS):
            self.step()
            await self.settled()
        await self.finish(self.attempts)
        while self.world.tickets:  # also what the dead have sent
            self.proceed(faults=False)
            await self.settled()
        await self.come_to_rest()
        self.peace = True
        await self.bind_the_rest()

    async def come_to_rest(self) -> None:
        for _ in range(ROUNDS):
            before = self.world.changes
            await self.rest()
            if self.world.changes == before:
                break
        everything_has_come_to_rest(self.world, self.agents, self.told())

    async def bind_the_rest(self) -> None:
        """Let every pod that waits try each node once, in peace: each hears yes or no (L1)."""
        waiting = [name for name, pod in self.world.pods.items() if not pod["spec"].get("nodeName")]
        for name in waiting:
            for agent in self.agents:
                if self.world.pods[name]["spec"].get("nodeName"):
                    break
                work = self.attempt(name, agent.name, knows_uid=True, dry=False)
                await self.finish([asyncio.ensure_future(work)])
        if self.unanswered_in_peace:
            raise BrokenError(f"L1 {self.unanswered_in_peace} binds were not answered")
        everything_has_come_to_rest(self.world, self.agents, self.told())

    async def finish(self, tasks: Sequence[Task]) -> None:
        """Let calls go on without trouble until *tasks* are done."""
        while not all(task.done() for task in tasks):
            self.proceed(faults=False)
            await self.settled()
        for task in tasks:
            outcome(task)

    async def rest(self) -> None:
        """Let agents and one replica work on everything that is there, in peace."""
        one = self.replicas[0]
        self.world.loop.now += 100
        for agent in self.agents:
            if not agent.present:
                agent.join()
            agent.end(lingering=0.0)
            agent.settle()
        for agent in self.agents:
            await self.finish([self.under_way(one, one.upkeep.tend(agent.name))])
        for node, uid in self.promises():
            await self.finish([self.under_way(one, one.reconciler.settle(node, uid))])
        for pod in self.bound():
            work = one.late.commit(seen(orjson.dumps(pod)))
            await self.finish([self.under_way(one, work)])

    def promises(self) -> list[tuple[str, str]]:
        return [
            (name, entry["pod"]["uid"])
            for name, stored in sorted(self.world.gpu_nodes.items())
            for entry in stored["spec"]["entries"]
        ]

    def bound(self) -> list[Json]:
        pods = self.world.pods.values()
        return [pod for pod in pods if pod["spec"].get("nodeName") and "status" not in pod]

    def told(self) -> set[str]:
        """Return the uids of pods that heard why they have no entry."""
        events = [event for one in self.replicas for event in one.events]
        return {event.regarding.uid for event in events if event.reason == "VgpuUnpromised"}

    def step(self) -> None:
        """Let one thing happen."""
        rng, world = self.world.rng, self.world
        agent, one = rng.choice(self.agents), rng.choice(self.replicas)
        rare: tuple[Callable[[], None], ...] = (
            self.crash,
            self.remake,
            self.bypass,
            lambda: self.fall_ill(agent),
            lambda: world.lose(agent.name) if agent.name in world.gpu_nodes else None,
            agent.reboot,
            agent.complete,
            agent.leave if agent.present else agent.join,
        )
        match rng.random():
            case dice if dice < 0.16 and len(self.attempts) < 12:
                self.bind_something()
            case dice if dice < 0.24:
                rng.choices(rare, (3, 7, 3, 2, 4, 1, 1, 4))[0]()
            case dice if dice < 0.28:
                world.loop.now += rng.choice([0.05, 0.3, 1.0, 2.0, 100.0])
            case dice if dice < 0.39:
                rng.choice((agent.start, agent.start, agent.start, agent.end, agent.report))()
            case dice if dice < 0.47:
                self.keep_house(one)
            case _:
                self.proceed(faults=True)

    def fall_ill(self, agent: Agent) -> None:
        self.world.unsound = True
        agent.fall_ill(self.world.rng.randrange(3))

    def keep_house(self, one: Replica) -> None:
        """Let a replica look closer at something, whether there is a reason or not."""
        rng = self.world.rng
        promises, bound = self.promises(), self.bound()
        works: list[Callable[[], Coroutine[Any, Any, Any]]]
        works = [lambda: one.upkeep.tend(self.a_node())]
        if promises:
            works += [lambda: one.reconciler.settle(*rng.choice(promises))] * 2
        if bound:
            pod = seen(orjson.dumps(rng.choice(bound)))
            works.append(lambda: one.late.commit(pod))
        self.under_way(one, rng.choice(works)())

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
        if self.world.changes != self.checked:
            self.checked = self.world.changes
            check(self.world, self.agents)

    def bind_something(self) -> None:
        rng = self.world.rng
        work = self.attempt(
            rng.choice(sorted(self.world.pods)),
            self.a_node(),
            knows_uid=rng.random() < 0.5,
            dry=rng.random() < 0.05,
        )
        self.attempts.append(asyncio.ensure_future(work))


def committed(old: Json, new: Json) -> None:
    """Check what can only be seen in the moment of a write."""
    new_grants_are_sound(old, new)
    nothing_held_is_freed(old, new)
