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
from allocator.core.forecast import Forecast
from allocator.core.index import Index
from allocator.core.judgement import Judges
from allocator.core.pods import Pod
from allocator.core.settings import NodeAgent
from allocator.core.steering import Circumstances
from allocator.shell.extender import Extender
from allocator.shell.inventory import Inventory
from allocator.shell.nominees import Nominees
from allocator.shell.tasks import Start
from allocator.shell.underway import Underway
from allocator.shell.waiting import Attendant
from certs.core.pem import Pair
from certs.shell.app import Look
from certs.shell.reload import Serving, server_context
from kube.client import Client
from kube.events import Recorder
from kube.shared import Shared
from webhook.core.mutate import Surroundings
from webhook.core.unbound import unbound, watched
from webhook.shell import extender
from webhook.shell.duties import Means
from webhook.shell.server import Listen, serving

log = structlog.get_logger(__name__)


def mutually(clients: Path | None, look: Look) -> tuple[Serving | None, Look]:
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

    found = Serving(build=build)

    async def looked() -> Pair | None:
        pair = await look()
        if pair is not None:
            found.load(pair)
        return pair

    return found, looked


class Reading:
    """Reads pods, and remembers the last one: a scheduler asks twice about each."""

    def __init__(self, vocabularies: Callable[[], tuple[Vocabulary, ...]]) -> None:
        """Read requests in the words of *vocabularies*."""
        self._vocabularies = vocabularies
        self._last: tuple[bytes, tuple[Vocabulary, ...], Pod] | None = None

    def __call__(self, raw: msgspec.Raw) -> Pod:
        """Return the pod; raises as :func:`webhook.core.unbound.unbound` does."""
        text, vocabularies, last = bytes(raw), self._vocabularies(), self._last
        if last is not None and last[0] == text and last[1] is vocabularies:
            return last[2]
        pod = unbound(raw, vocabularies)
        self._last = text, vocabularies, pod
        return pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering:
    """What the extender works with; ``around`` returns the surroundings of a namespace.

    ``mutual`` serves it where callers must be known. ``took`` takes each verb that was answered,
    and how many seconds that took. ``underway`` knows who is being bound here.
    """

    client: Client
    inventory: Inventory
    around: Callable[[str], Surroundings]
    events: Recorder
    mutual: Serving | None = None
    took: extender.Took = extender.untimed
    nominees: Nominees = field(default_factory=Nominees)
    underway: Underway = field(default_factory=Underway)
    forecast: Forecast = field(default_factory=Forecast)
    judges: Judges = field(default_factory=Judges)

    def follow(self, watch: Shared) -> None:
        """Take part in a watch of all pods, without which nobody is ranked beside others."""
        self.nominees.follow(watch, self._watched)

    @contextlib.asynccontextmanager
    async def serving(
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
        async with serving(
            extender.app(found, self.took),
            replace(listen, largest=extender.LARGEST_AT_ONCE),
            context=None if near else self.mutual.context if self.mutual else context,
            drain=drain,
            at_once=extender.at_once(found, self.took),
        ) as port:
            log.info("serving the scheduler extender", port=port, binds=binds)
            yield

    def _extender(self, attendant: Attendant, *, binds: bool) -> Extender:
        return Extender(
            index=self.inventory.index,
            beside=self._beside,
            read=Reading(lambda: self.inventory.vocabularies),
            settings=lambda: self.inventory.settings,
            circumstances=self._circumstances,
            waiting=attendant.attend,
            expect=self.underway.expect,
            writer=self.client if binds else None,
        )

    def _attendant(self) -> Attendant:
        return Attendant(
            self.client,
            self.events,
            index=lambda: self._beside(self.inventory.index(), hinted=True),
            circumstances=self._circumstances,
        )

    def _beside(self, index: Index, *, hinted: bool = False) -> Index:
        return self.underway.beside(self.nominees.beside(index, hinted=hinted))

    def _watched(self, raw: bytes) -> Pod:
        return watched(raw, self.inventory.vocabularies)

    def _circumstances(self, pod: Pod) -> Circumstances:
        around = self.around(pod.namespace)
        return Circumstances(
            terms=around.terms,
            own=self.inventory.promising(pod.uid),
            closed_world=around.settings.node_agent is NodeAgent.OURS,
            forecast=self.forecast,
            judges=self.judges,
        )


def steering(means: Means, mutual: Serving | None) -> Steering:
    """Return the extender that stands beside admission, over what the ledger's duties work with."""
    return Steering(
        client=means.client,
        inventory=means.inventory,
        around=means.around,
        events=means.events,
        mutual=mutual,
        took=means.metrics.answered,
        underway=means.binder.underway,
    )


def loopback(host: str) -> bool:
    """Say whether only this machine, or this pod, reaches *host*."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
