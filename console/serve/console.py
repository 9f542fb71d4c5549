"""The console program: the store, the cluster and three ports, wired together and kept alive."""

import asyncio
import secrets
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final, Never

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute

from allocator.audit.record import Component
from allocator.audit.record_source import ENTROPY_BITS, RecordSource
from allocator.cli.http_server import App, ConnectionLimits, serve
from allocator.cli.process import (
    Start,
    background,
    freeze_when_settled,
    save_memory,
    stop_event,
)
from allocator.cli.status_server import STATUS_LIMITS, status_app
from certs.pem import Pair
from certs.refresh_controller import Notice, PairFiles, RefreshController
from certs.tls_server import ServingPair
from console.access.authentication_server import Authenticator
from console.access.authorities_controller import AuthoritiesController
from console.access.budgets import TooManyAttemptsError
from console.access.login_server import LoginServer
from console.access.reviews_client import ReviewsUnavailableError, TokenReviewer
from console.access.rights_client import ViewerRights
from console.access.session import SessionCodec, parse_keys
from console.access.viewer import Viewer
from console.cluster.live_informer import LiveCluster
from console.languages.messages import message
from console.receive.certificate_log import ConsoleCertificateLog
from console.receive.console_metrics import ConsoleMetrics
from console.receive.node_limits import NodeLimits
from console.receive.records_server import RecordsServer
from console.receive.sender import SenderAccounts, known_nodes
from console.receive.store_thread import StoreThread
from console.records.query import EVERYTHING
from console.serve.api_routes import api_routes, error_answer
from console.serve.options import AccessOptions, ConsoleOptions
from console.serve.page_routes import page_routes
from console.serve.page_services import PageServices
from console.serve.protection import ProtectedPages
from console.serve.static_files import static_files
from console.store.store import RecordStore, StoreError
from console.use.prometheus_client import PrometheusClient, connect_prometheus
from kube.client import Client, version
from kube.clock import SYSTEM
from kube.watch import last_message_times

AUDIENCE: Final = "vgpu-console"  # of the tokens by which senders of records are known
FIGURES_SECONDS: Final = 60.0  # between two counts of what is stored
# An agent of each of 5,000 nodes may send, but closes its connection afterwards.
RECORDS_LIMITS: Final = ConnectionLimits(connections=512, handshakes=64)
PAGES_LIMITS: Final = ConnectionLimits(connections=512, handshakes=64)
# Pages are made by Python, of which one thread runs at a time; more threads take more memory, and
# each has a connection to the store.
PAGE_THREADS: Final = 2
NOTICE: Final = message(
    "Started with --insecure-read-all: whoever reaches this address sees everything, without login."
)
log = structlog.get_logger(__name__)


async def run(options: ConsoleOptions, store: RecordStore) -> None:
    """Run until SIGTERM or SIGINT, then close *store*; a task that dies ends the program."""
    stop = stop_event()
    save_memory()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(PAGE_THREADS, "page"))
    with closing(store), closing(StoreThread(store)) as writer:
        async with (
            Client(options.access) as client,
            connect_prometheus(options.prometheus) as prometheus,
            background() as start,
        ):
            parts = ConsoleParts(client, options, store=store, writer=writer)
            parts.prometheus = prometheus
            async with (
                serve(parts.status(stop.is_set), options.health, limits=STATUS_LIMITS) as health,
                serve(
                    parts.receiver(),
                    options.records,
                    context=parts.records_tls.context,
                    drain=options.drain,
                    limits=RECORDS_LIMITS,
                ) as records,
                serve(
                    parts.pages(),
                    options.pages,
                    context=parts.pages_context,
                    drain=options.drain,
                    limits=PAGES_LIMITS,
                ) as pages,
            ):
                parts.start(start)
                parts.start_certificates(start)
                log.info("serving", pages=pages, records=records, health=health, version=version())
                await stop.wait()
                log.info("draining", seconds=options.drain)


