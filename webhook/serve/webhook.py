"""The webhook program: certificates, inventory and two servers, wired together and kept alive."""

import asyncio
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog

from allocator.audit.audit_log import AuditLog, FileSink
from allocator.audit.record_source import ENTROPY_BITS
from allocator.cli.audit import AuditOptions, audit_delivery
from allocator.cli.http_server import Listen, serve
from allocator.cli.process import (
    Start,
    background,
    freeze_when_settled,
    keep_memory,
    stop_event,
)
from allocator.cli.status_server import STATUS_LIMITS
from allocator.cluster.inventory import Inventory
from allocator.cluster.pods import Pods, pod_informer
from allocator.controllers.gang import GangController
from allocator.request.pod_fields import WatchedPod
from allocator.supernode.groups import GroupService, group_service
from certs.api_client import ApiSecret, event_announcer
from certs.pem import Pair
from certs.refresh_controller import (
    OwnSecret,
    PairFiles,
    PairSource,
    ReadPair,
    RefreshController,
)
from certs.tls_server import ServingPair
from kube.client import Client, version
from kube.clock import SYSTEM
from kube.config import Access
from kube.events import Recorder
from kube.leases import Election, LeaseCandidate
from kube.shared_informer import SharedInformer
from kube.watch import WatchHealth, last_message_times
from webhook.binding.binding_server import BindingHandler
from webhook.binding.group_client import GroupGuard
from webhook.binding.unbound_pods_informer import UnboundPods
from webhook.caller.callers import KnownCallers
from webhook.caller.hook_paths import HookPaths
from webhook.records.certificate_log import record_serving, recording
from webhook.records.trail import AuditTrail, audit_trail
from webhook.records.unread_log import UnreadLog
from webhook.serve.admission import MOST, AdmissionApp, PodHandler
from webhook.serve.certificates import (
    NAME,
    SECRET,
    MutualPair,
    audit_certificates,
    certificates,
    client_certificate,
    hook_paths,
)
from webhook.serve.extender import extender_service, loopback
from webhook.serve.http import routes, serve_app
from webhook.serve.leader import LeaderContext, start_controllers
from webhook.serve.metrics import Deviceshare, WebhookMetrics
from webhook.serve.view import view_of
from webhook.workload.workload_server import WorkloadHandler

LEASE: Final = "vgpu-certificates"
LEDGER_LEASE: Final = "vgpu-ledger"
GAUGES_EVERY: Final = 5.0  # seconds
POLL_SECONDS: Final = 0.05  # between two looks whether everything is known
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOptions:
    """What the command line decides; ``identity`` is this replica's own, e.g. its pod name.

    ``files`` holds ``tls.crt`` and ``tls.key`` where the source is files. ``names`` are further
    names and addresses that a self-issued certificate is valid for. ``most`` reviews are
    answered at a time; more are asked to come again. ``extender`` is where the scheduler extender
    listens, if at all; ``clients`` are the authorities of its callers. Without them it is our own
    where we have one, and on a loopback address anybody may call.
    """

    access: Access
    listen: Listen
    health: Listen
    namespace: str
    identity: str
    source: PairSource = PairSource.SECRET
    files: Path | None = None
    names: tuple[str, ...] = ()
    drain: int = 10
    most: int = MOST
    extender: Listen | None = None
    clients: Path | None = None
    audit: AuditOptions | None = None  # None: records go to standard output only


