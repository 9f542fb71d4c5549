"""One schedule: replicas, pods, whoever wants to bind them, and all that goes wrong meanwhile."""

import asyncio
import base64
import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from allocator.core.gpunodewire import status_of
from allocator.core.settings import DEFAULTS
from allocator.model.gpu import Node
from allocator.model.request import Mode
from allocator.shell.reconciler import Reconciler
from kube.clock import Clock
from kube.errors import UnreachableError
from tests.builders import A30, T4, gpu, node, snapshot
from tests.gpunodes import Json, gpu_node
from tests.model.invariants import (
    check,
    new_grants_are_sound,
    nothing_held_is_freed,
    nothing_is_left_behind,
)
from tests.model.world import Api, World
from tests.pods import MEMORY, MODE, NUMBER, admitted, container, pod, received
from webhook.core.mutate import Surroundings
from webhook.shell.binding import Binder, LateError

STEPS = 150
NODES = (node("n0", gpu(A30, mode=Mode.MIG)), node("n1", gpu(T4), gpu(T4, index=1)))
AROUND = Surroundings(settings=DEFAULTS, snapshot=snapshot(*NODES))
WISHES: tuple[Mapping[str, str], ...] = ({}, {}, {MODE: "mig"}, {MODE: "hami-core"})
Task = asyncio.Task[Any]
Wiring = Callable[[World], Api]


@dataclass(slots=True)
class Replica:
    """One process: its binder and reconciler, and what they are working on."""

    binder: Binder
    reconciler: Reconciler
    tasks: list[Task] = field(default_factory=list)


