"""What records say of who called."""

from collections.abc import Mapping
from typing import Any

import pytest

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
