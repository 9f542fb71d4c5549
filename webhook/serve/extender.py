"""Wiring of the extender: beside admission, or alone."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

import msgspec
import structlog

from allocator.audit.record_writer import WriteRecord, write_nothing
from allocator.catalog.vocabularies import Vocabulary
from allocator.cli.http_server import Listen, serve
from allocator.cli.process import Start, background, freeze_when_settled, stop_event
from allocator.cli.status_server import STATUS_LIMITS
from allocator.cluster.assumed_pods import AssumedPods
from allocator.cluster.inventory import Inventory
from allocator.cluster.nominated_pods import NominatedPods
from allocator.cluster.pod_messages import pod_json
from allocator.cluster.pods import pod_informer
from allocator.config.settings import NodeAgent
from allocator.controllers.unschedulable import UnschedulableController
from allocator.extender.equivalence_filter import ClassFilterCache
from allocator.extender.filter import FilterContext, no_group_failures
from allocator.extender.index import Index
from allocator.extender.pod import SchedulingPod
from allocator.extender.projection import Projection
from allocator.request.pod_fields import WatchedPod
from allocator.supernode.groups import GroupService, group_service
from certs.tls_server import ServingPair
from kube.client import Client, version
from kube.config import Access
from kube.events import Recorder
from kube.shared_informer import SharedInformer
from webhook.admission.context import AdmissionContext
from webhook.binding.scheduler_pod import unbound_pod, watched_pod
from webhook.serve import extender_routes
from webhook.serve.certificates import NAME
from webhook.serve.extender_verbs import Extender, NotKnownYetError
from webhook.serve.http import routes, serve_app
from webhook.serve.leader import LeaderContext
from webhook.serve.metrics import WebhookMetrics
from webhook.serve.view import view_of

log = structlog.get_logger(__name__)


class CachedPodDecoder:
    """Reads pods, and remembers the last one: a scheduler asks twice about each."""

    def __init__(self, vocabularies: Callable[[], tuple[Vocabulary, ...]]) -> None:
        """Read requests in the words of *vocabularies*."""
        self._vocabularies = vocabularies
        self._last: tuple[bytes, tuple[Vocabulary, ...], SchedulingPod] | None = None

    def __call__(self, raw: msgspec.Raw) -> SchedulingPod:
        """Return the pod; raises as :func:`webhook.binding.scheduler_pod.unbound_pod` does."""
        text, vocabularies, last = bytes(raw), self._vocabularies(), self._last
        if last is not None and last[0] == text and last[1] is vocabularies:
            return last[2]
        pod = unbound_pod(raw, vocabularies)
        self._last = text, vocabularies, pod
        return pod


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderService:
    """What the extender works with."""

    client: Client
    inventory: Inventory
    context_of: Callable[[str], AdmissionContext]  # by namespace
    events: Recorder
    write_record: WriteRecord = write_nothing
    # Takes each verb that was answered, and the seconds that this took.
    observe: extender_routes.Observe = extender_routes.ignore_timing
    nominees: NominatedPods = field(default_factory=NominatedPods)
    assumed_pods: AssumedPods = field(default_factory=AssumedPods)
    projection: Projection = field(default_factory=Projection)
    class_filters: ClassFilterCache = field(default_factory=ClassFilterCache)
    groups: GroupService | None = None  # None: no pods are kept together

    def follow(self, watch: SharedInformer[WatchedPod]) -> None:
        """Take part in a watch of all pods, without which nobody is ranked beside others."""
        self.nominees.follow(watch, self._view_watched)

    @contextlib.asynccontextmanager
    async def serve(
        self, listen: Listen | None, start: Start, *, mutual: ServingPair | None = None, drain: int
    ) -> AsyncIterator[int | None]:
        """Serve the extender while the block runs, and yield its port; without an address, nothing.

        Callers must have a certificate that *mutual* knows. Without it this is plain HTTP, as
        published configurations of schedulers have it, and raises ``ValueError`` on an address that
        others reach: whoever asks decides where pods are tried, hinted and bound.
        """
        if listen is None:
            yield None
            return
        if mutual is None and not loopback(listen.host):
            raise ValueError(f"{listen.host} is not a loopback address; callers must be known")
        unschedulable_controller = self._unschedulable_controller()
        start(unschedulable_controller.run(), "attendant")
        extender = self._extender(unschedulable_controller)
        async with serve_app(
            extender_routes.app(extender, self.observe),
            listen,
            context=None if mutual is None else mutual.context,
            drain=drain,
            at_once=extender_routes.immediate_answers(extender, self.observe).get,
            largest=extender_routes.LARGEST_AT_ONCE,
        ) as port:
            log.info("serving the scheduler extender", port=port, mutual=mutual is not None)
            yield port

    def _extender(self, attendant: UnschedulableController) -> Extender:
        return Extender(
            index=self._known_index,
            with_nominated=self._with_assumed,
            read_pod=CachedPodDecoder(lambda: self.inventory.vocabularies),
            settings=lambda: self.inventory.settings,
            context_of=self._circumstances,
            note_unschedulable=attendant.enqueue,
            note_assumed=self.assumed_pods.expect,
            writer=self.client,
        )

    def _known_index(self) -> Index:
        """Return the index; raises NotKnownYetError before it was complete for the first time."""
        if not self.inventory.knows_gpus:
            raise NotKnownYetError("the nodes and their GPUs are not known yet; ask again")
        return self.inventory.index()

    def _unschedulable_controller(self) -> UnschedulableController:
        return UnschedulableController(
            self.client,
            self.events,
            index=lambda: self._with_assumed(self.inventory.index(), hinted=True),
            context_of=self._circumstances,
            write_record=self.write_record,
        )

    def _with_assumed(self, index: Index, *, hinted: bool = False) -> Index:
        return self.assumed_pods.with_assumed(self.nominees.with_nominations(index, hinted=hinted))

    def _view_watched(self, pod: WatchedPod, raw: bytes) -> SchedulingPod:
        return watched_pod(pod, lambda: pod_json(raw), self.inventory.vocabularies)

    def _circumstances(self, pod: SchedulingPod) -> FilterContext:
        context = self.context_of(pod.namespace)
        return FilterContext(
            policy=context.policy,
            own_nodes=self.inventory.nodes_with_entry(pod.uid),
            closed_world=context.settings.node_agent is NodeAgent.OURS,
            projection=self.projection,
            filters=self.class_filters,
            group_failures=no_group_failures if self.groups is None else self.groups.failures,
        )


def extender_service(leader: LeaderContext) -> ExtenderService:
    """Return the extender that stands beside admission, over what the ledger's duties work with."""
    return ExtenderService(
        client=leader.client,
        inventory=leader.inventory,
        context_of=leader.context_of,
        events=leader.events,
        observe=leader.metrics.observe_answer,
        assumed_pods=leader.binder.assumed_pods,
        write_record=leader.trail.writer.write,
        groups=leader.groups,
    )


