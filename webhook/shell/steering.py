"""Steering: the scheduler extender beside admission, on a port of its own, where one is given."""

import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path

import msgspec
import structlog

from allocator.catalog.vocabularies import Vocabulary
from allocator.core.forecast import Projection
from allocator.core.index import Index
from allocator.core.judgement import ClassFilterCache
from allocator.core.pods import SchedulingPod
from allocator.core.settings import NodeAgent
from allocator.core.steering import FilterContext
from allocator.shell.extender import Extender
from allocator.shell.inventory import Inventory
from allocator.shell.nominees import NominatedPods
from allocator.shell.tasks import Start
from allocator.shell.underway import AssumedPods
from allocator.shell.waiting import UnschedulableController
from certs.core.pem import Pair
from certs.shell.app import Look
from certs.shell.reload import ServingPair, server_context
from kube.client import Client
from kube.events import Recorder
from kube.shared import SharedInformer
from webhook.core.mutate import AdmissionContext
from webhook.core.unbound import unbound_pod, watched_pod
from webhook.shell import extender
from webhook.shell.duties import LeaderContext
from webhook.shell.server import Listen, serve_app

log = structlog.get_logger(__name__)


def mutually(clients: Path | None, look: Look) -> tuple[ServingPair | None, Look]:
    """Return what serves only callers that *clients* vouch for, and what keeps it up to date.

    It serves the pair that *look* finds for admission. Raises ``OSError`` or ``ssl.SSLError`` where
    *clients* cannot be read.
    """
    if clients is None:
        return None, look

    def build() -> ssl.SSLContext:
        context = server_context()
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    found = ServingPair(build=build)

    async def look_and_load() -> Pair | None:
        pair = await look()
        if pair is not None:
            found.load(pair)
        return pair

    return found, look_and_load


class CachedPodDecoder:
    """Reads pods, and remembers the last one: a scheduler asks twice about each."""

    def __init__(self, vocabularies: Callable[[], tuple[Vocabulary, ...]]) -> None:
        """Read requests in the words of *vocabularies*."""
        self._vocabularies = vocabularies
        self._last: tuple[bytes, tuple[Vocabulary, ...], SchedulingPod] | None = None

    def __call__(self, raw: msgspec.Raw) -> SchedulingPod:
        """Return the pod; raises as :func:`webhook.core.unbound.unbound` does."""
        text, vocabularies, last = bytes(raw), self._vocabularies(), self._last
        if last is not None and last[0] == text and last[1] is vocabularies:
            return last[2]
        pod = unbound_pod(raw, vocabularies)
        self._last = text, vocabularies, pod
        return pod


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderService:
    """What the extender works with; ``around`` returns the surroundings of a namespace.

    ``mutual`` serves it where callers must be known. ``took`` takes each verb that was answered,
    and how many seconds that took. ``underway`` knows who is being bound here.
    """

    client: Client
    inventory: Inventory
    around: Callable[[str], AdmissionContext]
    events: Recorder
    mutual: ServingPair | None = None
    took: extender.Took = extender.ignore_timing
    nominees: NominatedPods = field(default_factory=NominatedPods)
    underway: AssumedPods = field(default_factory=AssumedPods)
    forecast: Projection = field(default_factory=Projection)
    judges: ClassFilterCache = field(default_factory=ClassFilterCache)

    def follow(self, watch: SharedInformer) -> None:
        """Take part in a watch of all pods, without which nobody is ranked beside others."""
        self.nominees.follow(watch, self._decode_watched)

    @contextlib.asynccontextmanager
    async def serve(
        self, listen: Listen | None, start: Start, *, context: ssl.SSLContext, drain: int
    ) -> AsyncIterator[None]:
        """Serve the extender while the block runs; without an address, nothing.

        On a loopback address it is plain HTTP, as published configurations of schedulers have it:
        nobody listens in there. It binds there, and where callers are known, but nowhere else.
        """
        if listen is None:
            yield
            return
        near = loopback(listen.host) and self.mutual is None
        binds = near or self.mutual is not None
        attendant = self._attendant()
        start(attendant.run(), "attendant")
        found = self._extender(attendant, binds=binds)
        async with serve_app(
            extender.app(found, self.took),
            replace(listen, largest=extender.LARGEST_AT_ONCE),
            context=None if near else self.mutual.context if self.mutual else context,
            drain=drain,
            at_once=extender.immediate_answers(found, self.took),
        ) as port:
            log.info("serving the scheduler extender", port=port, binds=binds)
            yield

    def _extender(self, attendant: UnschedulableController, *, binds: bool) -> Extender:
        return Extender(
            index=self.inventory.index,
            beside=self._with_assumed,
            read=CachedPodDecoder(lambda: self.inventory.vocabularies),
            settings=lambda: self.inventory.settings,
            circumstances=self._circumstances,
            waiting=attendant.attend,
            expect=self.underway.expect,
            writer=self.client if binds else None,
        )

    def _attendant(self) -> UnschedulableController:
        return UnschedulableController(
            self.client,
            self.events,
            index=lambda: self._with_assumed(self.inventory.index(), hinted=True),
            circumstances=self._circumstances,
        )

    def _with_assumed(self, index: Index, *, hinted: bool = False) -> Index:
        return self.underway.with_assumed(self.nominees.with_nominations(index, hinted=hinted))

    def _decode_watched(self, raw: bytes) -> SchedulingPod:
        return watched_pod(raw, self.inventory.vocabularies)

    def _circumstances(self, pod: SchedulingPod) -> FilterContext:
        around = self.around(pod.namespace)
        return FilterContext(
            terms=around.terms,
            own=self.inventory.promising_nodes(pod.uid),
            closed_world=around.settings.node_agent is NodeAgent.OURS,
            forecast=self.forecast,
            judges=self.judges,
        )


def extender_service(means: LeaderContext, mutual: ServingPair | None) -> ExtenderService:
    """Return the extender that stands beside admission, over what the ledger's duties work with."""
    return ExtenderService(
        client=means.client,
        inventory=means.inventory,
        around=means.around,
        events=means.events,
        mutual=mutual,
        took=means.metrics.observe_answer,
        underway=means.binder.underway,
    )


def loopback(host: str) -> bool:
    """Say whether only this machine, or this pod, reaches *host*."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
