"""The console's ports in tests: served on loopback, asked over TLS."""

import asyncio
import contextlib
import io
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import ClientResponse, ClientSession
from multidict import CIMultiDict
from yarl import URL

from allocator.cli.http_server import App, ConnectionLimits, Listen, serve
from console.access.authentication_server import Authenticator
from console.access.login_server import LoginServer
from console.access.proxy import ProxyRules
from console.access.reviews_client import TokenReviewer
from console.access.rights_client import ViewerRights
from console.access.session import SessionCodec
from console.cluster.pod import PodView
from console.cluster.snapshot import ClusterView
from console.receive.console_metrics import ConsoleMetrics
from console.receive.node_limits import NodeLimits
from console.receive.records_server import RecordsServer
from console.receive.sender import PodNodes, SenderAccounts, no_pod_nodes
from console.receive.store_thread import StoreThread
from console.serve.api_routes import api_routes
from console.serve.console import pages_app
from console.serve.page_routes import page_routes
from console.serve.page_services import PageServices
from console.serve.protection import ProtectedPages
from console.store.store import RecordStore
from kube.clock import SYSTEM, Clock
from tests.fakes.pki import Authority, Issued
from tests.fakes.reviews import FakeReviews

LOOPBACK = Listen("127.0.0.1", 0)
OURS, CLUSTER, PROXIES = Authority("ours"), Authority("cluster"), Authority("proxies")
WEBHOOK = "system:serviceaccount:vgpu-admission-system:vgpu-webhook"
AGENT = "system:serviceaccount:vgpu-admission-agents:vgpu-agent"
CLAIM = "authentication.kubernetes.io/node-name"
NAMESPACES = frozenset({"a", "b"})


def client_tls(issued: Issued | None = None) -> ssl.SSLContext:
    """Return a client that trusts our servers, and shows a certificate if it has one."""
    context = ssl.create_default_context(cadata=OURS.certificate.decode())
    if issued is not None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(issued.certificate + issued.key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def server_tls(*authorities: Authority, optional: bool = False) -> ssl.SSLContext:
    """Return a server of ours; callers show, or may show, a certificate of *authorities*."""
    context = OURS.server()
    if authorities:
        text = "".join(each.certificate.decode() for each in authorities)
        context.load_verify_locations(cadata=text)
        context.verify_mode = ssl.CERT_OPTIONAL if optional else ssl.CERT_REQUIRED
    return context


@dataclass(slots=True)
class Site:
    """One port and what is behind it."""

    reviews: FakeReviews
    metrics: ConsoleMetrics = field(default_factory=lambda: ConsoleMetrics(version="test"))
    url: str = ""
    port: int = 0


def sender_reviews() -> FakeReviews:
    """Return an API server that knows the tokens of a webhook, agents and others."""
    reviews = FakeReviews()
    reviews.audience = "vgpu-console"
    reviews.add_user("webhook", WEBHOOK)
    reviews.add_user("agent-1", AGENT, extra={CLAIM: ["node-1"]})
    reviews.add_user("agent-2", AGENT, extra={CLAIM: ["node-2"]})
    reviews.add_user("agent-nowhere", AGENT)
    reviews.add_user("agent-both", AGENT, extra={CLAIM: ["node-1", "node-2"]})
    reviews.add_user("other", "system:serviceaccount:team:builder", extra={CLAIM: ["node-1"]})
    reviews.add_user("admin", "admin", groups=["system:masters"])
    return reviews


@contextlib.asynccontextmanager
async def records_port(
    store: RecordStore,
    *,
    clock: Clock = SYSTEM,
    limits: ConnectionLimits | None = None,
    nodes_of: PodNodes = no_pod_nodes,
    node_limits: NodeLimits | None = None,
) -> AsyncIterator[Site]:
    """Serve the port of records."""
    site = Site(sender_reviews())
    with contextlib.closing(StoreThread(store)) as writer:
        server = RecordsServer(
            tokens=TokenReviewer(site.reviews, audience="vgpu-console", clock=clock),
            accounts=SenderAccounts(webhook=WEBHOOK, agent=AGENT),
            writer=writer,
            metrics=site.metrics,
            nodes_of=nodes_of,
            node_limits=node_limits or NodeLimits(),
            clock=clock,
        )
        async with _served(server.app(), server_tls(OURS), site=site, limits=limits):
            yield site


@contextlib.asynccontextmanager
async def pages_port(  # noqa: PLR0913 -- what pages are made from
    store: RecordStore,
    *,
    clock: Clock = SYSTEM,
    limits: ConnectionLimits | None = None,
    query: Callable[[str], Awaitable[object]] | None = None,
    cluster: ClusterView | None = None,
    pods: tuple[PodView, ...] = (),
) -> AsyncIterator[Site]:
    """Serve the port of pages: pages, data and login."""
    site = Site(FakeReviews())
    authenticator = Authenticator(
        tokens=TokenReviewer(site.reviews, clock=clock),
        rights=ViewerRights(site.reviews, lambda: NAMESPACES, clock=clock),
        sessions=SessionCodec(),
        cluster_ca=CLUSTER.certificate.decode,
        proxy_ca=PROXIES.certificate.decode,
        proxy=ProxyRules(names=frozenset({"proxy"})),
        clock=clock,
    )
    services = PageServices(
        store=store,
        viewer=authenticator.viewer,
        cluster=lambda: cluster,
        pods=lambda: pods,
        now=clock.wall,
        query=query,
    )
    login = LoginServer(authenticator=authenticator, count=site.metrics.count_login)
    routes = [*api_routes(services), *page_routes(services), *login.routes()]
    app = ProtectedPages(pages_app(list(routes)), observe=site.metrics.observe_request)
    async with _served(app, server_tls(CLUSTER, PROXIES, optional=True), site=site, limits=limits):
        yield site


@contextlib.asynccontextmanager
async def _served(
    app: App, tls: ssl.SSLContext, *, site: Site, limits: ConnectionLimits | None
) -> AsyncIterator[None]:
    bounds = limits or ConnectionLimits()
    async with serve(app, LOOPBACK, context=tls, drain=1, limits=bounds) as port:
        site.port, site.url = port, f"https://127.0.0.1:{port}"
        yield


@contextlib.asynccontextmanager
async def asked(
    url: str,
    *,
    tls: ssl.SSLContext,
    method: str = "GET",
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
    data: bytes = b"",
) -> AsyncIterator[ClientResponse]:
    """Ask once, on a connection of its own, following no redirect."""
    timeout = aiohttp.ClientTimeout(total=30)
    body = io.BytesIO(data) if data else None
    async with (
        ClientSession(cookie_jar=aiohttp.DummyCookieJar(), timeout=timeout) as session,
        session.request(
            method,
            URL(url, encoded=True),
            ssl=tls,
            allow_redirects=False,
            headers=CIMultiDict(headers),
            data=body,
        ) as response,
    ):
        yield response


async def answer(
    url: str,
    *,
    tls: ssl.SSLContext,
    method: str = "GET",
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
    data: bytes = b"",
) -> tuple[int, Any]:
    """Return the status, and the JSON of an answer, or its text where it is none."""
    async with asked(url, tls=tls, method=method, headers=headers, data=data) as response:
        text = await response.text()
        kind = response.headers.get("content-type", "")
        return response.status, json.loads(text) if kind == "application/json" else text


def bearer(token: str) -> Mapping[str, str]:
    """Return the header that shows a token."""
    return {"Authorization": f"Bearer {token}"}


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario to its end."""

    async def run() -> None:
        await scenario()

    asyncio.run(run())
