"""Logging in with a bearer token, and out again."""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import structlog
from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from allocator.model.untrusted import inert
from console.access.authentication_server import Authenticator, address_of
from console.access.budgets import TooManyAttemptsError
from console.access.identity import UserIdentity
from console.access.reviews_client import LONGEST_TOKEN, ReviewsUnavailableError
from console.access.session import (
    FORM_COOKIE,
    FORM_SECONDS,
    SESSION_COOKIE,
    Session,
    SessionTooLargeError,
    token_expiry,
)
from console.languages.choice import (
    KEY,
    LanguageChoice,
    language_choice,
    named_language,
    with_language,
)
from console.languages.messages import PageMessage, message
from console.languages.template_files import language_environment

LOGIN: Final = "/login"
LOGOUT: Final = "/logout"
VARY: Final = {"vary": "Accept-Language"}
LARGEST_FORM: Final = 64 * 1024  # bytes
MOST_FIELDS: Final = 8
LONGEST_NEXT: Final = 2048  # characters of the address that follows a login
DEFAULT_HOURS: Final = 8.0  # that a session lasts at most
_OWN_SITES: Final = frozenset({"", "same-origin", "none"})  # of Sec-Fetch-Site
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginServer:
    """Answers ``/login`` and ``/logout``; *count* is told what became of each login."""

    authenticator: Authenticator
    count: Callable[[str], None]
    style: str = ""  # address of the style sheet
    hours: float = DEFAULT_HOURS

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route(LOGIN, self.form, methods=["GET"]),
            Route(LOGIN, self.log_in, methods=["POST"]),
            Route(LOGOUT, self.farewell, methods=["GET"]),
            Route(LOGOUT, self.log_out, methods=["POST"]),
        ]

    async def form(self, request: Request) -> Response:
        """Return the form, and the cookie that its hidden field must match."""
        return await self._page(request, safe_next(request.query_params.get("next", "")))

    async def log_in(self, request: Request) -> Response:
        """Exchange a token for a session."""
        fields = await form_fields(request)
        following = safe_next(fields.get("next", "")) if fields else "/"
        if fields is None or not self._is_ours(request, fields.get("csrf", "")):
            text = message("The form was too old, or came from another site. Try again.")
            return await self._page(request, following, text, status=HTTPStatus.FORBIDDEN)
        token = fields.get("token", "").strip()
        try:
            identity = await self.authenticator.identity_of_token(token, address_of(request))
        except TooManyAttemptsError as error:
            self.count("throttled")
            page = await self._page(
                request, following, _attempts_text(error), status=HTTPStatus.TOO_MANY_REQUESTS
            )
            page.headers["retry-after"] = str(int(error.seconds) + 1)
            return page
        except ReviewsUnavailableError as error:
            log.warning("login not reviewed", why=str(error))
            text = message("The API server cannot be asked who holds a token just now.")
            return await self._page(request, following, text, status=HTTPStatus.SERVICE_UNAVAILABLE)
        if identity is None:
            self.count("refused")
            text = message("The API server does not know this token, or it has expired.")
            return await self._page(request, following, text, status=HTTPStatus.UNAUTHORIZED)
        return await self._begin(request, identity, token, following=following)

    async def farewell(self, request: Request) -> Response:
        """Return the form that ends a session."""
        session = self.authenticator.session(request)
        if session is None:
            return _redirect(request)
        choice = _language(request)
        text = await _html(
            choice,
            "logout.html",
            csrf=session.csrf,
            user=inert(session.identity.user),
            style=self.style,
            other=with_language(LOGOUT, choice.other),
        )
        return Response(text, media_type="text/html", headers=VARY)

    async def log_out(self, request: Request) -> Response:
        """End the session, so that no copy of its cookie is of use either."""
        fields, session = await form_fields(request), self.authenticator.session(request)
        if session is not None:
            if not from_own_site(request) or not session.has_token((fields or {}).get("csrf", "")):
                text = message("The form came from another site. Use the button of a page of ours.")
                return await self._page(request, "/", text, status=HTTPStatus.FORBIDDEN)
            self.authenticator.end(session)
        response = _redirect(request)
        _set_cookie(response, SESSION_COOKIE, "", seconds=0)
        return response

    async def _begin(
        self, request: Request, identity: UserIdentity, token: str, *, following: str
    ) -> Response:
        now = self.authenticator.clock.wall().timestamp()
        ends = token_expiry(token)
        until = min(now + self.hours * 3600, ends or float("inf"))
        session = Session(id=_nonce(), csrf=_nonce(), until=until, identity=identity)
        try:
            sealed = self.authenticator.sessions.seal(session, now)
        except SessionTooLargeError as error:
            self.count("refused")
            return await self._page(
                request, following, _sentence(error), status=HTTPStatus.FORBIDDEN
            )
        self.count("accepted")
        log.info("logged in", user=inert(identity.user)[:253])
        response = RedirectResponse(following, HTTPStatus.SEE_OTHER)
        _set_cookie(response, SESSION_COOKIE, sealed, seconds=max(0, int(until - now)))
        _set_cookie(response, FORM_COOKIE, "", seconds=0)
        return response

    def _is_ours(self, request: Request, csrf: str) -> bool:
        """Say whether a login form is one that this browser was given."""
        cookie = request.cookies.get(FORM_COOKIE, "")
        now = self.authenticator.clock.wall().timestamp()
        return from_own_site(request) and self.authenticator.sessions.is_form(cookie, csrf, now)

    async def _page(
        self,
        request: Request,
        following: str,
        problem: str = "",
        *,
        status: HTTPStatus = HTTPStatus.OK,
    ) -> Response:
        csrf, choice = _nonce(), _language(request)
        text = await _html(
            choice,
            "login.html",
            csrf=csrf,
            following=choice.kept(following),
            problem=problem,
            style=self.style,
            longest=LONGEST_TOKEN,
            other=_other_login(following, choice),
        )
        response = Response(text, status_code=status, media_type="text/html", headers=VARY)
        now = self.authenticator.clock.wall().timestamp()
        sealed = self.authenticator.sessions.seal_form(csrf, now)
        _set_cookie(response, FORM_COOKIE, sealed, seconds=int(FORM_SECONDS))
        return response