class ConsoleParts:
    """Everything that the ports share."""

    def __init__(
        self, client: Client, options: ConsoleOptions, *, store: RecordStore, writer: StoreThread
    ) -> None:
        """Make the parts; nothing runs yet. Raises ``OSError`` and SessionKeyError."""
        self._client = client
        self._options = options
        self._store = store
        self._writer = writer
        self._clock = SYSTEM
        self.prometheus: PrometheusClient | None = None
        self.metrics = ConsoleMetrics(version=version())
        self.metrics.set_store_limit(options.retention.size)
        self.cluster = LiveCluster(client, namespace=options.namespace)
        folder, viewers = options.certificates, options.viewers
        self._senders_ca = AuthorityFile(folder / "ca.crt")
        self._proxy_ca = AuthorityFile(viewers.proxy_ca)
        self.records_tls = ServingPair(client_ca=self._senders_ca.text, mutual=True)
        self.pages_tls = ServingPair(client_ca=self._viewers_ca, optional=True)
        self.authenticator = self._authenticator(viewers)
        source = RecordSource(
            Component.CONSOLE,
            instance=options.instance,
            version=version(),
            entropy=secrets.randbits(ENTROPY_BITS),
        )
        self._certificate_log = ConsoleCertificateLog(writer=writer, source=source)

    @property
    def pages_context(self) -> ssl.SSLContext | None:
        """Return the TLS of the pages; on loopback, open to all, there is none."""
        return None if self._options.viewers.read_all else self.pages_tls.context

    def _viewers_ca(self) -> str:
        """Return all authorities whose certificates the port of the pages takes."""
        return "\n".join(filter(None, (self.cluster.client_ca, self._proxy_ca.text())))

    def _authenticator(self, viewers: AccessOptions) -> Authenticator:
        keys = parse_keys(viewers.session_keys.read_text()) if viewers.session_keys else ()
        namespaces = self.cluster.namespaces
        return Authenticator(
            tokens=TokenReviewer(self._client),
            rights=ViewerRights(self._client, namespaces, people=viewers.people),
            sessions=SessionCodec(keys),
            cluster_ca=lambda: self.cluster.client_ca,
            proxy_ca=self._proxy_ca.text,
            proxy=viewers.proxy,
        )

    def start(self, start: Start) -> None:
        """Start what follows the cluster and keeps the store."""
        start(self.cluster.run(), "cluster")
        start(self._writer.prune_for_ever(self._options.retention), "retention")
        start(self._count_for_ever(), "figures")
        authorities = AuthoritiesController(
            client=self._client,
            namespace=self._options.namespace,
            authorities=self._senders_ca.text,
        )
        start(authorities.run(), "authorities")
        start(freeze_when_settled(lambda: self.cluster.synced), "memory")

    def start_certificates(self, start: Start) -> None:
        """Start what rereads certificates and authorities."""
        start(self._certificate_log.run(), "records of certificates")
        folder = self._options.certificates
        pair = PairFiles(certificate=folder / "tls.crt", key=folder / "tls.key")
        ports = (
            (self.records_tls, "records", lambda: True),
            # Whoever calls earlier would not be asked for a certificate.
            (self.pages_tls, "pages", lambda: self.cluster.client_ca_read),
        )
        for serving, name, known in ports:
            authorities = (self._senders_ca, self._proxy_ca)
            read_pair = Reread(pair=pair, authorities=authorities, known=known)
            controller = RefreshController(
                serving=serving,
                read_pair=read_pair,
                announce=_announce if name == "pages" else self._announce,
                note_loaded=self._certificate_log.note_loaded,
            )
            start(controller.run(), f"certificates of {name}")

    def _announce(self, notice: Notice) -> None:
        """Log a notice about the certificate, which both ports have, and record it."""
        _announce(notice)
        self._certificate_log.announce(notice)

    def services(self) -> PageServices:
        """Return what pages and their data are made from."""
        return PageServices(
            store=self._store,
            viewer=everybody() if self._options.viewers.read_all else self.authenticator.viewer,
            cluster=self.cluster.view,
            pods=self.cluster.pods,
            age=self.cluster.age,
            now=self._clock.wall,
            query=None if self.prometheus is None else self.prometheus.query,
            version=version(),
            notice=NOTICE if self._options.viewers.read_all else "",
            login=not self._options.viewers.read_all,
        )

    def receiver(self) -> App:
        """Return what serves the port of records."""
        webhook = f"system:serviceaccount:{self._options.namespace}:vgpu-webhook"
        agent = f"system:serviceaccount:{self._options.agents}:vgpu-agent"
        server = RecordsServer(
            tokens=TokenReviewer(self._client, audience=AUDIENCE),
            accounts=SenderAccounts(webhook=webhook, agent=agent),
            writer=self._writer,
            metrics=self.metrics,
            nodes_of=self._nodes_of,
            node_limits=NodeLimits(self._options.node_records),
        )
        return server.app()

    def _nodes_of(self, pod_uids: Collection[str]) -> Mapping[str, Collection[str]]:
        return known_nodes(pod_uids, live=self.cluster.node_of, bound=self._store.bound_nodes)

    def pages(self) -> App:
        """Return what serves the port of pages."""
        viewers = self._options.viewers
        services = self.services()
        routes: list[BaseRoute] = [*api_routes(services), *page_routes(services)]
        if not viewers.read_all:
            login = LoginServer(
                authenticator=self.authenticator,
                count=self.metrics.count_login,
                style=static_files()["console.css"].address,
                hours=viewers.session.total_seconds() / 3600,
            )
            routes += login.routes()
        return ProtectedPages(
            pages_app(routes),
            observe=self.metrics.observe_request,
            loopback_only=viewers.read_all,
        )

    def status(self, stopping: Callable[[], bool]) -> App:
        """Return what serves health and metrics."""

        def why_not_ready() -> str:
            if stopping():
                return "stopping"
            return "" if self._serves else "no valid serving certificate yet"

        return status_app(why_not_ready, lambda: self.metrics.text(self._refresh))

    @property
    def _serves(self) -> bool:
        pages = self._options.viewers.read_all or self.pages_tls.ready
        return self.records_tls.ready and pages

    def _refresh(self) -> None:
        self.metrics.waiting.set(self._writer.waiting)
        self.metrics.set_watches(last_message_times(self.cluster.watches))
        if self.records_tls.not_after is not None:
            self.metrics.set_certificate_expiry(self.records_tls.not_after.timestamp())

    async def _count_for_ever(self) -> Never:
        while True:
            try:
                self.metrics.set_figures(await asyncio.to_thread(self._store.figures))
            except StoreError as error:
                log.warning("store not counted", why=str(error))
            await self._clock.sleep(FIGURES_SECONDS)