async def run(options: WebhookOptions) -> None:
    """Run until SIGTERM or SIGINT; a task that dies takes the program with it."""
    stop = stop_event()
    keep_memory()
    metrics = WebhookMetrics(version=version())
    async with (
        Client(options.access) as client,
        audit_delivery(options.audit, metrics.delivery) as delivery,
        background() as start,
    ):
        rated = options.extender is not None
        inventory = Inventory(client, namespace=options.namespace, prepare_scores=rated)
        output = FileSink(file=sys.stdout.buffer, enabled=lambda: inventory.settings.audit.stdout)
        journal = AuditLog((output, *delivery), dropped=metrics.dropped)
        trail = audit_trail(
            journal,
            defer=journal.defer,
            parts=journal.remember_parts,
            instance=options.identity,
            version=version(),
            entropy=secrets.randbits(ENTROPY_BITS),
            now=SYSTEM.wall,
        )
        events = Recorder(client, controller=f"{NAME}/webhook", instance=options.identity)
        start(journal.run(), "journal")
        start(inventory.run(), "inventory")
        start(events.run(), "events")
        live = ServingPair(client_ca=lambda: inventory.settings.review_client_ca)
        mutual = _keep_certificates(
            live, options, client, inventory=inventory, events=events, trail=trail, start=start
        )
        callers = KnownCallers(paths=HookPaths(()), settings=lambda: inventory.settings)
        rest = routes(
            metrics,
            lambda: not stop.is_set() and callers.paths.known and _ready(inventory, live, options),
        )
        watch = pod_informer()
        groups = group_service(inventory, options.namespace, events.record)
        groups.pods.follow(watch)
        start(groups.node_groups.run(), "node groups")
        watches = {
            **inventory.watches,
            "pods": watch.health,
            "node_group": groups.node_groups.health,
        }
        start(_gauges(metrics, inventory, live, watches=watches), "gauges")
        start(freeze_when_settled(lambda: inventory.synced and watch.health.synced), "memory")
        start(_note_known(inventory, watch), "known")
        leader = _leader_context(
            client,
            inventory,
            watch=watch,
            events=events,
            trail=trail,
            metrics=metrics,
            groups=groups,
        )
        election = _election(options, client, LEDGER_LEASE)
        start_controllers(leader, election, start)
        kept = hook_paths(client, options.namespace, callers.paths, election=election)
        start(kept.run(), "paths")
        app = _admission_app(leader, callers, most=options.most, extender=rated)
        extender = extender_service(leader)
        if rated:
            extender.follow(watch)
        start(watch.follow(client), "pods")
        drain, tls = options.drain, live.context
        listen = replace(options.listen, admits=callers.admits)
        async with (
            serve(rest, options.health, drain=drain, limits=STATUS_LIMITS) as health,
            serve_app(app, listen, context=tls, drain=drain, at_once=app.at_once) as port,
            extender.serve(options.extender, start, mutual=mutual, drain=drain),
        ):
            log.info("serving", port=port, health=health, version=version())
            await stop.wait()
            log.info("draining", seconds=drain)


def _leader_context(  # noqa: PLR0913 -- the parts of one whole
    client: Client,
    inventory: Inventory,
    *,
    watch: SharedInformer[WatchedPod],
    events: Recorder,
    trail: AuditTrail,
    metrics: WebhookMetrics,
    groups: GroupService,
) -> LeaderContext:
    """Return what the controllers of the leader work with; *watch* tells them of pods."""
    pods = Pods()
    pods.follow(watch)
    gangs = GangController(
        client, pods, vocabularies=lambda: inventory.vocabularies, record=events.record
    )
    binder = _binding_handler(client, inventory, watch, metrics=metrics)
    binder.note_refusal = gangs.note_refusal
    binder.groups = GroupGuard(
        calls=client,
        groups=groups,
        assumed_pods=binder.assumed_pods,
        ledger_of=inventory.ledger,
        tier_choosers=lambda: inventory.settings.volcano_schedulers,
    )
    return LeaderContext(
        client=client,
        inventory=inventory,
        pods=pods,
        binder=binder,
        gangs=gangs,
        groups=groups,
        context_of=binder.context_of,
        events=events,
        trail=trail,
        metrics=metrics,
    )


def _binding_handler(
    client: Client,
    inventory: Inventory,
    watch: SharedInformer[WatchedPod],
    *,
    metrics: WebhookMetrics,
) -> BindingHandler:
    unbound = UnboundPods()
    unbound.follow(watch)
    return BindingHandler(
        calls=client,
        context_of=lambda namespace: view_of(inventory, namespace).context,
        nodes_with_entry=inventory.nodes_with_entry,
        cached_pod=unbound.pod,
        cached_ledger=inventory.ledger,
        is_current=inventory.is_current,
        learn_arrival=inventory.learn_arrival,
        count_decision=metrics.count_bind,
        observe_seconds=lambda seconds: metrics.observe_decision("bind", seconds),
    )


def _admission_app(
    leader: LeaderContext, callers: KnownCallers, *, most: int, extender: bool
) -> AdmissionApp:
    """Return what answers the reviews of known *callers*, *most* at a time."""
    metrics = leader.metrics
    trail, inventory = leader.trail, leader.inventory
    leader.binder.remember = trail.sink.remember
    leader.binder.records = trail.bind_records(lambda: inventory.settings_digest, callers.shown)
    source = trail.source.reviewed_by(callers.shown)
    pods = PodHandler(
        view=lambda namespace: view_of(inventory, namespace, extender=extender),
        records=trail.pass_records(callers.shown, now=time.time_ns),
        metrics=metrics,
        note_unread=UnreadLog(sink=trail.sink, source=source).note,
    )
    workloads = WorkloadHandler(
        context_of=lambda namespace: pods.view(namespace).context,
        count_review=metrics.count_workload,
        observe_seconds=lambda seconds: metrics.observe_decision("workload", seconds),
        journal=trail.sink,
        source=source,
    )
    return AdmissionApp(
        pods, binder=leader.binder, workloads=workloads, most=most, paths=callers.paths
    )


