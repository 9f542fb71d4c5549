"""The webhook program: certificates, inventory and two servers, wired together and kept alive."""

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from allocator.catalog.annotations import HIGH_ALLOWED, HIGH_KEY
from allocator.core.settings import Prefer
from allocator.shell.gangs import Gangs
from allocator.shell.inventory import Inventory
from allocator.shell.memory import settled
from allocator.shell.reconciler import Pods
from allocator.shell.tasks import Start, background, told_to_stop
from certs.shell.app import Announce, Files, Keeper, Look, OwnSecret, Source
from certs.shell.cluster import ApiSecret, announcing
from certs.shell.reload import Serving
from kube.client import Client, version
from kube.config import Access
from kube.events import Recorder
from kube.leases import Candidate, Election
from kube.shared import Shared
from webhook.core.mutate import Surroundings
from webhook.shell.admission import MOST, Admission, Reviewer, View
from webhook.shell.binding import Binder
from webhook.shell.certificates import NAME, SECRET, certificates
from webhook.shell.deviceshare import Deviceshare
from webhook.shell.duties import Means, attend
from webhook.shell.journal import Journal
from webhook.shell.metrics import Metrics
from webhook.shell.pending import Pending
from webhook.shell.server import Listen, serving
from webhook.shell.steering import mutually, steering

PODS: Final = "/api/v1/pods"
LEASE: Final = "vgpu-certificates"
LEDGER_LEASE: Final = "vgpu-ledger"
PREFER_KEY: Final = "vgpu-admission.io/prefer"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
GAUGES_EVERY: Final = 5.0  # seconds

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line decides; ``identity`` is this replica's own, e.g. its pod name.

    ``files`` holds ``tls.crt`` and ``tls.key`` where the source is files. ``names`` are further
    names and addresses that a self-issued certificate is valid for. ``most`` reviews are
    answered at a time; more are asked to come again. ``extender`` is where the scheduler extender
    listens, if at all; ``clients`` are the authorities of its callers, where it wants to know them.
    """

    access: Access
    listen: Listen
    health: Listen
    namespace: str
    identity: str
    source: Source = Source.SECRET
    files: Path | None = None
    names: tuple[str, ...] = ()
    drain: int = 10
    most: int = MOST
    extender: Listen | None = None
    clients: Path | None = None


async def run(options: Options) -> None:
    """Run until SIGTERM or SIGINT; a task that dies takes the program with it."""
    stop = told_to_stop()
    metrics = Metrics(version=version())
    async with Client(options.access) as client, background() as start:
        rated = options.extender is not None
        inventory = Inventory(client, namespace=options.namespace, rated=rated)
        journal = Journal(sys.stdout.buffer, dropped=metrics.dropped)
        events = Recorder(client, controller=f"{NAME}/webhook", instance=options.identity)
        start(journal.run(), "journal")
        start(inventory.run(), "inventory")
        start(events.run(), "events")
        live = Serving()
        mutual = _kept(live, options, client, events=events, start=start)
        start(_gauges(metrics, inventory, live), "gauges")
        start(settled(lambda: inventory.synced), "memory")
        rest = routes(metrics, lambda: not stop.is_set() and _ready(inventory, live))
        watch = Shared(PODS)
        means = _means(
            client, inventory, watch=watch, events=events, journal=journal, metrics=metrics
        )
        attend(means, _election(options, client, LEDGER_LEASE), start)
        reviewer = _reviewer(inventory, journal, metrics)
        app = Admission(reviewer, rest, binder=means.binder, most=options.most)
        extender = steering(means, mutual)
        if rated:
            extender.follow(watch)
        start(watch.follow(client), "pods")
        async with (
            serving(rest, options.health, drain=options.drain) as health,
            serving(
                app,
                options.listen,
                context=live.context,
                drain=options.drain,
                at_once=app.at_once,
            ) as port,
            extender.serving(options.extender, start, context=live.context, drain=options.drain),
        ):
            log.info("serving", port=port, health=health, version=version())
            await stop.wait()
            log.info("draining", seconds=options.drain)


def _means(  # noqa: PLR0913 -- the parts of one whole
    client: Client,
    inventory: Inventory,
    *,
    watch: Shared,
    events: Recorder,
    journal: Journal,
    metrics: Metrics,
) -> Means:
    """Set up the door, and all that the ledger's duties work with; both know pods by *watch*."""
    pods, pending = Pods(), Pending()
    pods.follow(watch)
    pending.follow(watch)

    def around(namespace: str) -> Surroundings:
        return view_of(inventory, namespace).around

    gangs = Gangs(client, pods, vocabularies=lambda: inventory.vocabularies, tell=events.record)
    binder = Binder(
        calls=client,
        around=around,
        reserved=inventory.promising,
        pods=pending.pod,
        ledgers=inventory.ledger,
        stands=inventory.stands,
        arrived=inventory.arrived,
        remember=journal.remember,
        denied=gangs.refused,
        counted=metrics.bound,
        took=lambda seconds: metrics.took("bind", seconds),
    )
    return Means(
        client=client,
        inventory=inventory,
        pods=pods,
        binder=binder,
        gangs=gangs,
        around=around,
        events=events,
        journal=journal,
        metrics=metrics,
    )


