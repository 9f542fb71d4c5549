"""Asks the API server who holds a token, and what somebody may do."""

import asyncio
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from console.access.expiring_cache import ExpiringCache
from console.access.identity import UserIdentity
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import KubeError

TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 -- a path
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
LONGEST_TOKEN: Final = 12 * 1024  # characters; the head of a request has 16 KiB
REVIEW_SECONDS: Final = 5.0  # for one review, its retries included
KNOWN_SECONDS: Final = 30.0  # for which a token is believed without asking again
UNKNOWN_SECONDS: Final = 10.0  # for which it is refused without asking again
MOST_TOKENS: Final = 8192  # remembered: agents of 5,000 nodes each have one
AT_ONCE: Final = 16  # reviews of tokens under way
MOST_WAITING: Final = 256  # for their turn


class ReviewsUnavailableError(Exception):
    """The API server could not be asked; nothing is granted meanwhile."""


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()
    audiences: tuple[str, ...] | None = None


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource of the core group; namespace "" means all of them."""

    verb: str
    resource: str
    namespace: str = ""


async def review_token(client: ApiClient, token: str, audience: str = "") -> UserIdentity | None:
    """Return who holds *token*, ``None`` where nobody does; raises ReviewsUnavailableError.

    With an *audience*, the token must have been issued for it.
    """
    spec = {"token": token, **({"audiences": [audience]} if audience else {})}
    status = (await _review(client, spec, _TokenReview)).status
    # An API server that knows nothing of audiences authenticates without naming one.
    if not status.authenticated or (audience and audience not in (status.audiences or ())):
        return None
    user = status.user
    identity = UserIdentity(
        user=user.username,
        uid=user.uid,
        groups=user.groups or (),
        extra=tuple(sorted((user.extra or {}).items())),
    )
    return identity if identity.is_bounded else None


async def review_access(client: ApiClient, identity: UserIdentity, right: Right) -> bool:
    """Say whether somebody has a right; raises ReviewsUnavailableError."""
    attributes = {"verb": right.verb, "resource": right.resource, "namespace": right.namespace}
    spec = {
        "user": identity.user,
        "uid": identity.uid,
        "groups": identity.groups,
        "extra": dict(identity.extra),
        "resourceAttributes": attributes,
    }
    status = (await _review(client, spec, _AccessReview)).status
    return status.allowed and not status.denied


_T = TypeVar("_T", _TokenReview, _AccessReview)


async def _review(client: ApiClient, spec: object, kind: type[_T]) -> _T:
    path, name = _KINDS[kind]
    group = path.removeprefix("/apis/").partition("/")[0]
    review = {"apiVersion": f"{group}/v1", "kind": name, "spec": spec}
    try:
        answer = await client.create(path, msgspec.json.encode(review), timeout=REVIEW_SECONDS)
        return msgspec.json.decode(answer, type=kind)
    except (KubeError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ReviewsUnavailableError(f"the API server cannot be asked: {error}") from error


_KINDS: Final[Mapping[type, tuple[str, str]]] = {
    _TokenReview: (TOKEN_REVIEWS, "TokenReview"),
    _AccessReview: (ACCESS_REVIEWS, "SubjectAccessReview"),
}


class TokenReviewer:
    """Says who holds a token, and remembers it for some seconds, as the API server does itself.

    A token is remembered by a keyed digest, so that memory holds none.
    """

    def __init__(self, client: ApiClient, *, audience: str = "", clock: Clock = SYSTEM) -> None:
        """Ask through *client*; tokens must be for *audience*, by default the API server's own."""
        self._client = client
        self._audience = audience
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._known: ExpiringCache[bytes, UserIdentity | bool] = ExpiringCache(MOST_TOKENS)
        self._asked: dict[bytes, asyncio.Task[UserIdentity | None]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)

    def known(self, token: str) -> UserIdentity | None:
        """Return who holds *token* as far as that is remembered."""
        found = self._known.get(self._digest(token), self._clock.monotonic())
        return found if isinstance(found, UserIdentity) else None

    def _digest(self, token: str) -> bytes:
        return hashlib.blake2b(token.encode(errors="replace"), key=self._key).digest()

    async def identity(self, token: str) -> UserIdentity | None:
        """Return who holds *token*, ``None`` where nobody does; raises ReviewsUnavailableError."""
        if not 0 < len(token) <= LONGEST_TOKEN or not (token.isascii() and token.isprintable()):
            return None
        key = self._digest(token)
        known = self._known.get(key, self._clock.monotonic())
        if known is not None:
            return known if isinstance(known, UserIdentity) else None
        task = self._asked.get(key)
        if task is None:
            if len(self._asked) >= MOST_WAITING:
                raise ReviewsUnavailableError("too many tokens are being reviewed")
            task = asyncio.create_task(self._ask(key, token), name="token review")
            self._asked[key] = task
            task.add_done_callback(lambda done: self._end(key, done))
        return await asyncio.shield(task)

    def _end(self, key: bytes, done: asyncio.Task[UserIdentity | None]) -> None:
        self._asked.pop(key, None)
        if not done.cancelled():
            done.exception()  # whoever asked may have gone

    async def _ask(self, key: bytes, token: str) -> UserIdentity | None:
        async with self._turns:
            found = await review_token(self._client, token, self._audience)
        seconds = UNKNOWN_SECONDS if found is None else KNOWN_SECONDS
        self._known.put(key, found or False, self._clock.monotonic() + seconds)
        return found
