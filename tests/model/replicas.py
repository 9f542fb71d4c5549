"""The replicas of the model: production code, each with caches and a clock of its own."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import orjson

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.cluster.inventory import Inventory
from allocator.cluster.pods import Pods
from allocator.controllers.drift import DriftController
from allocator.controllers.gpunode import GpuNodeController
from allocator.controllers.reclaim import ReclaimController
from allocator.controllers.requeue import RequeueController
from allocator.hami.node_lock_client import NodeLockClient
from allocator.hami.node_lock_controller import NodeLockController
from allocator.ledger.reclaim import MOST_PROMISES
from kube.client import ApiClient, Client
from kube.clock import Clock
from kube.errors import KubeError
from kube.events import Event
from kube.leases import Election, LeaseCandidate, Timing
from tests.builders.gpunodes import NOON, Json
from tests.model.agents import Agent
from tests.model.cluster import World
from tests.model.replica_caches import Reader, Sight, reader
from tests.model.watches import Feed, Seen, as_it_is
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_server import BindingHandler
from webhook.binding.commit_client import LateError
from webhook.binding.late_commit_controller import Caches, LateCommitController

SKEW = 5.0  # seconds by which a replica's clock may be wrong
Task = asyncio.Task[Any]
Wiring = Callable[[World], ApiClient]
TIMING = Timing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What an implementation gets wrong: nothing, unless it is said."""

    careless: bool = False  # drop the uid that the hook writes into a Binding
    binder: type[BindingHandler] = BindingHandler
    agent: type[Agent] = Agent
    reconciler: Wiring | None = None  # a line of its own for who takes promises back
    hasty: bool = False  # free what a pod had before its agent lets go
    tidy: bool = False  # at a bind, release what the pod was promised on another node
    ageless: bool = False  # take no promise back for its age
    seen: Seen = as_it_is  # how a watch's GPUNodes are read
    inventory: type[Inventory] = Inventory
    read: Reader = reader  # how the extender reads pods
    greedy: bool = False  # evict everybody who may be
    reckless: bool = False  # say of every victim that it breaks a budget
    termless: bool = False  # a new leader does not know that it is new
    timing: Timing = TIMING  # of leases
    pods: type[Pods] = Pods  # what the duties know of pods
    late: type[LateCommitController] = LateCommitController
    upkeep: type[GpuNodeController] = GpuNodeController
    most_entries: int = MOST_PROMISES  # of an unbound pod; 1 where two nodes must do for three


@dataclass(slots=True)
class Replica:
    """One process: what it does, what it is working on, and what it told people."""

    binder: BindingHandler
    reconciler: ReclaimController
    upkeep: GpuNodeController
    late: LateCommitController
    sight: Sight
    election: Election
    waker: RequeueController
    drift: DriftController
    locks: NodeLockController
    locking: bool  # there is a node whose plugin goes by locks
    tasks: list[Task] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    sweeping: set[str] = field(default_factory=set)

    @property
    def duties(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """Return the sweeps of all duties but the waker's, by name."""
        return {
            "reconciler": self.reconciler.sweep,
            "upkeep": self.upkeep.sweep,
            "late commits": self.late.sweep,
            "drift": self.drift.sweep,
        } | ({"locks": self.locks.sweep} if self.locking else {})

    async def sweep(self, duty: str) -> None:
        """Let one duty sweep, if its last sweep is over: production's wait for each other too."""
        if duty in self.sweeping:
            return
        self.sweeping.add(duty)
        try:
            await self.duties[duty]()
        finally:
            self.sweeping.discard(duty)

    def die(self) -> None:
        """End between two awaits, whatever was under way."""
        for task in self.tasks:
            task.cancel()
        self.sight.close()


def replica(world: World, wiring: Wiring, fault: Fault, *, around: AdmissionContext) -> Replica:
    """Start a process that knows nothing yet, put together as ``webhook.serve.leader`` does it."""
    skew = world.rng.uniform(-SKEW, SKEW)
    clock = Clock(
        monotonic=world.loop.time,
        wall=lambda: NOON + world.elapsed(skew),
        random=world.rng.random,
    )
    calls, sight = wiring(world), sight_of(world, fault, clock)
    inventory, events = sight.inventory, list[Event]()
    binder = fault.binder(
        calls=calls,
        context_of=lambda _: around,
        nodes_with_entry=inventory.nodes_with_entry,
        cached_pod=sight.pending.pod,
        cached_ledger=inventory.ledger,
        is_current=inventory.is_current,
        clock=clock,
        most_entries=fault.most_entries,
    )
    return Replica(
        binder=binder,
        reconciler=ReclaimController(
            (fault.reconciler or wiring)(world),
            pods=sight.pods,
            ledgers=inventory.ledgers,
            agents_serve=lambda: not fault.hasty,
            clock=replace(clock, wall=lambda: NOON) if fault.ageless else clock,
        ),
        upkeep=fault.upkeep(calls, inventory, upstream=lambda: False, clock=clock),
        late=fault.late(
            calls=calls,
            binder=binder,
            caches=Caches(pods=sight.pods, ledgers=inventory.ledgers, context_of=lambda _: around),
            record_event=events.append,
            clock=clock,
        ),
        sight=sight,
        election=election(world, calls, fault=fault, clock=clock),
        waker=RequeueController(
            calls,
            sight.pods,
            ledgers=inventory.ledgers,
            vocabularies=lambda: VOCABULARIES,
            clock=clock,
        ),
        drift=DriftController(
            inventory.ledgers,
            sight.pods,
            record=events.append,
            count=lambda _kind, _number: None,
            clock=clock,
        ),
        locks=NodeLockController(
            NodeLockClient(calls=calls, clock=clock), lambda: _locks(inventory), clock=clock
        ),
        locking=world.metax,
        events=events,
    )


def _locks(inventory: Inventory) -> Mapping[str, str] | None:
    """Return HAMi's locks by node; all nodes of the model are ours to unlock."""
    nodes = inventory.nodes()
    if nodes is None:
        return None
    return {name: node.hami.lock for name, node in nodes.items() if node.hami.lock}


def sight_of(world: World, fault: Fault, clock: Clock) -> Sight:
    """Return what a new process sees, which is nothing before it has listed."""
    feeds = (Feed(world, fault.seen), Feed(world))
    client = cast("Client", feeds[0])
    inventory = fault.inventory(client, namespace="vgpu", prepare_scores=True, clock=clock)
    return Sight(feeds=feeds, clock=clock, inventory=inventory, read=fault.read, pods=fault.pods())


def election(world: World, calls: ApiClient, *, fault: Fault, clock: Clock) -> Election:
    """Return a new candidate for the one lease."""
    world.candidates += 1
    candidate = LeaseCandidate(namespace="vgpu", name="ledger", identity=f"c{world.candidates}")
    return Election(calls, candidate, timing=fault.timing, clock=clock)


def outcome(task: Task) -> Any:  # noqa: ANN401 -- whatever a task returns
    """Return what a task came to, ``None`` where it was too late or the API server refused it."""
    error = task.exception()
    if error is None:
        return task.result()
    if not isinstance(error, LateError | KubeError):
        raise error
    return None


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
    return orjson.dumps({**envelope, "request": request})


def patch_of(answer: Json) -> list[Json]:
    """Return the operations that a review was answered with."""
    found: list[Json] = orjson.loads(base64.b64decode(answer.get("patch", "W10=")))
    return found
