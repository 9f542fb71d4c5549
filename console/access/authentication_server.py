"""Who sends a request to the pages' port: by proxy, token, certificate or cookie, in that order."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request

from allocator.cli.http_server import PEER_CERTIFICATE
from console.access.budgets import FailedAttempts
from console.access.client_certificate import (
    common_name,
    identity_of_certificate,
    is_issued_by,
    read_certificate,
)
from console.access.expiring_cache import ExpiringCache
from console.access.identity import UserIdentity
from console.access.proxy import ProxyRules, proxied_identity
from console.access.reviews_client import TokenReviewer
from console.access.rights_client import ViewerRights
from console.access.session import SESSION_COOKIE, Session, SessionCodec
from console.access.viewer import Viewer
from kube.clock import SYSTEM, Clock

MOST_ENDED: Final = 8192  # sessions that were logged out and whose time is not over


def bearer_token(request: Request) -> str:
    """Return the token of the only Authorization header; empty where there is none such."""
    given = request.headers.getlist("authorization")
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else ""


def address_of(request: Request) -> str:
    """Return where a request came from."""
    return request.client.host if request.client else ""


def nothing() -> str:
    """Return no authority."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticator:
    """Authenticates requests; ``viewer`` adds what somebody may see.

    ``cluster_ca`` and ``proxy_ca`` return authorities as PEM, which may change.
    """

    tokens: TokenReviewer
    rights: ViewerRights
    sessions: SessionCodec
    cluster_ca: Callable[[], str] = nothing
    proxy_ca: Callable[[], str] = nothing
    proxy: ProxyRules | None = None
    clock: Clock = SYSTEM
    failures: FailedAttempts = field(default_factory=FailedAttempts, init=False)
    _ended: ExpiringCache[str, bool] = field(
        default_factory=lambda: ExpiringCache(MOST_ENDED), init=False
    )

    async def viewer(self, request: Request) -> Viewer | None:
        """Return who asks and what they may see, ``None`` where nobody was authenticated.

        Raises ReviewsUnavailableError and TooManyAttemptsError.
        """
        session = None
        identity, decided = await self._shown(request)
        if not decided:
            session = self.session(request)
            identity = session.identity if session else None
        if identity is None:
            return None
        scope = await self.rights.scope(identity)
        return Viewer(
            user=identity.user,
            groups=identity.groups,
            scope=scope,
            csrf=session.csrf if session else self.sessions.token_of(identity),
        )

    async def _shown(self, request: Request) -> tuple[UserIdentity | None, bool]:
        """Return whom the request itself shows, and whether it shows anything at all.

        What is shown and not believed is not made up for by something else.
        """
        leaf = read_certificate(request.scope.get("state", {}).get(PEER_CERTIFICATE))
        now = self.clock.wall()
        if leaf is not None and self.proxy and is_issued_by(leaf, self.proxy_ca(), now):
            if common_name(leaf) not in self.proxy.names:
                return None, True
            return proxied_identity(request.headers.raw, self.proxy), True
        if "authorization" in request.headers:
            return await self.identity_of_token(bearer_token(request), address_of(request)), True
        if leaf is not None and is_issued_by(leaf, self.cluster_ca(), now):
            return identity_of_certificate(leaf), True
        return None, False

    async def identity_of_token(self, token: str, address: str) -> UserIdentity | None:
        """Return who holds *token*; an address that fails too often must wait.

        Raises ReviewsUnavailableError and TooManyAttemptsError.
        """
        now = self.clock.monotonic()
        # Others at the same address, behind a port-forward for example, take nothing from whoever
        # is known.
        if (known := self.tokens.known(token)) is not None:
            return known
        self.failures.check(address, now)
        identity = await self.tokens.identity(token)
        if identity is None:
            self.failures.note_failure(address, now)
        return identity

    def session(self, request: Request) -> Session | None:
        """Return the session of the cookie, ``None`` without one that is valid and not ended."""
        now = self.clock.wall().timestamp()
        session = self.sessions.open(request.cookies.get(SESSION_COOKIE, ""), now)
        return session if session and not self._ended.get(session.id, now) else None

    def end(self, session: Session) -> None:
        """Let nobody use *session* any more, even with a copy of its cookie."""
        self._ended.put(session.id, True, session.until)  # noqa: FBT003 -- a set with times