def _reviewer(inventory: Inventory, journal: Journal, metrics: Metrics) -> Reviewer:
    return Reviewer(
        view=lambda namespace: view_of(inventory, namespace),
        journal=journal,
        metrics=metrics,
        version=version(),
    )


def _kept(
    live: Serving, options: Options, client: Client, *, events: Recorder, start: Start
) -> Serving | None:
    """Keep the pair of *live* up to date; return what serves known callers only, if any."""
    secret = ApiSecret(calls=client, namespace=options.namespace, name=SECRET)
    announce = announcing(events, secret)
    look = _look(options, client, announce=announce, start=start)
    mutual, look = mutually(options.clients, look)
    start(Keeper(serving=live, look=look, announce=announce).run(), "certificates")
    return mutual


def _look(options: Options, client: Client, *, announce: Announce, start: Start) -> Look:
    """Return how the serving pair is found."""
    if options.source is Source.FILES:
        directory = options.files or Path("/tls")
        return Files(certificate=directory / "tls.crt", key=directory / "tls.key")
    election = _election(options, client, LEASE)
    start(election.run(), "election")
    return OwnSecret(
        writer=certificates(client, options.namespace, names=options.names),
        leading=lambda: election.leading,
        announce=announce,
    )


def _election(options: Options, client: Client, lease: str) -> Election:
    candidate = Candidate(namespace=options.namespace, name=lease, identity=options.identity)
    return Election(client, candidate)


def view_of(inventory: Inventory, name: str) -> View:
    """Return what a decision in namespace *name* rests on, now."""
    namespace = inventory.namespace(name)
    said = namespace.annotations if namespace is not None else {}
    prefer = said.get(PREFER_KEY, "")
    around = Surroundings(
        settings=inventory.settings,
        snapshot=inventory.snapshot(),
        vocabularies=inventory.vocabularies,
        host_paths=None if namespace is None else namespace.host_paths,
        prefer=Prefer(prefer) if prefer in set(Prefer) else None,
        high_priority=said.get(HIGH_KEY) == HIGH_ALLOWED,
        geometries=inventory.device_config.geometries,
    )
    return View(around=around, settings_digest=inventory.settings_digest, age=inventory.age())


def _ready(inventory: Inventory, live: Serving) -> bool:
    """Say whether reviews can be answered: a valid pair, and namespaces and settings known.

    GPU inventory is not waited for: without it pods are admitted, never refused.
    """
    known = inventory.pulses["namespaces"].synced and inventory.pulses["settings"].synced
    return live.ready and known


def routes(metrics: Metrics, ready: Callable[[], bool]) -> Starlette:
    """Return everything that is not a hot path."""

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        fine = ready()
        return PlainTextResponse("ready\n" if fine else "not ready\n", 200 if fine else 503)

    async def exposed(_: Request) -> Response:
        body = await asyncio.to_thread(generate_latest, metrics.registry)
        return Response(body, media_type=CONTENT_TYPE)

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", exposed),
        ]
    )


async def _gauges(metrics: Metrics, inventory: Inventory, live: Serving) -> None:
    """Keep figures that are read rather than counted."""
    deviceshare = Deviceshare()
    metrics.registry.register(deviceshare)
    while True:
        deviceshare.renew(inventory)
        if live.not_after is not None:
            metrics.certified(live.not_after.timestamp())
        for kind, seen in inventory.heard().items():
            metrics.synced.labels(kind).set(seen)
        await asyncio.sleep(GAUGES_EVERY)


def identity() -> str:
    """Return this replica's name: the pod's, else host and process."""
    return os.environ.get("POD_NAME") or f"{os.uname().nodename}-{os.getpid()}"
