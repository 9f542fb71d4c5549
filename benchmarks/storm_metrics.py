"""The API server's metrics of our webhooks: calls, rejections and missing answers."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

OURS: Final = "vgpu-admission.io"
BINDINGS: Final = f"bindings.{OURS}"
CONFLICT: Final = "409"
_PREFIX: Final = "apiserver_admission_webhook_"
_SAMPLE: Final = re.compile(rf"^{_PREFIX}(\w+)\{{([^}}]*)\}} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Binds that reached our hook, those refused for conflict, and any call left unanswered."""

    binds: int = 0
    conflicts: int = 0
    unanswered: int = 0

    def difference(self, earlier: "Hooks") -> "Hooks":
        """Return what was counted after *earlier*."""
        return Hooks(
            binds=self.binds - earlier.binds,
            conflicts=self.conflicts - earlier.conflicts,
            unanswered=self.unanswered - earlier.unanswered,
        )


NO_CALLS: Final = Hooks()


def hooks(metrics: str) -> Hooks:
    """Read the text that an API server serves under ``/metrics``."""
    binds = conflicts = unanswered = 0
    for name, labels, value in _samples(metrics):
        ours = labels.get("name", "").endswith(OURS)
        binding = labels.get("name") == BINDINGS
        if name == "admission_duration_seconds_count" and binding:
            binds += value
        elif name == "rejection_count" and ours and labels["error_type"] != "no_error":
            unanswered += value
        elif name == "rejection_count" and binding and labels["rejection_code"] == CONFLICT:
            conflicts += value
        elif name == "fail_open_count" and ours:
            unanswered += value
    return Hooks(binds=binds, conflicts=conflicts, unanswered=unanswered)


def _samples(metrics: str) -> Iterator[tuple[str, Mapping[str, str], int]]:
    for name, labels, value in _SAMPLE.findall(metrics):
        yield name, dict(_LABEL.findall(labels)), int(float(value))
