"""Routes of the pages: who asks, what is asked, and the answer as HTML, CSV or JSON."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Final

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from allocator.model.untrusted import quote
from allocator.report.document_text import document_text
from console.access.viewer import Viewer
from console.languages.choice import KEY, language_choice
from console.languages.messages import PageMessage, joined_text, message
from console.pages.parts.blocks import PageNote, PageQuestion, PageView
from console.pages.parts.export import (
    FORMATS,
    csv_lines,
    table_document,
    table_named,
    with_exports,
)
from console.records.query import BadCursorError
from console.serve import fleet_answers, page_answers
from console.serve.page_services import PageServices
from console.serve.page_templates import PageTemplates
from console.serve.protection import CROWD_SECONDS, TooManyAnswersError
from console.serve.static_files import CACHING, StaticFile, static_files
from console.store.store import StoreError

MOST_VALUES: Final = 32  # in one address
LONGEST_VALUE: Final = 2048  # characters
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self';"
    " img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_log = structlog.get_logger(__name__)


def page_routes(services: PageServices) -> list[Route]:
    """Return the routes of all pages and of what they name; raises ``OSError``."""
    files = static_files()
    templates = PageTemplates(files, services)
    pages = [
        Route(path, _endpoint(services, templates, answer), methods=["GET"], name=path)
        for path, answer in (*page_answers.ANSWERS, *fleet_answers.ANSWERS)
    ]
    form = Route(
        "/fit",
        _endpoint(services, templates, fleet_answers.manifest_fit),
        methods=["POST"],
        name="/fit by manifest",
    )
    return [*pages, form, *(_static_route(file) for file in files.values())]


def _static_route(file: StaticFile) -> Route:
    async def endpoint(_request: Request) -> Response:
        headers = {**HEADERS, "cache-control": CACHING}
        return Response(file.content, media_type=file.media_type, headers=headers)

    return Route(file.address, endpoint, methods=["GET"])


def _endpoint(
    services: PageServices, templates: PageTemplates, answer: page_answers.Answer
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        viewer = await services.viewer(request)
        if viewer is None:
            question = _question(request, Viewer(user=""), services.now())
            text = message("Nobody is signed in, so nothing is shown.")
            view = _problem(HTTPStatus.UNAUTHORIZED, text)
            return _html(templates, view, replace(question, values={}))
        question = _question(request, viewer, services.now())
        try:
            return await services.places.answer(viewer.user, lambda: answered(question, request))
        except TooManyAnswersError:
            text = message("Too many answers to you are under way; ask again in a second.")
            refusal = _html(templates, _problem(HTTPStatus.TOO_MANY_REQUESTS, text), question)
            refusal.headers["retry-after"] = str(CROWD_SECONDS)
            return refusal

    async def answered(question: PageQuestion, request: Request) -> Response:
        try:
            view = await answer(services, question, request)
        except page_answers.ProblemError as error:
            view = _problem(error.status, error.text)
        except BadCursorError:
            text = message("This page of the list does not exist; begin again at its first page.")
            view = _problem(HTTPStatus.BAD_REQUEST, text)
        except StoreError as error:
            _log.warning("store not read", error=str(error))
            text = message("The store of records cannot be read just now; the console logs why.")
            view = _problem(HTTPStatus.SERVICE_UNAVAILABLE, text)
        return _response(templates, view, question)

    return endpoint


def _question(request: Request, viewer: Viewer, now: datetime) -> PageQuestion:
    """Return what *viewer* asks, and in which language."""
    values = _values(request)
    header = request.headers.get("accept-language", "")
    return PageQuestion(
        path=request.url.path,
        values=values,
        viewer=viewer,
        now=now,
        language=language_choice(values.get(KEY, ""), header),
    )


def _values(request: Request) -> dict[str, str]:
    """Return the values of the address, the last of each name, bounded."""
    pairs = request.query_params.multi_items()[:MOST_VALUES]
    return {key: value[:LONGEST_VALUE] for key, value in pairs}


_STATUSES: Final = {
    HTTPStatus.BAD_REQUEST: message("Bad Request"),
    HTTPStatus.UNAUTHORIZED: message("Unauthorized"),
    HTTPStatus.FORBIDDEN: message("Forbidden"),
    HTTPStatus.NOT_FOUND: message("Not Found"),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: message("Request Entity Too Large"),
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: message("Unsupported Media Type"),
    HTTPStatus.TOO_MANY_REQUESTS: message("Too Many Requests"),
    HTTPStatus.SERVICE_UNAVAILABLE: message("Service Unavailable"),
}


def _problem(status: HTTPStatus, text: PageMessage) -> PageView:
    heading = _STATUSES.get(status, joined_text("", (status.phrase,)))
    return PageView(
        title=heading,
        heading=heading,
        blocks=(PageNote(text=text),),
        status=status,
        refreshes=False,
    )


def _response(templates: PageTemplates, view: PageView, question: PageQuestion) -> Response:
    """Return *view* in the format that is asked for."""
    form = question.value("format")
    if not form or view.status != HTTPStatus.OK:
        return _html(templates, with_exports(view, question), question)
    if form not in FORMATS:
        text = message(
            "format {value} is not known; accepted: {formats}",
            value=quote(form),
            formats=", ".join(FORMATS),
        )
        return _html(templates, _problem(HTTPStatus.BAD_REQUEST, text), question)
    name = question.value("table")
    if form == "json" and view.document is not None and not name:
        return _json(dict(view.document))
    table = table_named(view, name)
    if table is None:
        names = ", ".join(one.name for one in view.tables) or "none"
        text = message(
            "table {value} is not on this page; accepted: {names}", value=quote(name), names=names
        )
        return _html(templates, _problem(HTTPStatus.NOT_FOUND, text), question)
    if form == "json":
        return _json(table_document(table, question))
    lines = "\r\n".join(csv_lines(table)) + "\r\n"
    disposition = f'attachment; filename="{table.name}.csv"'
    headers = {**HEADERS, "content-disposition": disposition}
    body = lines.encode(errors="replace")
    return Response(body, media_type="text/csv; charset=utf-8", headers=headers)


def _json(document: dict[str, object]) -> Response:
    body = document_text(document, yaml=False) + "\n"
    return Response(body.encode(errors="replace"), media_type="application/json", headers=HEADERS)


def _html(templates: PageTemplates, view: PageView, question: PageQuestion) -> Response:
    text = templates.html(view, question)
    return Response(
        text.encode(errors="replace"),
        status_code=view.status,
        media_type="text/html; charset=utf-8",
        headers={**HEADERS, "vary": "Accept-Language"},
    )
