"""The replicas of the model: production code, each with caches and a clock of its own."""

import asyncio
import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson

from allocator.core.ledger import Ledger
from allocator.core.settings import DEFAULTS
from allocator.core.upkeep import Machine
from allocator.model.request import Mode
from allocator.shell.objects import Registered
from allocator.shell.reconciler import Pods, Reconciler
from allocator.shell.upkeep import Upkeep
from kube.clock import Clock
from kube.errors import KubeError
from kube.events import Event
from tests.builders import A30, T4, gpu, node, snapshot
from tests.gpunodes import NOON, Json
from tests.model.caches import Cache
from tests.model.world import Api, World
from tests.pods import MEMORY, MODE, NUMBER, admitted, container, pod, received
from webhook.core.mutate import Surroundings
from webhook.shell.binding import Binder
from webhook.shell.desks import LateError
from webhook.shell.late import Caches, LateCommits

NODES = (node("n0", gpu(A30, mode=Mode.MIG)), node("n1", gpu(T4), gpu(T4, index=1)))
AROUND = Surroundings(settings=DEFAULTS, snapshot=snapshot(*NODES))
WISHES: tuple[Mapping[str, str], ...] = ({}, {}, {MODE: "mig"}, {MODE: "hami-core"})
SKEW = 5.0  # seconds by which a replica's clock may be wrong
Task = asyncio.Task[Any]
Wiring = Callable[[World], Api]


class Known:
    """What upkeep would find in caches; in the model it is told where to look."""

    def machines(self) -> Mapping[str, Machine] | None:
        return None

    def ledgers(self) -> Mapping[str, Ledger] | None:
        return None

    def machine(self, found: Registered) -> Machine:
        return found.machine()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What an implementation gets wrong: nothing, unless it is said."""

    careless: bool = False  # drop the uid that the hook writes into a Binding
    reconciler: Wiring | None = None  # a line of its own for who takes promises back
    hasty: bool = False  # free what a pod had before its agent lets go
    tidy: bool = False  # at a bind, release what the pod was promised on another node


@dataclass(slots=True)
class Replica:
    """One process: what it does, what it is working on, and what it told people."""

    binder: Binder
    reconciler: Reconciler
    upkeep: Upkeep
    late: LateCommits
    tasks: list[Task] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


def replica(world: World, wiring: Wiring, fault: Fault) -> Replica:
    """Start a process that knows nothing yet."""
    skew = world.rng.uniform(-SKEW, SKEW)
    clock = Clock(
        monotonic=world.loop.time,
        wall=lambda: NOON + world.elapsed(skew),
        random=world.rng.random,
    )
    cache, calls = Cache(world), wiring(world)
    binder = Binder(
        calls=calls,
        around=lambda _: AROUND,
        reserved=lambda _: frozenset(),
        pods=cache.pod,
        ledgers=cache.ledger,
        clock=clock,
    )
    reconciler = Reconciler(
        (fault.reconciler or wiring)(world),
        pods=Pods(),
        ledgers=dict,
        agent=lambda: not fault.hasty,
        clock=clock,
    )
    caches = Caches(pods=Pods(), ledgers=dict, around=lambda _: AROUND)
    late = LateCommits(calls=calls, binder=binder, caches=caches, clock=clock)
    upkeep = Upkeep(calls, Known(), upstream=lambda: False, clock=clock)
    found = Replica(binder, reconciler, upkeep, late)
    late.tell = found.events.append
    return found


def outcome(task: Task) -> Any:  # noqa: ANN401 -- whatever a task returns
    """Return what a task came to, ``None`` where it was too late or the API server refused it."""
    error = task.exception()
    if error is None:
        return task.result()
    if not isinstance(error, LateError | KubeError):
        raise error
    return None


@lru_cache
def template(wish: int) -> bytes:
    """Return a pod as admission leaves it: 6000 MiB, two on either kind of GPU."""
    asking = container(limits={NUMBER: 1, MEMORY: 6000})
    return orjson.dumps(admitted(received(pod(asking, annotations=WISHES[wish])), AROUND))


def live(name: str, generation: str, wish: int) -> Json:
    found: Json = orjson.loads(template(wish))
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
    return orjson.dumps({**envelope, "request": request})


def patch_of(answer: Json) -> list[Json]:
    """Return the operations that a review was answered with."""
    found: list[Json] = orjson.loads(base64.b64decode(answer.get("patch", "W10=")))
    return found
