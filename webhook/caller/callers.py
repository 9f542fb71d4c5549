"""How the callers of our hooks were known, for the records of what they asked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from webhook.caller.hook_paths import HookPaths


class RecordSink(Protocol):
    """Where records go; must neither block nor fail."""

    def remember(self, record: Mapping[str, Any], /) -> None:
        """Take a note of one record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCallers:
    """What callers had to show to be answered."""

    paths: HookPaths

    @property
    def shown(self) -> tuple[str, ...]:
        """Return what each of them showed; empty where anybody may call."""
        return ("path",) if self.paths.secret else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewSink:
    """Adds to each record of a review how its caller was known."""

    sink: RecordSink
    callers: KnownCallers

    def remember(self, record: Mapping[str, Any]) -> None:
        """Take a note of one record."""
        self.sink.remember({**record, "caller": list(self.callers.shown)})