def _keep_certificates(  # noqa: PLR0913 -- the parts of one whole
    live: ServingPair,
    options: WebhookOptions,
    client: Client,
    *,
    inventory: Inventory,
    events: Recorder,
    trail: AuditTrail,
    start: Start,
) -> ServingPair | None:
    """Keep the pair of *live* up to date; return what serves known callers only, if any."""
    secret = ApiSecret(client=client, namespace=options.namespace, name=SECRET)
    announce = recording(event_announcer(events, secret), trail.writer.write)
    read_pair: ReadPair
    if options.source is PairSource.FILES:
        directory = options.files or Path("/tls")
        read_pair = PairFiles(certificate=directory / "tls.crt", key=directory / "tls.key")
        mutual = _mutual(options, read_pair)
    else:
        election = _election(options, client, LEASE)
        start(election.run(), "election")
        read_pair = own = OwnSecret(
            rotation=certificates(
                client, options.namespace, names=options.names, pod=options.identity
            ),
            leading=lambda: election.is_leader,
            announce=announce,
        )
        mutual = _mutual(options, own, lambda: own.signing)
        if mutual is not None and options.clients is None:
            start(client_certificate(client, options.namespace).run(), "client certificate")
        if options.audit is not None:
            # No Events: those would be about Secrets that may be in another namespace.
            quiet = recording(lambda _: None, trail.writer.write)
            for name, kept in audit_certificates(client, options.namespace, quiet).items():
                start(kept.run(), name)
    look = _once_settings_are_known(inventory, read_pair if mutual is None else mutual)
    refresh = RefreshController(
        serving=live,
        read_pair=look,
        announce=announce,
        note_loaded=lambda pair: record_serving(pair, trail.writer.write),
    )
    start(refresh.run(), "certificates")
    return None if mutual is None else mutual.serving


def _once_settings_are_known(inventory: Inventory, look: ReadPair) -> ReadPair:
    """Return what finds nothing before the settings are known, which say who may call."""

    async def look_if_known() -> Pair | None:
        return await look() if inventory.watches["settings"].synced else None

    return look_if_known


def _mutual(
    options: WebhookOptions, read_pair: ReadPair, own: Callable[[], bytes] | None = None
) -> MutualPair | None:
    """Return what keeps the extender's certificate and authorities, unless anybody may call.

    *own* returns our authorities. Raises ``ValueError`` where callers could not be known.
    """
    if options.extender is None or (options.clients is None and loopback(options.extender.host)):
        return None
    authorities = own if options.clients is None else options.clients.read_bytes
    if authorities is None:
        raise ValueError(f"{options.extender.host}: without an authority anybody could call")
    return MutualPair(read_pair=read_pair, authorities=authorities)


def _election(options: WebhookOptions, client: Client, lease: str) -> Election:
    candidate = LeaseCandidate(namespace=options.namespace, name=lease, identity=options.identity)
    return Election(client, candidate)


def _ready(inventory: Inventory, live: ServingPair, options: WebhookOptions) -> bool:
    """Say whether reviews can be answered: a valid pair, and namespaces and settings known.

    Only an extender waits for GPU inventory: without it pods are admitted, never refused.
    """
    known = inventory.watches["namespaces"].synced and inventory.watches["settings"].synced
    known = known and (options.extender is None or inventory.knows_gpus)
    return live.ready and known


async def _note_known(inventory: Inventory, pods: SharedInformer[WatchedPod]) -> None:
    """Log when all objects are known and the index of the nodes is made; wait for ever after."""
    began = time.monotonic()
    while not (inventory.synced and pods.health.synced):  # noqa: ASYNC110 -- at the start only
        await asyncio.sleep(POLL_SECONDS)
    index = inventory.index()
    seconds = round(time.monotonic() - began, 2)
    log.info("everything known", seconds=seconds, nodes=len(index.node_infos))
    await asyncio.Event().wait()


async def _gauges(
    metrics: WebhookMetrics,
    inventory: Inventory,
    live: ServingPair,
    *,
    watches: Mapping[str, WatchHealth],
) -> None:
    """Keep figures that are read rather than counted."""
    deviceshare = Deviceshare()
    metrics.registry.register(deviceshare)
    while True:
        deviceshare.renew(inventory)
        if live.not_after is not None:
            metrics.set_certificate_expiry(live.not_after.timestamp())
        for kind, seen in last_message_times(watches).items():
            metrics.synced.labels(kind).set(seen)
        await asyncio.sleep(GAUGES_EVERY)
