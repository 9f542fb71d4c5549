"""Following: our registration for binds says what settings say about the time when we are down.

The API server decides by the registration alone whether a bind goes on without us, so the setting
is written there while we are up (docs/design.md, commit rule 7).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
import structlog

from allocator.core.settings import BindFailure
from allocator.shell.abreast import apart
from kube.clock import SYSTEM, Clock
from kube.errors import ConflictError, InvalidError, KubeError

PATH: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/vgpu-admission"
HOOK: Final = "bindings.vgpu-admission.io"
EVERY: Final = 30.0  # seconds between looks while the setting stays: somebody may have applied it
_POLICIES: Final = {BindFailure.FAIL: "Fail", BindFailure.IGNORE: "Ignore"}

log = structlog.get_logger(__name__)


class Calls(Protocol):
    """The part of :class:`kube.client.Client` that following needs."""

    async def get(self, path: str) -> bytes:
        """Read one object, never from a cache."""

    async def json_patch(self, path: str, ops: Sequence[Mapping[str, object]]) -> bytes:
        """Change one object, or nothing where a test in *ops* fails."""


class _Webhook(msgspec.Struct, rename="camel"):
    name: str
    failure_policy: str = ""


class _Registration(msgspec.Struct):
    webhooks: list[_Webhook] = []


class Following:
    """Any number may run, one at a time is enough.

    ``wanted`` is what settings say now, ``None`` before they were read.
    """

    def __init__(
        self, calls: Calls, wanted: Callable[[], BindFailure | None], *, clock: Clock = SYSTEM
    ) -> None:
        """Write through *calls*."""
        self._calls = calls
        self._wanted = wanted
        self._clock = clock
        self._looked: tuple[BindFailure | None, float] = (None, 0.0)  # for what, and when

    async def sweep(self) -> None:
        """Bring the registration in line if the setting is new, or was last looked at long ago."""
        wanted, now = self._wanted(), self._clock.monotonic()
        known, since = self._looked
        if wanted is None or (wanted is known and now - since < EVERY):
            return
        self._looked = (wanted, now)
        with apart("registration not read", path=PATH):
            try:
                await self._follow(_POLICIES[wanted])
            except (ConflictError, InvalidError):  # it moved
                self._looked = (None, now)
            except KubeError as error:
                log.warning("registration left as it is", why=str(error))

    async def _follow(self, policy: str) -> None:
        found = msgspec.json.decode(await self._calls.get(PATH), type=_Registration)
        ops = [
            op
            for i, hook in enumerate(found.webhooks)
            if hook.name == HOOK and hook.failure_policy != policy
            for op in _changed(i, policy)
        ]
        if ops:
            await self._calls.json_patch(PATH, ops)
            log.info("binds without us", failure_policy=policy)


def _changed(index: int, policy: str) -> Sequence[Mapping[str, object]]:
    place = f"/webhooks/{index}"
    return (
        {"op": "test", "path": f"{place}/name", "value": HOOK},
        {"op": "replace", "path": f"{place}/failurePolicy", "value": policy},
    )
