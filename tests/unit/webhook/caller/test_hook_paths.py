"""Which paths are answered, and when the secret in them is replaced."""

from datetime import UTC, datetime, timedelta

import pytest

from manifests.generator.registrations import registrations
from webhook.caller.hook_paths import (
    HELD_SECONDS,
    HOOK_PATHS,
    MADE,
    TOKEN,
    HookPaths,
    StoredToken,
    decode_token,
    split,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ONE = "a" * 43
TWO = "b" * 43


def known(*tokens: str, at: float = 0.0) -> HookPaths:
    paths = HookPaths(())
    paths.see(tokens, at)
    return paths


def test_every_webhook_has_a_hook() -> None:
    """One that is generated and not known here would never be called at its path."""
    generated = {
        entry["name"]: split(entry["clientConfig"]["url"].removeprefix("https://here"))
        for document in registrations(url="https://here")
        for entry in document["webhooks"]
    }

    assert generated == {name: (path, "") for name, path in HOOK_PATHS.items()}


@pytest.mark.parametrize("hook", sorted(set(HOOK_PATHS.values())))
def test_only_who_knows_the_secret_is_answered(hook: str) -> None:
    """With each hook, whatever else the path says."""
    paths = known(ONE)

    assert paths.hook_of(f"{hook}/{ONE}") == hook
    for wrong in (
        hook,
        f"{hook}/",
        f"{hook}/{TWO}",
        f"{hook}/{ONE}/",
        f"{hook}/{ONE}/x",
        f"{hook}//{ONE}",
        f"{hook}/{ONE[:-1]}",
        f"{hook}/{ONE}a",
        f"{hook}/{ONE.upper()}",
        f"{hook}/{ONE}\n",
        f"{hook}/../{ONE}",
        f"{hook}/\u00e9\udc80",
        f"/{ONE}",
        f"{hook.upper()}/{ONE}",
        "",
        "/",
    ):
        assert paths.hook_of(wrong) is None, wrong


def test_a_secret_does_not_open_what_is_no_hook() -> None:
    """There is nothing behind it."""
    assert known(ONE).hook_of(f"/metrics/{ONE}") is None


def test_nobody_is_answered_before_a_secret_is_known() -> None:
    """A replica that has read nothing yet is not ready either."""
    paths = HookPaths(())

    assert (paths.known, paths.hook_of("/mutate/pods"), paths.hook_of("/mutate/pods/")) == (
        False,
        None,
        None,
    )


def test_without_a_cluster_anybody_is_answered() -> None:
    """A demonstration has no registrations; its records say that nobody showed anything."""
    paths = HookPaths()

    assert (paths.hook_of("/mutate/pods"), paths.known, paths.secret) == (
        "/mutate/pods",
        True,
        False,
    )


def test_the_one_before_holds_for_ten_minutes() -> None:
    """An API server may act for a while on what the registration said before."""
    paths = known(ONE)
    before = f"/mutate/pods/{ONE}"
    paths.see((TWO,), HELD_SECONDS - 1)
    held = paths.hook_of(before)

    paths.see((TWO,), HELD_SECONDS)

    assert held == "/mutate/pods"
    assert paths.hook_of(before) is None
    assert paths.hook_of(f"/mutate/pods/{TWO}") == "/mutate/pods"


@pytest.mark.parametrize(
    ("token", "is_secret"),
    [
        pytest.param("", False, id="none"),
        pytest.param("hook", False, id="short"),
        pytest.param("a" * 31, False, id="almost"),
        pytest.param("a" * 32, True, id="long-enough"),
    ],
)
def test_a_path_that_can_be_guessed_shows_nothing(token: str, *, is_secret: bool) -> None:
    """A site may write one into its registration; it is answered, and records say so."""
    paths = known(ONE, token)

    assert paths.hook_of(f"/mutate/pods/{token}") == "/mutate/pods"
    assert paths.secret is is_secret


@pytest.mark.parametrize(
    ("age", "due"),
    [
        pytest.param(timedelta(), False, id="new"),
        pytest.param(timedelta(minutes=59), False, id="young"),
        pytest.param(timedelta(hours=1), True, id="an-hour"),
        pytest.param(timedelta(minutes=-5), False, id="another-clock"),
        pytest.param(timedelta(minutes=-6), True, id="from-the-future"),
    ],
)
def test_it_is_replaced_every_hour(age: timedelta, *, due: bool) -> None:
    """A clock that was wrong does not make one last for years."""
    stored = StoredToken(token=ONE, made=NOW - age)

    assert stored.is_due(NOW) is due


@pytest.mark.parametrize(
    ("data", "annotations"),
    [
        pytest.param({}, {MADE: NOW.isoformat()}, id="nothing"),
        pytest.param({TOKEN: ONE.encode()}, {}, id="no-time"),
        pytest.param({TOKEN: ONE.encode()}, {MADE: "soon"}, id="no-time-at-all"),
        pytest.param({TOKEN: ONE.encode()}, {MADE: "2026-11-21T12:00:00"}, id="no-zone"),
        pytest.param({TOKEN: b""}, {MADE: NOW.isoformat()}, id="empty"),
        pytest.param({TOKEN: b"a" * 31}, {MADE: NOW.isoformat()}, id="short"),
        pytest.param({TOKEN: b"a" * 129}, {MADE: NOW.isoformat()}, id="long"),
        pytest.param({TOKEN: b"A" * 64}, {MADE: NOW.isoformat()}, id="capitals"),
        pytest.param({TOKEN: b"a/" * 20}, {MADE: NOW.isoformat()}, id="a-path"),
        pytest.param({TOKEN: b"a" * 63 + b"\n"}, {MADE: NOW.isoformat()}, id="a-line"),
        pytest.param({TOKEN: b"\xff" * 43}, {MADE: NOW.isoformat()}, id="no-text"),
        pytest.param({TOKEN: ("\u00e9" * 43).encode()}, {MADE: NOW.isoformat()}, id="no-ascii"),
    ],
)
def test_what_is_not_usable_is_replaced(
    data: dict[str, bytes], annotations: dict[str, str]
) -> None:
    """Whoever edited the Secret by hand, or lost it."""
    assert decode_token(data, annotations).is_due(NOW)


def test_what_is_stored_is_read() -> None:
    """As the controller writes it."""
    stored = decode_token({TOKEN: ONE.encode()}, {MADE: NOW.isoformat()})

    assert stored == StoredToken(token=ONE, made=NOW)
    assert not stored.is_due(NOW)
