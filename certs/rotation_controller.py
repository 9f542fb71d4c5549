"""Secret: the writer that advances the certificate rotation, one safe step at a time.

The election only saves work. Two writers at once, or one that slept between reading and writing,
harm nothing: the Secret is written at the version that was read, and so is each registration,
**which is read before the Secret**. So a bundle can only replace an older Secret's bundle.
All that a rotation needs to go on is in the Secret; a writer that dies is replaced by any other.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from certs import pem
from certs.ca_bundle import (
    WebhookRegistration,
    WebhookTarget,
    authorities,
    is_outdated,
    trusted_fingerprints,
)
from certs.issue import Fresh, IssueParameters
from certs.rotation_policy import (
    Nothing,
    ObservedTrust,
    Rotation,
    RotationState,
    Settling,
    Step,
    next_step,
)
from certs.secret_codec import (
    REQUEST,
    SecretState,
    adopt_authorities,
    apply_step,
    decode_secret,
    encode_secret,
    state,
)
from certs.status import CertificatesStatus
from kube.clock import SYSTEM, Clock
from kube.errors import KubeError

CLOCK_JUMP_SECONDS: Final = (
    1.0  # seconds by which a wall clock may leave the monotonic one between two rounds
)
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSecret:
    """The Secret as it was read."""

    version: str
    data: Mapping[str, bytes] = field(repr=False)
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretChange:
    """What to write into the Secret: ``None`` removes a key, what is not named stays."""

    data: Mapping[str, bytes | None] = field(default_factory=dict, repr=False)
    annotations: Mapping[str, str | None]


class Secrets(Protocol):
    """The one Secret that is ours."""

    async def read(self) -> StoredSecret | None:
        """Read its newest version; ``None`` if it does not exist."""

    async def write(self, version: str | None, change: SecretChange) -> None:
        """Change that version, or create it; raises :class:`KubeError` if another was faster."""


class Registrations(Protocol):
    """The webhook configurations that are ours."""

    async def read(self, target: WebhookTarget) -> WebhookRegistration | None:
        """Read its newest version; ``None`` if it does not exist."""

    async def publish(self, registration: WebhookRegistration, bundle: bytes) -> None:
        """Set every webhook's bundle at that version; raises :class:`KubeError` otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationView:
    """Everything a round decides on, read once."""

    registrations: tuple[WebhookRegistration, ...]
    missing: tuple[WebhookTarget, ...]
    held: StoredSecret | None
    store: SecretState

    @property
    def bundle(self) -> bytes:
        """Return what the registrations should carry."""
        return pem.certificates_pem(*self.store.bundle)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round did; ``failed`` says why a registration did not get its bundle."""

    step: Step
    published: tuple[WebhookTarget, ...]
    failed: tuple[str, ...]
    missing: tuple[WebhookTarget, ...]

    @property
    def may_advance(self) -> bool:
        """Say whether another round right away may get further."""
        return bool(self.published) or not isinstance(self.step, Nothing | Settling)


def new_key_material(now: datetime) -> Fresh:
    """Draw a new key and serial number from the system's entropy."""
    key = ec.generate_private_key(ec.SECP256R1())
    return Fresh(key=key, serial=x509.random_serial_number(), now=now)


async def view(
    secrets: Secrets, registrations: Registrations, targets: Iterable[WebhookTarget]
) -> RotationView:
    """Read the registrations, then the Secret: the order that the module's safety rests on."""
    read = {target: await registrations.read(target) for target in targets}
    held = await secrets.read()
    return RotationView(
        registrations=tuple(item for item in read.values() if item is not None),
        missing=tuple(target for target, item in read.items() if item is None),
        held=held,
        store=decode_secret(held.data, held.annotations) if held else SecretState(),
    )