@dataclass(slots=True)
class Run:
    """One schedule: two replicas, four pods, and whoever wants to bind them."""

    world: World
    wiring: Wiring
    careless: bool = False  # drop the uid that the hook writes into a Binding
    agent: bool = True  # wait for the agent before what a pod had is free
    replicas: list[Replica] = field(default_factory=list)
    attempts: "list[asyncio.Task[None]]" = field(default_factory=list)
    landed: int = 0
    checked: int = 0

    def start(self) -> None:
        world = self.world
        world.committed = committed
        for one in NODES:
            world.gpu_nodes[one.name] = gpu_node(one)
        for i in range(4):
            world.place(live(f"p{i}", "a", world.rng.randrange(len(WISHES))))
        self.replicas = [self.replica(), self.replica()]

    def replica(self) -> Replica:
        world = self.world
        clock = Clock(monotonic=world.loop.time, wall=world.wall, random=world.rng.random)
        binder = Binder(
            calls=self.wiring(world),
            around=lambda _: AROUND,
            reserved=lambda _: frozenset(),
            clock=clock,
        )
        reconciler = Reconciler(
            self.wiring(world),
            promises=lambda: (),
            agent=lambda: self.agent,
            clock=clock,
        )
        return Replica(binder, reconciler)

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
            return
        if not answer["allowed"] or dry:
            return
        ops = json.loads(base64.b64decode(answer["patch"]))
        if self.careless:
            ops = [op for op in ops if op["path"] != "/metadata/uid"]
        with contextlib.suppress(UnreachableError):
            if await world.call(lambda: world.land(binding, ops, asked_at=asked_at)) == b"201":
                self.landed += 1

    async def reviewed(self, binding: Json, *, dry: bool) -> Json | None:
        """Ask one replica, sometimes both; ``None`` where no answer came."""
        body = review(binding, dry=dry)
        asked = self.world.rng.sample(self.replicas, self.world.rng.choice([1, 1, 1, 2]))
        tasks = []
        for replica in asked:
            task = asyncio.ensure_future(replica.binder.bind(body))
            replica.tasks.append(task)
            tasks.append(task)
        await asyncio.wait(tasks)
        answers = [
            json.loads(task.result())["response"]
            for task in tasks
            if not task.cancelled() and not isinstance(late(task), LateError)
        ]
        return self.world.rng.choice(answers) if answers else None

    def crash(self) -> None:
        """Kill a replica between two awaits; another one takes its place."""
        place = self.world.rng.randrange(len(self.replicas))
        for task in self.replicas[place].tasks:
            task.cancel()
        self.replicas[place] = self.replica()

    def flip(self) -> None:
        """Let a GPU fall ill or recover; the agent reports it with a new digest."""
        name = self.world.rng.choice(["n0", "n1"])
        reported: Node = next(one for one in NODES if one.name == name)
        ill = self.world.rng.randrange(3)
        gpus = tuple(replace(g, healthy=g.index != ill) for g in reported.gpus)
        self.world.unsound = True
        self.world.report(name, status_of(replace(reported, gpus=gpus)))

    def remake(self) -> None:
        """Delete a pod and make one of the same name, as a StatefulSet does."""
        name = self.world.rng.choice(sorted(self.world.pods))
        uid = self.world.pods[name]["metadata"]["uid"].partition("-")[2]
        self.world.place(live(name, uid + "x", self.world.rng.randrange(len(WISHES))))

    async def go(self) -> None:
        """Take random steps, then let all that is under way come to its end."""
        for _ in range(STEPS):
            self.step()
            await self.settled()
        await self.finish(self.attempts)
        await self.reclaim_all()
        nothing_is_left_behind(self.world)

    async def finish(self, tasks: Sequence[Task]) -> None:
        """Let calls go on without trouble until *tasks* are done."""
        while not all(task.done() for task in tasks):
            self.proceed(faults=False)
            await self.settled()
        for task in tasks:
            task.result()

    async def reclaim_all(self) -> None:
        """Let the agents and one reconciler work on every promise that is there, in peace."""
        while self.world.tickets:  # also what the dead have sent
            self.proceed(faults=False)
            await self.settled()
        self.world.loop.now += 100
        for name, stored in sorted(self.world.gpu_nodes.items()):
            for entry in stored["spec"]["entries"]:
                self.world.observe(name, lingering=0)
                settle = self.replicas[0].reconciler.settle(name, entry["pod"]["uid"])
                await self.finish([asyncio.ensure_future(settle)])

    def step(self) -> None:
        """Let one thing happen."""
        rng, world = self.world.rng, self.world
        match rng.random():
            case dice if dice < 0.12 and len(self.attempts) < 9:
                self.bind_something()
            case dice if dice < 0.14:
                self.crash()
            case dice if dice < 0.15:
                self.flip()
            case dice if dice < 0.17:
                self.remake()
            case dice if dice < 0.24:
                world.loop.now += rng.choice([0.05, 0.3, 1.0, 2.0, 100.0])
            case dice if dice < 0.27:
                world.observe(rng.choice(sorted(world.gpu_nodes)))
            case dice if dice < 0.32:
                self.reclaim()
            case _:
                self.proceed(faults=True)

    def proceed(self, *, faults: bool) -> None:
        """Carry a call one step on, or let time pass where there is none."""
        world = self.world
        if world.tickets:
            world.step(world.rng.choice(world.tickets), faults=faults)
        else:
            world.loop.now += 0.1

    async def settled(self) -> None:
        """Let every task run until it waits for what is not there, and check what they did."""
        for _ in range(6):
            await asyncio.sleep(0)
        if self.world.changes != self.checked:
            self.checked = self.world.changes
            check(self.world)

    def reclaim(self) -> None:
        """Let some replica look closer at some promise, whether there is a reason or not."""
        name = self.world.rng.choice(sorted(self.world.gpu_nodes))
        entries = self.world.gpu_nodes[name]["spec"]["entries"]
        if entries:
            replica = self.world.rng.choice(self.replicas)
            uid = self.world.rng.choice(entries)["pod"]["uid"]
            replica.tasks.append(asyncio.ensure_future(replica.reconciler.settle(name, uid)))

    def bind_something(self) -> None:
        rng = self.world.rng
        work = self.attempt(
            rng.choice(sorted(self.world.pods)),
            rng.choice(["n0", "n1"]),
            knows_uid=rng.random() < 0.5,
            dry=rng.random() < 0.05,
        )
        self.attempts.append(asyncio.ensure_future(work))


def committed(old: Json, new: Json) -> None:
    """Check what can only be seen in the moment of a write."""
    new_grants_are_sound(old, new)
    nothing_held_is_freed(old, new)


def late(task: "asyncio.Task[bytes]") -> BaseException | None:
    """Return what a review failed with; only lateness is allowed."""
    error = task.exception()
    if error is not None and not isinstance(error, LateError):
        raise error
    return error


@lru_cache
def template(wish: int) -> str:
    """Return a pod as admission leaves it: 6000 MiB, two on either kind of GPU."""
    asking = container(limits={NUMBER: 1, MEMORY: 6000})
    found = admitted(received(pod(asking, annotations=WISHES[wish])), AROUND)
    return json.dumps(found)


def live(name: str, generation: str, wish: int) -> Json:
    found: Json = json.loads(template(wish))
    found["metadata"] |= {"name": name, "uid": f"{name}-{generation}"}
    return found


def review(binding: Json, *, dry: bool = False) -> bytes:
    request = {
        "uid": "r",
        "kind": {"group": "", "version": "v1", "kind": "Binding"},
        "name": binding["metadata"]["name"],
        "namespace": "team-a",
        "operation": "CREATE",
        "dryRun": dry,
        "object": binding,
    }
    envelope = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return json.dumps({**envelope, "request": request}).encode()