async def _html(choice: LanguageChoice, name: str, **values: object) -> str:
    """Return a page; the first of each name is read from a file."""
    template = await asyncio.to_thread(_environment(choice).get_template, name)
    return template.render(values)


@cache
def _environment(choice: LanguageChoice) -> Environment:
    """Return the templates for one of the four choices, read once."""
    return language_environment(choice)


def _language(request: Request) -> LanguageChoice:
    """Return the language that the address names, or the browser prefers."""
    header = request.headers.get("accept-language", "")
    return language_choice(request.query_params.get(KEY, ""), header)


def _redirect(request: Request) -> RedirectResponse:
    """Return the way to the login, in the same language."""
    return RedirectResponse(_language(request).kept(LOGIN), HTTPStatus.SEE_OTHER)


def _other_login(following: str, choice: LanguageChoice) -> str:
    """Return the address of the login in the other language; so is what follows it."""
    if following == "/":
        return with_language(LOGIN, choice.other)
    there = urlencode({"next": with_language(following, choice.other)})
    return with_language(f"{LOGIN}?{there}", choice.other)


def _attempts_text(error: TooManyAttemptsError) -> PageMessage:
    return message(
        "Too many failed logins; try again in {seconds:.0f} seconds.", seconds=error.seconds
    )


def _nonce() -> str:
    """Return what nobody can guess."""
    return secrets.token_urlsafe(24)


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def _set_cookie(response: Response, name: str, value: str, *, seconds: int) -> None:
    response.set_cookie(
        name, value, max_age=seconds, path="/", secure=True, httponly=True, samesite="strict"
    )


def from_own_site(request: Request) -> bool:
    """Say whether a form was sent by a page of ours, as far as the browser says."""
    if request.headers.get("sec-fetch-site", "") not in _OWN_SITES:
        return False
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host", "")


def safe_next(text: str) -> str:
    """Return *text* where it is an address of ours, or else ``/``.

    Browsers read two slashes, or a slash and a backslash, as the beginning of another site.
    """
    ours = (
        text.startswith("/")
        and not text.startswith(("//", "/\\"))
        and len(text) <= LONGEST_NEXT
        and text.isascii()
        and text.isprintable()
        and "\\" not in text
    )
    return text if ours else "/"


def login_address(path: str, query: str) -> str:
    """Return the address of the form that leads back to where somebody wanted to go."""
    following = safe_next(f"{path}?{query}" if query else path)
    address = LOGIN if following == "/" else f"{LOGIN}?{urlencode({'next': following})}"
    return language_choice(named_language(query), "").kept(address)


async def form_fields(request: Request) -> dict[str, str] | None:
    """Return the fields of a form; ``None`` where it is too large or none of ours.

    The body is read here, because a parser of the framework would put large fields into files.
    """
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return None
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_FORM:
            return None
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"
        )
    except ValueError:
        return None
    return dict(pairs) if len(dict(pairs)) == len(pairs) else None