@dataclass(slots=True, kw_only=True)
class RotationController:
    """Advances the Secret and its registrations; between rounds it keeps only what it observed.

    How long registrations have been unchanged is counted in monotonic time from the first round of
    this writer, and anew after the wall clock has jumped: a suspended machine or a corrected clock
    issues nothing before it has observed them for that long.
    """

    secrets: Secrets
    registrations: Registrations
    targets: tuple[WebhookTarget, ...]
    terms: IssueParameters
    clock: Clock = SYSTEM
    draw: Callable[[datetime], Fresh] = new_key_material
    # The fingerprints that registrations were last seen to trust, and since when (monotonic).
    _trusts: tuple[frozenset[str], ...] | None = field(default=None, init=False)
    _since: float = field(default=0.0, init=False)
    _offset: float | None = field(default=None, init=False)  # wall minus monotonic, in seconds

    async def round(self) -> Round:
        """Read, decide, publish, write; raises :class:`KubeError` when the Secret stays unread."""
        rotation_view = await view(self.secrets, self.registrations, self.targets)
        store = adopt_authorities(rotation_view.store, authorities(rotation_view.registrations))
        seen = self._observe(rotation_view.registrations)
        now = self.clock.wall()
        known = state(store, self.terms.names)
        step = next_step(known, seen, now=now, lifetimes=self.terms.lifetimes)
        published, failed = await self._publish(rotation_view)
        await self._perform(step, store, rotation_view.held)
        self._say(step, known, published)
        return Round(step=step, published=published, failed=failed, missing=rotation_view.missing)

    def _observe(self, registrations: tuple[WebhookRegistration, ...]) -> ObservedTrust:
        trusts = tuple(trusted_fingerprints(item) for item in registrations if item.bundles)
        now = self.clock.monotonic()
        offset = self.clock.wall().timestamp() - now
        jump = 0.0 if self._offset is None else offset - self._offset
        if abs(jump) > CLOCK_JUMP_SECONDS:
            log.warning("clock jump detected", seconds=round(jump, 3))
        if trusts != self._trusts or abs(jump) > CLOCK_JUMP_SECONDS:
            self._trusts, self._since = trusts, now
        self._offset = offset
        return ObservedTrust(trusts=trusts, steady=timedelta(seconds=now - self._since))

    async def _publish(
        self, rotation_view: RotationView
    ) -> tuple[tuple[WebhookTarget, ...], tuple[str, ...]]:
        """Publish what the Secret already holds, wherever it is missing; one failure stops none."""
        published: list[WebhookTarget] = []
        failed: list[str] = []
        for registration in rotation_view.registrations:
            if not rotation_view.store.bundle or not is_outdated(
                registration, rotation_view.bundle
            ):
                continue
            try:
                await self.registrations.publish(registration, rotation_view.bundle)
            except KubeError as error:
                failed.append(f"{registration.target}: {error}")
            else:
                published.append(registration.target)
        return tuple(published), tuple(failed)

    async def _perform(self, step: Step, store: SecretState, held: StoredSecret | None) -> None:
        if isinstance(step, Nothing | Settling):
            return
        after = apply_step(store, step, self.terms, fresh=self.draw(self.clock.wall()))
        data, annotations = encode_secret(after)
        version = held.version if held else None
        await self.secrets.write(version, SecretChange(data=data, annotations=annotations))

    def _say(self, step: Step, before: RotationState, published: tuple[WebhookTarget, ...]) -> None:
        if published:
            log.info("CA bundle published", targets=[str(target) for target in published])
        if not isinstance(step, Nothing | Settling):
            replaced = before.leaf.fingerprint if before.leaf else None
            log.info(
                "certificate rotation advanced", step=type(step).__name__, leaf_before=replaced
            )


class NoSecretError(Exception):
    """There is nothing to rotate yet."""


async def rotate(secrets: Secrets, rotation: Rotation) -> None:
    """Ask whoever leads for a rotation; it begins within a poll.

    Raises :class:`NoSecretError` before the first installation and :class:`KubeError` when the
    Secret changed meanwhile.
    """
    held = await secrets.read()
    if held is None:
        raise NoSecretError("the Secret does not exist yet; is `vgpu webhook` running?")
    await secrets.write(held.version, SecretChange(annotations={REQUEST: rotation.value}))


async def status(writer: RotationController) -> CertificatesStatus:
    """Read how things stand and change nothing; raises :class:`KubeError`."""
    rotation_view = await view(writer.secrets, writer.registrations, writer.targets)
    return CertificatesStatus(
        now=writer.clock.wall(),
        state=state(rotation_view.store, writer.terms.names),
        bundle=rotation_view.bundle,
        registrations=rotation_view.registrations,
        missing=rotation_view.missing,
    )
