"""Keeps the secret in the paths of our hooks: reads it in every replica, replaces it in one.

Each registration is read before the Secret and written at the version that was read, as the
authorities are. Two writers at once do no harm: a replica accepts what either of them published.

Replicas of a release that knows no secrets answer at paths without one alone. While any is there,
in an upgrade or on the way back, no secret is published.
"""

import secrets as entropy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Never, Protocol

import structlog

from certs.ca_bundle import Endpoint, WebhookRegistration, WebhookTarget
from certs.rotation_controller import SecretChange, Secrets
from kube.clock import SYSTEM, Clock
from kube.errors import KubeError
from webhook.caller.hook_paths import (
    HOOK_PATHS,
    MADE,
    READS_PATHS,
    SETTLE_SECONDS,
    TOKEN,
    TOKEN_BYTES,
    HookPaths,
    StoredToken,
    decode_token,
    split,
)

POLL_SECONDS: Final = 5.0
POLL_WHILE_UNKNOWN: Final = 1.0  # seconds; a replica that knows no path answers nobody
log = structlog.get_logger(__name__)


class PathRegistrations(Protocol):
    """The webhook configurations that are ours, by what they call."""

    async def read(self, target: WebhookTarget) -> WebhookRegistration | None:
        """Read its newest version; ``None`` if it does not exist."""

    async def publish_paths(
        self, registration: WebhookRegistration, paths: Mapping[str, Endpoint]
    ) -> None:
        """Set where all webhooks that we keep are called; raises :class:`KubeError`."""


class PathReplicas(Protocol):
    """The replicas that the registrations call."""

    async def all_carry(self, annotation: str) -> bool:
        """Say whether each of them carries *annotation*; raises :class:`KubeError`."""


def new_token() -> str:
    """Draw a secret from the system's entropy, in characters that a Service's path may have."""
    return entropy.token_hex(TOKEN_BYTES)


@dataclass(slots=True, kw_only=True)
class PathController:
    """Tells *paths* which secrets hold, and replaces the secret while it leads."""

    secrets: Secrets
    registrations: PathRegistrations
    replicas: PathReplicas
    targets: tuple[WebhookTarget, ...]
    paths: HookPaths
    leading: Callable[[], bool]
    clock: Clock = SYSTEM
    make_token: Callable[[], str] = new_token
    # What was seen last, the secret and what the registrations call, and monotonic since when.
    _seen: tuple[object, ...] = field(default=(), init=False)
    _since: float = field(default=0.0, init=False)

    async def run(self) -> Never:
        """Sweep until cancelled."""
        while True:
            try:
                while await self.sweep():
                    pass
            except KubeError as error:
                log.warning("paths of the hooks not kept", why=str(error))
            await self.clock.sleep(POLL_SECONDS if self.paths.known else POLL_WHILE_UNKNOWN)

    async def sweep(self) -> bool:
        """Read all and take the next step; return whether another one may follow at once.

        Raises :class:`KubeError`.
        """
        read = [await self.registrations.read(target) for target in self.targets]
        registrations = [each for each in read if each is not None]
        stored = await self.secrets.read()
        held = decode_token(stored.data, stored.annotations) if stored else StoredToken()
        self._observe(held, registrations)
        if self.leading() and held.is_due(self.clock.wall()):
            now = self.clock.wall().isoformat()
            change = SecretChange(data={TOKEN: self.make_token().encode()}, annotations={MADE: now})
            await self.secrets.write(stored.version if stored else None, change)
            return True
        for registration in registrations:
            await self._publish(held.token, registration)
        return False

    def _observe(self, held: StoredToken, registrations: Iterable[WebhookRegistration]) -> None:
        now = self.clock.monotonic()
        seen = (held.token, *(registration.endpoints for registration in registrations))
        if seen != self._seen:
            self._seen, self._since = seen, now
        carried = {
            found[1]
            for registration in registrations
            for endpoint in registration.endpoints.values()
            if (found := split(endpoint.path)) is not None
        }
        self.paths.see(carried if held.token is None else {held.token, *carried}, now)

    async def _publish(self, token: str | None, registration: WebhookRegistration) -> None:
        """Publish *token* where it is missing, once every replica can have read it.

        A registration that calls no hook at all has nothing to lose by a replica that has not.
        Manifests have no paths, so an upgrade from those that had some takes them away. Then
        whoever sees it first puts them back as the older replicas know them.
        """
        wanted = _endpoints("" if token is None else f"/{token}", registration)
        present = {name: registration.endpoints[name] for name in wanted}
        lost = any(split(endpoint.path) is None for endpoint in present.values())
        settled = self.clock.monotonic() - self._since >= SETTLE_SECONDS
        if present == wanted or not (lost or (settled and self.leading())):
            return
        if not await self.replicas.all_carry(READS_PATHS):
            wanted = _endpoints("", registration)
            if not lost:
                return
        elif token is None:
            return
        await self.registrations.publish_paths(registration, wanted)
        log.info("paths of the hooks published", target=str(registration.target))


def _endpoints(end: str, registration: WebhookRegistration) -> dict[str, Endpoint]:
    """Return where each webhook is to be called, by its name, at a path that ends in *end*.

    One that is called by a URL is left out: it keeps the path that its site gave it.
    """
    return {
        name: Endpoint(path=f"{HOOK_PATHS[name]}{end}", service=endpoint.service)
        for name, endpoint in registration.endpoints.items()
        if name in HOOK_PATHS and endpoint.service is not None
    }
