"""What records say of who called."""

from collections.abc import Mapping
from typing import Any

import pytest

from allocator.config.settings import Settings
from tests.fakes.pki import Authority
from webhook.caller.callers import KnownCallers, ReviewSink
from webhook.caller.hook_paths import HookPaths


class Kept(list[Mapping[str, Any]]):
    """What was remembered."""

    remember = list.append


@pytest.mark.parametrize(
    ("tokens", "shown"),
    [
        pytest.param(("a" * 32,), ["path"], id="a-secret"),
        pytest.param(("a" * 32, ""), [], id="a-path-without-one-too"),
        pytest.param(("hook",), [], id="one-that-can-be-guessed"),
    ],
)
def test_a_record_says_how_its_caller_was_known(tokens: tuple[str, ...], shown: list[str]) -> None:
    """Beside what it says of the review; nobody's record is changed."""
    kept = Kept()
    record = {"event": "decision"}

    callers = KnownCallers(paths=HookPaths(tokens))
    ReviewSink(sink=kept, callers=callers).remember(record)

    assert kept == [{"event": "decision", "caller": shown}]
    assert record == {"event": "decision"}


def test_demands_of_the_settings_are_recorded_while_they_hold() -> None:
    """Who is answered has shown all that is demanded, now and not before."""
    kept, settings = Kept(), [Settings()]
    callers = KnownCallers(paths=HookPaths(("a" * 32,)), settings=lambda: settings[-1])
    authority = Authority("api-servers").certificate.decode()
    sink = ReviewSink(sink=kept, callers=callers)

    for changed in (
        Settings(review_client_ca=authority, review_sources=("10.0.0.0/8",)),
        Settings(review_sources=("10.0.0.0/8",)),
        Settings(),
    ):
        settings.append(changed)
        sink.remember({})

    assert [record["caller"] for record in kept] == [
        ["path", "certificate", "source"],
        ["path", "source"],
        ["path"],
    ]


def test_only_listed_addresses_are_admitted() -> None:
    """As the settings are when somebody calls."""
    callers = KnownCallers(
        paths=HookPaths(), settings=lambda: Settings(review_sources=("10.0.0.0/8",))
    )

    assert callers.admits("10.0.0.1")
    assert not callers.admits("192.168.0.1")
    assert KnownCallers(paths=HookPaths()).admits("192.168.0.1")
