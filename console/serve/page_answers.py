"""Answers from the store: what each page asks of it, off the event loop."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from http import HTTPStatus
from typing import Final

import structlog
from starlette.requests import Request

from console.cluster.snapshot import ClusterView
from console.explain.fit import fit_of
from console.explain.pod_amounts import imagined_pod
from console.explain.why import PodFacts, PodWhy, why
from console.languages.messages import PageMessage, message
from console.pages.audit.decision import TODAY, DecisionFacts, decision_page
from console.pages.audit.decisions import decisions_page
from console.pages.audit.health import HealthFacts, health_page
from console.pages.audit.namespaces import NamespaceUsage, namespaces_page
from console.pages.audit.overview import HOURS, OverviewFacts, overview_page
from console.pages.audit.reasons import reasons_page
from console.pages.audit.records import record_search, records_page
from console.pages.audit.replay_block import replay_block
from console.pages.audit.search import PERIODS, decision_search
from console.pages.audit.settings import settings_page
from console.pages.audit.waiting import waiting_page
from console.pages.fleet import usage
from console.pages.fleet.fit import decided_request
from console.pages.fleet.nodes import hidden_nodes
from console.pages.fleet.usage import IdleSlice, UsageSeries
from console.pages.parts.blocks import PageBlock, PageNote, PageQuestion, PageView
from console.pages.parts.cell import stamp
from console.pages.parts.visible import visible_pods, visible_site, visible_why
from console.records.query import (
    LARGEST_PAGE,
    DecisionFilter,
    PageRequest,
    PodOutcome,
    RecordFilter,
    Scope,
)
from console.records.rows import DecisionRow, StoredRecord
from console.replay.life import ReplaySource, life_candidates, replayed_life
from console.serve.page_services import PageServices

Answer = Callable[[PageServices, PageQuestion, Request], Awaitable[PageView]]
REFUSALS: Final = 10  # on the first page
MOST_IDLE: Final = 50  # whose persons are looked for
PROMETHEUS_SECONDS: Final = 5.0
MOST_NODES: Final = 500  # on which every view of a decision is decided again
_UNSERVED: Final = (PodOutcome.REFUSED, PodOutcome.WAITING)
_log = structlog.get_logger(__name__)


class ProblemError(Exception):
    """What is asked cannot be answered; the page says why, with a status."""

    def __init__(self, status: HTTPStatus, text: PageMessage) -> None:
        """Keep the status and the sentence."""
        super().__init__(text)
        self.status, self.text = status, text


def page_request(question: PageQuestion) -> PageRequest:
    """Return the page of a list that the address names."""
    return PageRequest(after=question.value("after"))


async def overview(services: PageServices, question: PageQuestion, _request: Request) -> PageView:
    """Return the first page."""
    store, scope = services.store, question.viewer.scope
    since = stamp(question.now - timedelta(hours=HOURS))
    row = await asyncio.to_thread(store.overview, scope, since)
    wanted = DecisionFilter(verdict="refused", since=since)
    refused = await asyncio.to_thread(store.decisions, scope, wanted, PageRequest(size=REFUSALS))
    site = services.cluster()
    seen = site is not None and scope.cluster
    fleet = await asyncio.to_thread(services.fleet.summary, site) if seen and site else None
    facts = OverviewFacts(row=row, refused=refused, fleet=fleet, is_read=site is not None)
    blocks = await usage_over_time(services, question)
    return await asyncio.to_thread(overview_page, question, facts, blocks)


async def decisions(services: PageServices, question: PageQuestion, _request: Request) -> PageView:
    """Return the page of decisions."""
    scope, page = question.viewer.scope, page_request(question)
    search = decision_search(question.values, question.now, people=scope.people)
    rows = await asyncio.to_thread(services.store.decisions, scope, search.filter, page)
    facets = await asyncio.to_thread(services.store.facets, scope, search.filter)
    return decisions_page(question, search, rows, facets=facets)


async def decision(services: PageServices, question: PageQuestion, request: Request) -> PageView:
    """Return the page of one decision."""
    digest, uid = request.path_params["digest"], request.path_params.get("uid", "")
    scope = question.viewer.scope
    row = await asyncio.to_thread(services.store.decision, scope, digest, uid)
    if row is None:
        text = message("No decision with this digest is stored, or it is not yours to see.")
        raise ProblemError(HTTPStatus.NOT_FOUND, text)
    life = await asyncio.to_thread(services.store.life, scope, row)
    site = services.cluster()
    scale = 0 if site is None else len(site.ledgers)
    postponed = scale > MOST_NODES and not question.value(TODAY)  # it takes seconds
    facts = await asyncio.to_thread(
        _decision_facts, services, question, row, life=life, site=None if postponed else site
    )
    return decision_page(question, replace(facts, postponed=scale if postponed else 0))


def _decision_facts(
    services: PageServices,
    question: PageQuestion,
    row: DecisionRow,
    *,
    life: Sequence[StoredRecord],
    site: ClusterView | None,
) -> DecisionFacts:
    """Decide again what was decided, and on the nodes of *site* where it is given."""
    scope, store, today = question.viewer.scope, services.store, None
    pod_why = None if site is None else _pod_why(services, question, row.pod_uid, site=site)
    unexplained = pod_why is None or pod_why.outlook is None
    request = decided_request(row)
    if row.state in _UNSERVED and unexplained and site is not None and request is not None:
        today = fit_of(request, imagined_pod(row.namespace), site)
    source = ReplaySource(
        settings=store.settings, snapshot=store.snapshot, version=services.version
    )
    replayed = replayed_life(life, source, site=site if scope.cluster else None)
    if scope.cluster:
        replayed = replace(replayed, candidates=life_candidates(life, source))
    return DecisionFacts(
        row=row,
        life=life,
        why=pod_why,
        today=today,
        limited=not scope.cluster,
        replay=replay_block(replayed),
    )


def _pod_why(
    services: PageServices, question: PageQuestion, uid: str, *, site: ClusterView
) -> PodWhy | None:
    """Return what became of a pod that exists; ``None`` for one that does not."""
    scope = question.viewer.scope
    pods = visible_pods(scope, services.pods()) if uid else ()
    pod = next((pod for pod in pods if pod.metadata.uid == uid), None)
    if pod is None:
        return None
    return visible_why(scope, why(PodFacts(pod=pod, site=visible_site(scope, site))))


async def waiting(services: PageServices, question: PageQuestion, _request: Request) -> PageView:
    """Return the page of waiting pods."""
    store, scope = services.store, question.viewer.scope
    row = await asyncio.to_thread(store.overview, scope, stamp(question.now))
    wanted = DecisionFilter(state=str(PodOutcome.WAITING))
    page = await asyncio.to_thread(store.decisions, scope, wanted, page_request(question))
    kinds = RecordFilter(kinds=frozenset(["waiting"]))
    latest = PageRequest(size=LARGEST_PAGE)
    records = await asyncio.to_thread(store.records, scope, kinds, latest)
    return waiting_page(question, row.waiting, page, records=records.rows)


async def records(services: PageServices, question: PageQuestion, _request: Request) -> PageView:
    """Return the page of records."""
    search = record_search(question.values)
    scope, page = question.viewer.scope, page_request(question)
    rows = await asyncio.to_thread(services.store.records, scope, search.filter, page)
    return records_page(question, search, rows)


async def settings(services: PageServices, question: PageQuestion, _request: Request) -> PageView:
    """Return the history of settings."""
    scope = question.viewer.scope
    if not scope.cluster:
        return hidden_nodes(message("Settings"))
    wanted = RecordFilter(kinds=frozenset(["settings"]))
    rows = await asyncio.to_thread(services.store.records, scope, wanted, page_request(question))
    return await asyncio.to_thread(settings_page, question, rows)


async def reasons(_services: PageServices, question: PageQuestion, _request: Request) -> PageView:
    """Return the page of reasons."""
    return reasons_page(question)


async def health(services: PageServices, question: PageQuestion, _request: Request) -> PageView:
    """Return the page of health."""
    store, scope = services.store, question.viewer.scope
    if not scope.cluster:
        return hidden_nodes(message("Health"))
    row = await asyncio.to_thread(store.overview, scope, stamp(question.now))
    latest = {}
    for kind in ("certificate", "settings"):
        wanted = RecordFilter(kinds=frozenset([kind]))
        page = await asyncio.to_thread(store.records, scope, wanted, PageRequest(size=1))
        latest[kind] = page.rows
    facts = HealthFacts(
        figures=await asyncio.to_thread(store.figures),
        last_record=row.last_record,
        certificates=latest["certificate"],
        settings=latest["settings"],
        site=services.cluster(),
        measured=services.query is not None,
    )
    return await asyncio.to_thread(health_page, question, facts)


async def namespaces(services: PageServices, question: PageQuestion, _request: Request) -> PageView:
    """Return the page of namespaces."""
    scope, period = question.viewer.scope, question.value("since")
    length = PERIODS.get(period, ("", None))[1]
    if length is None:
        period, length = "7d", timedelta(days=7)
    since, until = stamp(question.now - length), stamp(question.now)
    rows = await asyncio.to_thread(services.store.usage, scope, since, until)
    used = await ask(services, usage.by_namespace(usage.USED, scope))
    idle = await ask(services, usage.idle_since(scope))
    if used is None or idle is None:
        missing = usage.WITHOUT if services.query is None else usage.UNANSWERED
        return namespaces_page(question, period, rows, usage=None, missing=missing)
    slices = usage.idle_slices(idle)[:MOST_IDLE]
    found = [(one, await asyncio.to_thread(_running, services, scope, one)) for one in slices]
    known = NamespaceUsage(used=usage.amounts_by_namespace(used), idle=found)
    return namespaces_page(question, period, rows, usage=known)


def _running(services: PageServices, scope: Scope, idle: IdleSlice) -> DecisionRow | None:
    """Return the latest decision that let the pod of *idle* in."""
    wanted = DecisionFilter(namespace=idle.namespace, pod=idle.pod, verdict="rewritten")
    rows = services.store.decisions(scope, wanted, PageRequest(size=1)).rows
    return rows[0] if rows and rows[0].pod == idle.pod else None


async def ask(services: PageServices, question: str) -> tuple[UsageSeries, ...] | None:
    """Return the answer of Prometheus; ``None`` where there is none, or it does not answer."""
    if services.query is None:
        return None
    try:
        async with asyncio.timeout(PROMETHEUS_SECONDS):
            return usage.series_of(await services.query(question))
    except Exception as error:  # noqa: BLE001 -- whatever it is, the page goes without
        _log.warning("Prometheus not asked", error=str(error))
        return None


async def usage_over_time(services: PageServices, question: PageQuestion) -> tuple[PageBlock, ...]:
    """Return what was used and promised over the last day, or why that is not known."""
    if services.query is None:
        return (PageNote(text=usage.WITHOUT),)
    scope = question.viewer.scope
    used = await ask(services, usage.over_time(usage.USED, scope))
    promised = await ask(services, usage.over_time(usage.PROMISED, scope))
    if used is None or promised is None:
        return (PageNote(text=usage.UNANSWERED),)
    blocks = tuple(usage.usage_blocks(used, promised, question.now))
    return blocks or (PageNote(text=message("Prometheus has no samples of the last day.")),)


def visible_cluster(services: PageServices, question: PageQuestion) -> ClusterView:
    """Return the nodes as the viewer may see them; raises :class:`ProblemError`."""
    return visible_site(question.viewer.scope, needed_cluster(services))


def needed_cluster(services: PageServices) -> ClusterView:
    """Return the nodes; raises :class:`ProblemError` where they are not known yet."""
    site = services.cluster()
    if site is None:
        text = message("Nodes and pods have not been read yet; try again in a few seconds.")
        raise ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, text)
    return site


ANSWERS: Final[tuple[tuple[str, Answer], ...]] = (
    ("/", overview),
    ("/decisions", decisions),
    ("/decisions/{digest}", decision),
    ("/decisions/{digest}/{uid}", decision),
    ("/waiting", waiting),
    ("/namespaces", namespaces),
    ("/records", records),
    ("/settings", settings),
    ("/health", health),
    ("/reasons", reasons),
)