@dataclass(slots=True)
class AuthorityFile:
    """Authorities in a file that somebody else keeps; none while it cannot be read."""

    path: Path | None
    _text: str = field(default="", init=False)
    _why: str = field(default="", init=False)  # it could not be read the last time

    def text(self) -> str:
        """Return what was read last, PEM."""
        return self._text

    def reread(self) -> None:
        """Read the file again; where that fails, what was read last stays."""
        if self.path is None:
            return
        try:
            self._text, why = self.path.read_text(), ""
        except (OSError, UnicodeDecodeError) as error:
            why = str(error)
            if why != self._why:  # it is tried again every few seconds
                log.warning("authorities not read", file=str(self.path), why=why)
        self._why = why


@dataclass(frozen=True, slots=True, kw_only=True)
class Reread:
    """Reads a pair, and the authorities of callers beside it; *known* waits for the others."""

    pair: PairFiles
    authorities: tuple[AuthorityFile, ...]
    known: Callable[[], bool]

    async def __call__(self) -> Pair | None:
        """Read everything, or nothing yet; raises ``OSError``."""
        for each in self.authorities:
            await asyncio.to_thread(each.reread)
        return await self.pair() if self.known() else None


def pages_app(routes: list[BaseRoute]) -> Starlette:
    """Return the application of *routes*, with the answers that all of them share."""
    app = Starlette(
        routes=routes,
        exception_handlers={
            ReviewsUnavailableError: _unavailable,
            TooManyAttemptsError: _throttled,
            HTTPStatus.NOT_FOUND: _missing,
            HTTPStatus.METHOD_NOT_ALLOWED: _missing,
        },
    )
    app.router.redirect_slashes = False
    return app


def _unavailable(request: Request, error: Exception) -> Response:
    log.warning("viewer not known", why=str(error))
    text = "The API server cannot be asked what you may see just now. Try again in some seconds."
    return _problem(request, HTTPStatus.SERVICE_UNAVAILABLE, text, after=5)


def _throttled(request: Request, error: Exception) -> Response:
    seconds = int(error.seconds) + 1 if isinstance(error, TooManyAttemptsError) else 1
    return _problem(request, HTTPStatus.TOO_MANY_REQUESTS, str(error), after=seconds)


def _missing(request: Request, error: Exception) -> Response:
    status = HTTPStatus(getattr(error, "status_code", HTTPStatus.NOT_FOUND))
    return _problem(request, status, status.phrase)


def _problem(
    request: Request, status: HTTPStatus, text: str, *, after: int | None = None
) -> Response:
    if request.url.path.startswith("/api/"):
        return error_answer(status, text, after=after)
    headers = {} if after is None else {"retry-after": str(after)}
    return PlainTextResponse(f"{text}\n", status_code=status, headers=headers)


def everybody() -> Callable[[Request], Awaitable[Viewer | None]]:
    """Return who asks where everybody may see everything; forms still must be ours."""
    viewer = Viewer(user="everybody", scope=EVERYTHING, csrf=secrets.token_urlsafe(24))

    async def viewer_of(_request: Request) -> Viewer:
        return viewer

    return viewer_of


def _announce(notice: Notice) -> None:
    log.warning("serving certificate", reason=str(notice.reason), note=notice.note)
