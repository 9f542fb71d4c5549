"""Who is authenticated by a request: what counts, in which order, and what counts for nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from starlette.requests import Request

from allocator.cli.http_server import PEER_CERTIFICATE
from console.access.authentication_server import Authenticator, address_of, bearer_token
from console.access.budgets import MOST_FAILURES, TooManyAttemptsError
from console.access.identity import UserIdentity
from console.access.proxy import ProxyRules
from console.access.reviews_client import TokenReviewer
from console.access.rights_client import ViewerRights
from console.access.session import SESSION_COOKIE, Session, SessionCodec
from kube.clock import SYSTEM
from tests.fakes.pki import Authority
from tests.fakes.reviews import FakeReviews

CLUSTER, PROXIES = Authority("cluster"), Authority("proxies")
KNOWN_PROXY = ProxyRules(names=frozenset({"proxy"}))
EVE = {"x-forwarded-user": "eve"}
T = TypeVar("T")


def shown(authority: Authority, name: str) -> bytes:
    """Return a certificate as a handshake has left it."""
    leaf = x509.load_pem_x509_certificate(authority.issue(name).certificate)
    return leaf.public_bytes(Encoding.DER)


USER, PROXY, OTHER = shown(CLUSTER, "amy"), shown(PROXIES, "proxy"), shown(PROXIES, "other")


def asked(
    *headers: tuple[str, str],
    certificate: bytes | None = None,
    client: tuple[str, int] | None = ("192.0.2.1", 1),
) -> Request:
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    state = {PEER_CERTIFICATE: certificate}
    scope = {"type": "http", "method": "GET", "path": "/", "headers": pairs, "client": client}
    return Request({**scope, "state": state})


def with_authenticator(
    question: Callable[[Authenticator], Awaitable[T]], *, proxy: ProxyRules | None = KNOWN_PROXY
) -> T:
    """Return the answer of one who knows the token of ``bob``, and that of each ``known-N``."""
    reviews = FakeReviews()
    reviews.add_user("t-bob", "bob")
    for number in range(2 * MOST_FAILURES):
        reviews.add_user(f"known-{number}", f"user-{number}")

    async def answer() -> T:
        return await question(
            Authenticator(
                tokens=TokenReviewer(reviews),
                rights=ViewerRights(reviews, frozenset),
                sessions=SessionCodec(),
                cluster_ca=CLUSTER.certificate.decode,
                proxy_ca=PROXIES.certificate.decode,
                proxy=proxy,
            )
        )

    return asyncio.run(answer())


def session_of(authenticator: Authenticator, user: str = "zoe") -> tuple[Session, tuple[str, str]]:
    """Return a session that has begun, and the header of its cookie."""
    now = SYSTEM.wall().timestamp()
    identity = UserIdentity(user=user)
    session = Session(id="s1", csrf="of-the-session", until=now + 60, identity=identity)
    return session, ("cookie", f"{SESSION_COOKIE}={authenticator.sessions.seal(session, now)}")


@pytest.mark.parametrize(
    ("values", "token"),
    [
        ([], ""),
        (["Bearer abc"], "abc"),
        (["bEARER  abc "], "abc"),
        (["Bearer"], ""),
        (["Bearer "], ""),
        (["abc"], ""),
        (["Basic abc"], ""),
        (["Bearerabc"], ""),
        (["Bearer a", "Bearer a"], ""),
        (["Bearer a", "Basic b"], ""),
    ],
)
def test_a_token_is_that_of_the_only_header(values: list[str], token: str) -> None:
    """Of two, a proxy may have checked the other one."""
    assert bearer_token(asked(*(("authorization", value) for value in values))) == token


def test_an_address_is_that_of_the_connection() -> None:
    """Whatever headers say; a socket of a file has none."""
    assert address_of(asked(("x-forwarded-for", "203.0.113.9"))) == "192.0.2.1"
    assert address_of(asked(client=None)) == ""


@pytest.mark.parametrize(
    ("certificate", "headers", "proxy", "user"),
    [
        pytest.param(USER, {}, KNOWN_PROXY, "amy", id="certificate"),
        pytest.param(USER, EVE, KNOWN_PROXY, "amy", id="a-user-is-no-proxy"),
        pytest.param(PROXY, EVE, KNOWN_PROXY, "eve", id="proxy"),
        pytest.param(PROXY, {}, KNOWN_PROXY, None, id="a-proxy-of-nobody"),
        pytest.param(PROXY, EVE, None, "zoe", id="no-proxy-is-believed"),
        pytest.param(OTHER, EVE, KNOWN_PROXY, None, id="a-proxy-of-another-name"),
        pytest.param(None, EVE, KNOWN_PROXY, "zoe", id="headers-alone"),
        pytest.param(b"\x30\x80", EVE, KNOWN_PROXY, "zoe", id="no-certificate"),
        pytest.param(None, {"authorization": "Bearer t-bob"}, KNOWN_PROXY, "bob", id="token"),
        pytest.param(USER, {"authorization": "Bearer t-bob"}, KNOWN_PROXY, "bob", id="token-first"),
        pytest.param(USER, {"authorization": "Bearer x"}, KNOWN_PROXY, None, id="a-bad-token"),
        pytest.param(USER, {"authorization": ""}, KNOWN_PROXY, None, id="an-empty-token"),
        pytest.param(
            PROXY, {**EVE, "authorization": "Bearer t-bob"}, KNOWN_PROXY, "eve", id="proxy-first"
        ),
    ],
)
def test_what_is_shown_first_decides(
    certificate: bytes | None,
    headers: Mapping[str, str],
    *,
    proxy: ProxyRules | None,
    user: str | None,
) -> None:
    """The session of zoe counts only where the request shows nothing else."""

    async def question(authenticator: Authenticator) -> str | None:
        _, cookie = session_of(authenticator)
        request = asked(*headers.items(), cookie, certificate=certificate)
        viewer = await authenticator.viewer(request)
        return viewer.user if viewer else None

    assert with_authenticator(question, proxy=proxy) == user


def test_the_forms_of_a_session_carry_its_own_token() -> None:
    """Those of a viewer without one carry what only that viewer is given."""

    async def question(authenticator: Authenticator) -> list[str]:
        _, cookie = session_of(authenticator)
        tokens = []
        for request in (
            asked(cookie),
            asked(("authorization", "Bearer t-bob")),
            asked(certificate=USER),
        ):
            viewer = await authenticator.viewer(request)
            assert viewer is not None
            tokens.append(viewer.csrf)
        return tokens

    of_session, of_token, of_certificate = with_authenticator(question)

    assert of_session == "of-the-session"
    assert len({of_session, of_token, of_certificate}) == 3


def test_a_session_that_was_ended_is_none() -> None:
    """Though its cookie is good for some time; another one of the same person goes on."""

    async def question(authenticator: Authenticator) -> tuple[bool, bool]:
        session, cookie = session_of(authenticator)
        before = authenticator.session(asked(cookie)) == session
        authenticator.end(session)
        return before, authenticator.session(asked(cookie)) is None

    assert with_authenticator(question) == (True, True)


def test_failures_of_one_address_slow_no_other() -> None:
    """Each has its own attempts."""

    async def question(authenticator: Authenticator) -> UserIdentity | None:
        for number in range(MOST_FAILURES):
            assert await authenticator.identity_of_token(f"guess-{number}", "192.0.2.1") is None
        with pytest.raises(TooManyAttemptsError):
            await authenticator.identity_of_token("t-bob", "192.0.2.1")
        return await authenticator.identity_of_token("t-bob", "192.0.2.2")

    found = with_authenticator(question)

    assert found is not None
    assert found.user == "bob"


def test_good_tokens_are_no_failures() -> None:
    """A whole team may come from one address."""

    async def question(authenticator: Authenticator) -> list[str]:
        found = [
            await authenticator.identity_of_token(f"known-{number}", "192.0.2.1")
            for number in range(2 * MOST_FAILURES)
        ]
        return [identity.user for identity in found if identity]

    assert len(with_authenticator(question)) == 2 * MOST_FAILURES
