"""Duties: what one replica at a time does for the ledger, beside answering reviews."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from allocator.core.settings import NodeAgent
from allocator.shell import drift, waking
from allocator.shell.gangs import Gangs
from allocator.shell.inventory import Inventory
from allocator.shell.reconciler import EVERY, Pods, Reconciler, sweeping
from allocator.shell.registrar import Registrar, world_of
from allocator.shell.tasks import Start
from allocator.shell.upkeep import Upkeep
from kube.client import Client
from kube.events import Recorder
from kube.leases import Election
from webhook.core.mutate import Surroundings
from webhook.shell.binding import Binder
from webhook.shell.journal import Journal
from webhook.shell.late import Caches, LateCommits
from webhook.shell.metrics import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What the duties work with; ``around`` returns the surroundings of a namespace."""

    client: Client
    inventory: Inventory
    pods: Pods
    binder: Binder
    gangs: Gangs
    around: Callable[[str], Surroundings]
    events: Recorder
    journal: Journal
    metrics: Metrics


def attend(means: Means, election: Election, start: Start) -> None:
    """Start every duty; all of them rest while *election* is lost."""
    waker = _waker(means)
    duties: Mapping[str, tuple[Callable[[], Awaitable[None]], float]] = {
        "reconciler": (_reconciler(means).sweep, EVERY),
        "upkeep": (_upkeep(means).sweep, EVERY),
        "late commits": (_late(means).sweep, EVERY),
        "registrar": (_registrar(means).sweep, EVERY),
        "gangs": (lambda: means.gangs.sweep(means.inventory.settings), EVERY),
        "waker": (lambda: waker.sweep(election.term), waking.EVERY),
        "drift": (_drift(means).sweep, drift.EVERY),
    }
    start(election.run(), "ledger election")
    start(means.gangs.run(), "refused members")
    for name, (sweep, every) in duties.items():
        failed = means.metrics.failing(name)
        start(sweeping(sweep, lambda: election.leading, every, failed=failed), name)


def _reconciler(means: Means) -> Reconciler:
    return Reconciler(
        means.client,
        pods=means.pods,
        ledgers=means.inventory.ledgers,
        agent=lambda: means.inventory.settings.node_agent is NodeAgent.OURS,
    )


def _upkeep(means: Means) -> Upkeep:
    inventory = means.inventory
    upstream = NodeAgent.UPSTREAM
    return Upkeep(
        means.client, inventory, upstream=lambda: inventory.settings.node_agent is upstream
    )


def _late(means: Means) -> LateCommits:
    caches = Caches(pods=means.pods, ledgers=means.inventory.ledgers, around=means.around)
    return LateCommits(
        calls=means.client,
        binder=means.binder,
        caches=caches,
        tell=means.events.record,
        remember=means.journal.remember,
    )


def _registrar(means: Means) -> Registrar:
    return Registrar(means.client, lambda: world_of(means.inventory, means.pods.seen))


def _waker(means: Means) -> waking.Waker:
    inventory = means.inventory
    return waking.Waker(
        means.client,
        means.pods,
        ledgers=inventory.ledgers,
        vocabularies=lambda: inventory.vocabularies,
    )


def _drift(means: Means) -> drift.DriftReport:
    return drift.DriftReport(
        means.inventory.ledgers, means.pods, tell=means.events.record, count=means.metrics.drifted
    )
