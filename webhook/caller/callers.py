"""How the callers of our hooks were known, for the records of what they asked."""

from collections.abc import Callable
from dataclasses import dataclass

from allocator.config.review_callers import is_source
from allocator.config.settings import DEFAULTS, Settings
from webhook.caller.hook_paths import HookPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCallers:
    """What callers had to show to be answered; *settings* returns those that hold now."""

    paths: HookPaths
    settings: Callable[[], Settings] = lambda: DEFAULTS

    def shown(self) -> tuple[str, ...]:
        """Return what each of them showed; empty where anybody may call."""
        settings = self.settings()
        demanded = {
            "path": self.paths.secret,
            "certificate": bool(settings.review_client_ca),
            "source": bool(settings.review_sources),
        }
        return tuple(name for name, is_demanded in demanded.items() if is_demanded)

    def admits(self, host: str) -> bool:
        """Say whether reviews from the address *host* are answered."""
        return is_source(host, self.settings().review_sources)
