"""Groups under random schedules: wherever replicas bind its pods, a group is in one domain.

Two replicas see what there is late and each in its own time, calls are lost, replicas crash, and
schedulers bind any pod to any node. A failure names its seed, as in ``test_binding``.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import pytest

from allocator.catalog.keys import GROUP_SIZE_KEY
from allocator.config.settings import DEFAULTS
from allocator.groups.node_groups_client import NodeGroups
from allocator.groups.tree import Tree, decode_tree
from allocator.model.allocation import Entry
from allocator.supernode.groups import GroupService
from tests.builders.gpunodes import NOON, Json, gpu_node
from tests.builders.model import T4, nodes_of, pod, snapshot
from tests.builders.model import ask as asking
from tests.builders.pods import CORES, NUMBER, admitted, container, received
from tests.builders.pods import pod as manifest
from tests.builders.supernodes import node_group
from tests.model.agents import Agent
from tests.model.cluster import World
from tests.model.commits import committed
from tests.model.history import entries
from tests.model.invariants import BrokenError, check
from tests.model.pending_calls import StillLoop
from tests.model.replicas import Fault, Replica, Task, outcome, replica
from tests.model.schedulers import Schedulers, binding_of
from tests.model.seeds import FIRST, SCHEDULES
from webhook.admission.context import AdmissionContext
from webhook.binding.decide import BindRequest, Denied
from webhook.binding.group_client import GroupGuard

SEEDS: Final = range(FIRST, FIRST + SCHEDULES // 5)
STEPS: Final = 120
GPUS: Final = 2  # of each node and of each pod
DOMAINS: Final = (frozenset({"n1", "n2"}), frozenset({"n3", "n4"}))
NODES: Final = tuple(nodes_of(GPUS, T4, name=name) for name in ("n1", "n2", "n3", "n4"))
AROUND: Final = AdmissionContext(settings=DEFAULTS, snapshot=snapshot(*NODES))
TREE: Final = decode_tree(
    json.dumps(node_group({"sb1": {"df1": ("n1", "n2")}, "sb2": {"df2": ("n3", "n4")}}))
).tree
WISH: Final = pod(asking(cores=100, count=GPUS))
TEMPLATE: Final = orjson.dumps(
    admitted(received(manifest(container(limits={NUMBER: GPUS, CORES: 100}))), AROUND)
)
MEMBERS: Final = {job: tuple(f"{job}-{number}" for number in range(2)) for job in ("a", "b")}
ALONE: Final = "c-0"  # a pod of no group


class KnownTree(NodeGroups):
    """The tree of the model, which never changes."""

    def __init__(self) -> None:
        """Have an address, so that groups count."""
        super().__init__(lambda: "http://topo-master/node_group")

    @property
    def tree(self) -> Tree:
        return TREE

    @property
    def why_unknown(self) -> str:
        return ""


Guard = type[GroupGuard]


def written(world: World, name: str) -> Json:
    """Return a new pod; those of a group name its size."""
    found: Json = orjson.loads(TEMPLATE)
    metadata = found["metadata"]
    metadata |= {"name": name, "uid": name, "creationTimestamp": NOON.isoformat()}
    if name != ALONE:
        owner = {"kind": "Job", "name": name[0], "uid": f"job-{name[0]}", "controller": True}
        metadata["ownerReferences"] = [owner]
        metadata.setdefault("annotations", {})[GROUP_SIZE_KEY] = str(2 * GPUS)
    world.asked[name] = WISH
    return found


@dataclass(slots=True)
class GroupRun:
    """One schedule: two replicas, four nodes in two domains, two groups of two pods, and one pod.

    Every pod has a whole node, so each domain has room for one group.
    """

    world: World
    guard: Guard
    agents: list[Agent] = field(default_factory=list)
    replicas: list[Replica] = field(default_factory=list)
    schedulers: Schedulers = field(init=False)

    def __post_init__(self) -> None:
        """Set everything up as it is on a good day."""
        world, fault = self.world, Fault()
        world.committed = committed
        for one in NODES:
            world.gpu_nodes[one.name] = gpu_node(one)
            self.agents.append(Agent(world, one))
            self.agents[-1].join()
            self.agents[-1].report()
        for name in (*MEMBERS["a"], *MEMBERS["b"], ALONE):
            world.place(written(world, name))
        self.schedulers = Schedulers(world=world, fault=fault, replicas=self.replicas)
        self.replicas += [self.replica(), self.replica()]

    def replica(self) -> Replica:
        """Start a process whose binds are judged by groups too."""
        made = replica(self.world, lambda world: world, Fault(), around=AROUND)
        sight = made.sight
        made.binder.groups = self.guard(
            calls=self.world,
            groups=GroupService(
                inventory=sight.inventory,
                node_groups=KnownTree(),
                pods=sight.groups,
                clock=sight.clock,
            ),
            assumed_pods=made.binder.assumed_pods,
            ledger_of=sight.inventory.ledger,
            clock=sight.clock,
        )
        return made

    def step(self) -> None:
        """Let one thing happen."""
        rng, world = self.world.rng, self.world
        match rng.random():
            case dice if dice < 0.2 and len(self.schedulers.attempts) < 12:
                self.bind(rng.choice(sorted(world.pods)), rng.choice(NODES).name)
            case dice if dice < 0.23:
                world.loop.now += rng.choice([0.05, 0.3, 1.0, 2.0])
            case dice if dice < 0.25:
                place = rng.randrange(len(self.replicas))
                self.replicas[place].die()
                self.replicas[place] = self.replica()
            case dice if dice < 0.4:
                rng.choice(rng.choice(self.replicas).sight.feeds).something()
            case _:
                self.proceed(faults=True)

    def bind(self, name: str, node: str) -> None:
        """Begin to bind a pod, as a scheduler that does not ask."""
        binding = binding_of(self.world.pods[name], node)
        self.schedulers.begin(self.schedulers.attempt(binding))

    def proceed(self, *, faults: bool) -> None:
        """Carry a call one step on, or let time pass where there is none."""
        if self.world.tickets:
            self.world.step(self.world.rng.choice(self.world.tickets), faults=faults)
        else:
            self.world.loop.now += 0.1

    async def settled(self) -> None:
        """Let every task run until it waits for what is not there, and check what they did."""
        await self.world.loop.settled()
        check(self.world, self.agents)
        for members in MEMBERS.values():
            nodes = {self.world.pods[name]["spec"].get("nodeName") for name in members} - {None}
            if nodes and not any(nodes <= domain for domain in DOMAINS):
                raise BrokenError(f"S16 {members} are on {sorted(nodes)}")

    async def finish(self) -> None:
        """Let all that is under way come to its end, and every watch learn of it."""
        while not all(task.done() for task in self.schedulers.attempts):
            self.proceed(faults=False)
            await self.settled()
        for task in self.schedulers.attempts:
            outcome(task)
        for one in self.replicas:
            one.sight.catch_up()
        await self.settled()

    async def go(self) -> None:
        """Take random steps, then try every pod that is left on every node."""
        await self.settled()
        for _ in range(STEPS):
            self.step()
            await self.settled()
        await self.finish()
        for name in sorted(self.world.pods):
            for node in NODES:
                if not self.world.pods[name]["spec"].get("nodeName"):
                    self.bind(name, node.name)
                    await self.finish()

    def tally(self) -> Counter[str]:
        """Return what the run came to see."""
        pods = self.world.pods
        whole = [all(pods[name]["spec"].get("nodeName") for name in m) for m in MEMBERS.values()]
        promised = {uid for one in self.world.gpu_nodes.values() for uid in entries(one)}
        return Counter(
            {
                "groups": sum(whole),
                "both groups": all(whole),
                "one pod alone": bool(pods[ALONE]["spec"].get("nodeName")),
                "bound": sum(bool(one["spec"].get("nodeName")) for one in pods.values()),
                "promised": len(promised),
            }
        )

    async def end(self) -> None:
        """Leave no task behind."""
        tasks: list[Task] = [*self.schedulers.attempts]
        for one in self.replicas:
            one.die()
            tasks += [*one.tasks, *one.sight.tasks]
        for task in self.schedulers.attempts:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def scheduled(seeds: Sequence[int], guard: Guard = GroupGuard) -> Counter[str]:
    """Run one schedule for each seed and return how often they came to see what."""
    reached = Counter[str]()

    async def everything() -> None:
        loop: Any = asyncio.get_running_loop()
        for seed in seeds:
            rng = random.Random(seed)  # noqa: S311 -- a schedule that can be repeated
            run = GroupRun(World(rng=rng, loop=loop), guard)
            try:
                await run.go()
            except Exception as error:
                raise BrokenError(f"seed {seed}: {error}") from error
            finally:
                await run.end()
            reached.update(run.tally())

    with asyncio.Runner(loop_factory=StillLoop) as runner:
        runner.run(everything())
    return reached


PATIENT = pytest.mark.timeout(max(600, SCHEDULES))


@PATIENT
def test_a_group_is_in_one_domain() -> None:
    """Whatever replicas know of each other, and whoever crashes."""
    reached = scheduled(SEEDS)

    assert reached["groups"] > len(SEEDS) // 2
    assert reached["both groups"]
    assert reached["one pod alone"]


class Careless(GroupGuard):
    """Judges no bind by groups."""

    def denial(self, bind: BindRequest) -> Denied | None:
        del bind
        return None


class Hasty(GroupGuard):
    """Does not look a second time once it has opened a group."""

    async def confirm(
        self, bind: BindRequest, written: Entry, *, earlier: bool = False
    ) -> Denied | None:
        del bind, written, earlier
        return None


@PATIENT
@pytest.mark.parametrize("guard", [Careless, Hasty])
def test_a_group_that_is_split_is_noticed(guard: Guard) -> None:
    """The same schedules catch a guard that gets one thing wrong."""
    with pytest.raises(BrokenError, match=r"seed \d+: S16 "):
        scheduled(SEEDS, guard)
