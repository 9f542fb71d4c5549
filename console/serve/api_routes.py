"""The data behind the pages as JSON, for ``kubectl vgpu`` and scripts."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Final, TypeVar

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.access.budgets import TooManyAttemptsError
from console.access.reviews_client import ReviewsUnavailableError
from console.get.candidates import DecisionCandidates, in_english
from console.records import parameters
from console.records.parameters import ParameterError
from console.records.query import BadCursorError, Scope
from console.records.rows import DecisionRow, StoredRecord
from console.records.times import rfc3339
from console.replay.life import ReplaySource, life_candidates
from console.serve.page_services import PageServices
from console.serve.protection import CROWD_SECONDS, TooManyAnswersError
from console.store.store import RecordStore, StoreError
from console.use import figures
from console.use.prometheus_client import PrometheusError

ROOT: Final = "/api/v1"
USAGE_PERIOD: Final = timedelta(days=7)
OVERVIEW_PERIOD: Final = timedelta(days=1)
RETRY_SECONDS: Final = "5"
log = structlog.get_logger(__name__)
T = TypeVar("T")
Answer = Callable[[Request, Scope], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionDetail:
    """One decision, and all records of it and its pod, the earliest first."""

    decision: DecisionRow
    records: tuple[StoredRecord, ...]
    candidates: DecisionCandidates | None  # None: the viewer may not see nodes


class AnswerError(Exception):
    """An answer that is an error, with its status."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        """Keep the status."""
        super().__init__(why)
        self.status = status


def api_routes(services: PageServices) -> list[Route]:
    """Return the routes below ``/api/v1``; each asks who is there before anything else."""
    data = _Data(services)

    def route(path: str, answer: Answer) -> Route:
        async def endpoint(request: Request) -> Response:
            return await _answer(services, answer, request)

        return Route(f"{ROOT}{path}", endpoint, methods=["GET"])

    return [
        route("/decisions", data.decisions),
        route("/decisions/{digest}", data.decision),
        route("/decisions/{digest}/{uid}", data.decision),
        route("/records", data.records),
        route("/usage", data.usage),
        route("/overview", data.overview),
        route("/use", data.use),
    ]


async def _answer(services: PageServices, answer: Answer, request: Request) -> Response:
    try:
        viewer = await services.viewer(request)
    except TooManyAttemptsError as error:
        return error_answer(HTTPStatus.TOO_MANY_REQUESTS, str(error), after=int(error.seconds) + 1)
    except ReviewsUnavailableError as error:
        log.warning("viewer not known", why=str(error))
        return error_answer(HTTPStatus.SERVICE_UNAVAILABLE, "rights cannot be reviewed now")
    if viewer is None:
        return error_answer(HTTPStatus.UNAUTHORIZED, "show a bearer token or a certificate")
    try:
        return await services.places.answer(
            viewer.user, lambda: _answer_within(viewer.scope, answer, request)
        )
    except TooManyAnswersError as error:
        return error_answer(HTTPStatus.TOO_MANY_REQUESTS, str(error), after=CROWD_SECONDS)


async def _answer_within(scope: Scope, answer: Answer, request: Request) -> Response:
    try:
        return _json(await answer(request, scope))
    except (ParameterError, BadCursorError) as error:
        return error_answer(HTTPStatus.BAD_REQUEST, str(error))
    except AnswerError as error:
        return error_answer(error.status, str(error))
    except StoreError as error:
        log.error("store not read", why=str(error))  # noqa: TRY400 -- says it all
        return error_answer(HTTPStatus.SERVICE_UNAVAILABLE, "the store cannot be read now")


def _json(value: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def error_answer(status: HTTPStatus, why: str, *, after: int | None = None) -> Response:
    """Return an error as every route below ``/api`` has it."""
    response = _json({"error": why}, status)
    if status is HTTPStatus.UNAUTHORIZED:
        response.headers["www-authenticate"] = "Bearer"
    if after is not None or status is HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers["retry-after"] = RETRY_SECONDS if after is None else str(after)
    return response


class _Data:
    """Answers of the store, read in a thread."""

    def __init__(self, services: PageServices) -> None:
        self._services = services

    async def _read(self, question: Callable[[RecordStore], T]) -> T:
        return await asyncio.to_thread(question, self._services.store)

    def _since(self, before: timedelta) -> str:
        return rfc3339(int((self._services.now() - before).timestamp() * 1000))

    async def decisions(self, request: Request, scope: Scope) -> object:
        query, page = parameters.decision_filter(request.query_params.multi_items())
        return await self._read(lambda store: store.decisions(scope, query, page))

    async def decision(self, request: Request, scope: Scope) -> object:
        parameters.nothing_else(request.query_params.multi_items())
        digest, uid = request.path_params["digest"], request.path_params.get("uid", "")

        def read(store: RecordStore) -> DecisionDetail | None:
            row = store.decision(scope, digest, uid)
            if row is None:
                return None
            return self._detail(store, scope, row)

        found = await self._read(read) if _is_name(digest) and _is_name(uid) else None
        if found is None:
            raise AnswerError(HTTPStatus.NOT_FOUND, "no such decision, or none that you may see")
        return found

    def _detail(self, store: RecordStore, scope: Scope, row: DecisionRow) -> DecisionDetail:
        life = store.life(scope, row)
        version = self._services.version
        source = ReplaySource(settings=store.settings, snapshot=store.snapshot, version=version)
        candidates = in_english(life_candidates(life, source)) if scope.cluster else None
        return DecisionDetail(decision=row, records=life, candidates=candidates)

    async def records(self, request: Request, scope: Scope) -> object:
        query, page = parameters.record_filter(request.query_params.multi_items())
        return await self._read(lambda store: store.records(scope, query, page))

    async def usage(self, request: Request, scope: Scope) -> object:
        period = parameters.period(request.query_params.multi_items(), "since", "until")
        since, until = (
            period.since or self._since(USAGE_PERIOD),
            period.until or self._since(timedelta()),
        )
        rows = await self._read(lambda store: store.usage(scope, since, until))
        return {"since": since, "until": until, "rows": rows}

    async def overview(self, request: Request, scope: Scope) -> object:
        period = parameters.period(request.query_params.multi_items(), "since")
        since = period.since or self._since(OVERVIEW_PERIOD)
        return await self._read(lambda store: store.overview(scope, since))

    async def use(self, request: Request, scope: Scope) -> object:
        within = scope.within(parameters.namespace(request.query_params.multi_items()))
        query = self._services.query
        if query is None:
            text = "this console was given no Prometheus (--prometheus), so use is not known"
            raise AnswerError(HTTPStatus.NOT_IMPLEMENTED, text)
        of_gpus = figures.gpu_question(within)
        try:
            containers = await query(figures.container_question(within))
            gpus = None if of_gpus is None else await query(of_gpus)
        except PrometheusError as error:
            log.warning("Prometheus not asked", why=str(error))
            raise AnswerError(HTTPStatus.BAD_GATEWAY, "Prometheus does not answer") from error
        now = self._services.now().timestamp()
        return figures.UseAnswer(
            containers=figures.containers_in_use(containers, within, now),
            gpus=figures.gpus_in_use(gpus, within),
        )


def _is_name(text: str) -> bool:
    return len(text) <= parameters.LONGEST and "\0" not in text
