"""Cookies that only we can make, and only for a while."""

import base64
import json
import zlib

import pytest
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st

from console.access.identity import UserIdentity
from console.access.session import (
    FORM_SECONDS,
    LARGEST_COOKIE,
    Session,
    SessionCodec,
    SessionKeyError,
    SessionTooLargeError,
    parse_keys,
    token_expiry,
)

NOW = 1_800_000_000.0
AMY = UserIdentity(
    user="amy", uid="1", groups=("team-a", "system:authenticated"), extra=(("k", ("v", "w")),)
)
OPEN = Session(id="one", csrf="token", until=NOW + 60, identity=AMY)
KEY = base64.urlsafe_b64encode(bytes(range(32)))
OTHER = base64.urlsafe_b64encode(bytes(range(1, 33)))


def test_a_sealed_session_opens_again() -> None:
    """With all of who somebody is, and until it ends."""
    codec = SessionCodec([KEY])
    cookie = codec.seal(OPEN, NOW)

    assert codec.open(cookie, NOW) == OPEN
    assert codec.open(cookie, NOW + 59.9) == OPEN
    assert codec.open(cookie, NOW + 60) is None


def test_a_cookie_tells_its_holder_nothing() -> None:
    """Not even who it is of."""
    cookie = SessionCodec([KEY]).seal(OPEN, NOW)

    assert b"amy" not in base64.urlsafe_b64decode(cookie)


@pytest.mark.parametrize(
    "cookie",
    [
        "",
        "x",
        "é",
        "A" * 5000,
        Fernet(OTHER).encrypt(b"s[]").decode(),
        Fernet(KEY).encrypt(b"s" + zlib.compress(b"[]")).decode(),
        Fernet(KEY).encrypt(b"snot zlib").decode(),
        Fernet(KEY).encrypt(b"s" + zlib.compress(b" " * 10_000_000)).decode()[:3900],
        SessionCodec([KEY]).seal_form("token", NOW),
        base64.urlsafe_b64encode(json.dumps({"user": "admin"}).encode()).decode(),
    ],
    ids=range(10),
)
def test_what_we_did_not_seal_is_no_session(cookie: str) -> None:
    """Nor is what was sealed for another purpose."""
    assert SessionCodec([KEY]).open(cookie, NOW) is None


@given(st.data())
def test_no_changed_cookie_opens(data: st.DataObject) -> None:
    """Whichever bit was changed."""
    codec = SessionCodec([KEY])
    raw = bytearray(base64.urlsafe_b64decode(codec.seal(OPEN, NOW)))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))

    assert codec.open(base64.urlsafe_b64encode(bytes(raw)).decode(), NOW) is None


def test_a_key_of_before_still_opens() -> None:
    """And one that was taken out does not."""
    cookie = SessionCodec([KEY]).seal(OPEN, NOW)
    new = OTHER

    assert SessionCodec([new, KEY]).open(cookie, NOW) == OPEN
    assert SessionCodec([new]).open(cookie, NOW) is None
    assert SessionCodec().open(cookie, NOW) is None


def test_who_has_too_many_groups_is_told() -> None:
    """A browser would drop the cookie, and nobody would know why."""
    groups = tuple(Fernet.generate_key().decode() for _ in range(200))
    many = Session(
        id="one", csrf="token", until=NOW + 60, identity=UserIdentity(user="amy", groups=groups)
    )

    with pytest.raises(SessionTooLargeError, match="200 groups do not fit"):
        SessionCodec([KEY]).seal(many, NOW)


def test_an_ordinary_person_fits() -> None:
    """With fifty groups of an ordinary length."""
    groups = tuple(f"oidc:department-{number}-engineers" for number in range(50))
    session = Session(
        id="i" * 32, csrf="c" * 32, until=NOW, identity=UserIdentity(user="a", groups=groups)
    )

    assert len(SessionCodec([KEY]).seal(session, NOW)) < LARGEST_COOKIE


def test_a_form_belongs_to_its_cookie() -> None:
    """For an hour."""
    codec = SessionCodec([KEY])
    cookie = codec.seal_form("token", NOW)

    assert codec.is_form(cookie, "token", NOW)
    assert not codec.is_form(cookie, "tokem", NOW)
    assert not codec.is_form(cookie, "", NOW)
    assert not codec.is_form("", "", NOW)
    assert not codec.is_form(codec.seal(OPEN, NOW), "token", NOW)
    assert not codec.is_form(cookie, "token", NOW + FORM_SECONDS)


def test_forms_of_a_session_carry_its_token() -> None:
    """Another, or none, is not it."""
    assert OPEN.has_token("token")
    assert not OPEN.has_token("")
    assert not OPEN.has_token("tokén")


def test_a_cookie_that_is_longer_than_ours_is_not_opened() -> None:
    """Though its key is ours: it costs time for each request that brings it."""

    def opened(groups: int) -> Session | None:
        payload = ["one", "token", NOW + 60, "amy", "1", ["g" * 10] * groups, []]
        sealed = b"s" + zlib.compress(json.dumps(payload).encode(), 0)
        return SessionCodec([KEY]).open(Fernet(KEY).encrypt(sealed).decode(), NOW)

    assert opened(1) is not None
    assert opened(LARGEST_COOKIE // 10) is None


@pytest.mark.parametrize("text", ["\udcff", "\ud800" * 100, "é", "\u0664"])
def test_a_cookie_is_ascii(text: str) -> None:
    """Anything else is nobody's, not an error."""
    assert SessionCodec([KEY]).open(text, NOW) is None
    assert not SessionCodec([KEY]).is_form(text, "csrf", NOW)


@pytest.mark.parametrize("text", ["", "\n", "short", "é" * 44, KEY.decode()[:-2]])
def test_a_file_without_keys_is_refused(text: str) -> None:
    """The error says what a key looks like."""
    with pytest.raises(SessionKeyError, match="accepted: lines of 32 bytes"):
        parse_keys(text)


def test_keys_are_lines() -> None:
    """Empty lines do not count."""
    assert parse_keys(f"{KEY.decode()}\n\n  {KEY.decode()}\n") == (KEY, KEY)


def jwt(claims: object) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.sig"


@pytest.mark.parametrize(
    ("token", "expiry"),
    [
        (jwt({"exp": 12}), 12.0),
        (jwt({"exp": 12.5}), 12.5),
        (jwt({"exp": True}), None),
        (jwt({"exp": "12"}), None),
        (jwt({"exp": -1}), None),
        (jwt({"exp": 0}), None),
        (jwt({"exp": 1}), 1.0),
        (jwt({"exp": 253_402_300_798}), 253_402_300_798.0),
        (jwt({"exp": 253_402_300_799}), None),  # the last second that a time can name
        (jwt({"exp": 1e300}), None),
        (jwt({}), None),
        (jwt([]), None),
        (jwt(None), None),
        ("opaque", None),
        ("a.b.c", None),
        ("a.%%%.c", None),
        ("..", None),
    ],
)
def test_when_a_token_says_that_it_ends(token: str, expiry: float | None) -> None:
    """Where it is no JSON web token, it says nothing."""
    assert token_expiry(token) == expiry
