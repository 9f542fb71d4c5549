"""What records say of who called."""

import pytest

from allocator.config.settings import Settings
from tests.fakes.pki import Authority
from webhook.caller.callers import KnownCallers
from webhook.caller.hook_paths import HookPaths


@pytest.mark.parametrize(
    ("tokens", "shown"),
    [
        pytest.param(("a" * 32,), ("path",), id="a-secret"),
        pytest.param(("a" * 32, ""), (), id="a-path-without-one-too"),
        pytest.param(("hook",), (), id="one-that-can-be-guessed"),
    ],
)
def test_a_caller_is_known_by_a_secret_in_the_path(
    tokens: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    """Not where a path without one is answered too."""
    assert KnownCallers(paths=HookPaths(tokens)).shown() == shown


def test_demands_of_the_settings_are_shown_while_they_hold() -> None:
    """Who is answered has shown all that is demanded, now and not before."""
    settings = [Settings()]
    callers = KnownCallers(paths=HookPaths(("a" * 32,)), settings=lambda: settings[-1])
    authority = Authority("api-servers").certificate.decode()
    shown = []

    for changed in (
        Settings(review_client_ca=authority, review_sources=("10.0.0.0/8",)),
        Settings(review_sources=("10.0.0.0/8",)),
        Settings(),
    ):
        settings.append(changed)
        shown.append(callers.shown())

    assert shown == [("path", "certificate", "source"), ("path", "source"), ("path",)]


def test_only_listed_addresses_are_admitted() -> None:
    """As the settings are when somebody calls."""
    callers = KnownCallers(
        paths=HookPaths(), settings=lambda: Settings(review_sources=("10.0.0.0/8",))
    )

    assert callers.admits("10.0.0.1")
    assert not callers.admits("192.168.0.1")
    assert KnownCallers(paths=HookPaths()).admits("192.168.0.1")
