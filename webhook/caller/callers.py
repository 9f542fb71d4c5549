"""How the callers of our hooks were known, for the records of what they asked."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress, product
from typing import Final

from allocator.config.review_callers import is_source
from allocator.config.settings import DEFAULTS, Settings
from webhook.caller.hook_paths import HookPaths

_NAMES: Final = ("path", "certificate", "source")
# By what is demanded: one look-up for each review, and no text is made anew.
_SHOWN: Final = {
    demanded: tuple(compress(_NAMES, demanded)) for demanded in product((False, True), repeat=3)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCallers:
    """What callers had to show to be answered; *settings* returns those that hold now."""

    paths: HookPaths
    settings: Callable[[], Settings] = lambda: DEFAULTS

    def shown(self) -> tuple[str, ...]:
        """Return what each of them showed; empty where anybody may call."""
        settings = self.settings()
        return _SHOWN[
            self.paths.secret, bool(settings.review_client_ca), bool(settings.review_sources)
        ]

    def admits(self, host: str) -> bool:
        """Say whether reviews from the address *host* are answered."""
        return is_source(host, self.settings().review_sources)