def loopback(host: str) -> bool:
    """Say whether only this machine, or this pod, reaches *host*."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


DRAIN: Final = 5  # seconds for questions in flight; a scheduler waits no longer


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderOptions:
    """What the command line decides; ``identity`` is this process's own, e.g. its pod's name."""

    access: Access
    listen: Listen
    health: Listen
    namespace: str
    identity: str


async def run(options: ExtenderOptions) -> None:
    """Run until SIGTERM or SIGINT; a task that dies takes the program with it."""
    stop = stop_event()
    async with Client(options.access) as client, background() as start:
        inventory = Inventory(client, namespace=options.namespace, prepare_scores=True)
        events = Recorder(client, controller=f"{NAME}/extender", instance=options.identity)
        start(inventory.run(), "inventory")
        start(events.run(), "events")
        start(freeze_when_settled(lambda: inventory.synced), "memory")
        groups = group_service(inventory, options.namespace, events.record)
        steering = ExtenderService(
            client=client,
            inventory=inventory,
            context_of=lambda namespace: view_of(inventory, namespace).context,
            events=events,
            groups=groups,
        )
        pods = pod_informer()
        steering.follow(pods)
        groups.pods.follow(pods)
        start(groups.node_groups.run(), "node groups")
        start(pods.follow(client), "pods")
        metrics = WebhookMetrics(version=version())
        rest = routes(metrics, lambda: inventory.synced and not stop.is_set())
        async with (
            serve(rest, options.health, drain=DRAIN, limits=STATUS_LIMITS),
            steering.serve(options.listen, start, drain=DRAIN),
        ):
            await stop.wait()
