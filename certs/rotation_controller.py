"""Advances the certificate rotation in our Secret, one safe step at a time.

The election only saves work. Two writers at once, or one that was paused between reading and
writing, do no harm: the Secret and each registration are written at the version that was read, and
**each registration is read before the Secret**, so that a bundle only replaces a bundle of an older
Secret. The whole state of a rotation is in the Secret, so any writer can continue it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from certs import pem
from certs.ca_bundle import (
    WebhookRegistration,
    WebhookTarget,
    is_outdated,
    trusted_authorities,
    trusted_fingerprints,
)
from certs.issue import IssueParameters, KeyMaterial
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
    rotation_state,
)
from certs.status import CertificatesStatus
from kube.clock import SYSTEM, Clock
from kube.errors import KubeError

CLOCK_JUMP_SECONDS: Final = 1.0  # tolerated between wall and monotonic clock from round to round
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSecret:
    """The Secret as it was read."""

    version: str  # resource version
    data: Mapping[str, bytes] = field(repr=False)
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretChange:
    """Keys of the Secret to change: ``None`` removes one, keys not named here stay."""

    data: Mapping[str, bytes | None] = field(default_factory=dict, repr=False)
    annotations: Mapping[str, str | None]


class Secrets(Protocol):
    """The one Secret that is ours."""

    async def read(self) -> StoredSecret | None:
        """Read its newest version; ``None`` if it does not exist."""

    async def write(self, version: str | None, change: SecretChange) -> None:
        """Change that version, or create it; raises :class:`KubeError` if it has changed."""


class Registrations(Protocol):
    """The webhook configurations that are ours."""

    async def read(self, target: WebhookTarget) -> WebhookRegistration | None:
        """Read its newest version; ``None`` if it does not exist."""

    async def publish(self, registration: WebhookRegistration, bundle: bytes) -> None:
        """Set every webhook's bundle; raises :class:`KubeError` if it has changed."""


class Replicas(Protocol):
    """The replicas that serve our leaf."""

    async def nobody_serves(self) -> bool:
        """Say whether certainly none of them does; raises :class:`KubeError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationView:
    """Everything a round decides on, read once."""

    registrations: tuple[WebhookRegistration, ...]
    missing: tuple[WebhookTarget, ...]
    stored: StoredSecret | None  # None: the Secret does not exist
    secret: SecretState  # decoded

    @property
    def bundle(self) -> bytes:
        """Return what the registrations should carry."""
        return pem.certificates_pem(*self.secret.bundle)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round did."""

    step: Step  # taken in the Secret
    published: tuple[WebhookTarget, ...]  # registrations that got the bundle
    failed: tuple[str, ...]  # why others did not get it
    missing: tuple[WebhookTarget, ...]  # registrations that do not exist

    @property
    def may_advance(self) -> bool:
        """Say whether another round right away may get further."""
        return bool(self.published) or not isinstance(self.step, Nothing | Settling)


def new_key_material(now: datetime) -> KeyMaterial:
    """Draw a new key and serial number from the system's entropy."""
    key = ec.generate_private_key(ec.SECP256R1())
    return KeyMaterial(key=key, serial=x509.random_serial_number(), now=now)


async def read_view(
    secrets: Secrets, registrations: Registrations, targets: Iterable[WebhookTarget]
) -> RotationView:
    """Read the registrations, then the Secret, in this order; the module docstring says why."""
    read = {target: await registrations.read(target) for target in targets}
    stored = await secrets.read()
    return RotationView(
        registrations=tuple(item for item in read.values() if item is not None),
        missing=tuple(target for target, item in read.items() if item is None),
        stored=stored,
        secret=decode_secret(stored.data, stored.annotations) if stored else SecretState(),
    )


@dataclass(slots=True, kw_only=True)
class RotationController:
    """Advances the Secret and its registrations; between rounds it keeps only what it observed.

    The time for which registrations have been unchanged is counted in monotonic seconds, from the
    first round of this controller, and again from zero after the wall clock has jumped. A machine
    that was suspended, or whose clock was corrected, therefore waits before it issues anything.
    """

    secrets: Secrets
    registrations: Registrations
    targets: tuple[WebhookTarget, ...]
    parameters: IssueParameters
    replicas: Replicas | None = None  # None: they cannot be known, so each may serve
    clock: Clock = SYSTEM
    new_material: Callable[[datetime], KeyMaterial] = new_key_material
    # The fingerprints that each registration last trusted, and monotonic seconds since when.
    _trusts: tuple[frozenset[str], ...] | None = field(default=None, init=False)
    _since: float = field(default=0.0, init=False)
    _offset: float | None = field(default=None, init=False)  # wall minus monotonic, in seconds

    async def round(self) -> Round:
        """Read all, publish the bundle, take the next step; raises :class:`KubeError`."""
        rotation_view = await read_view(self.secrets, self.registrations, self.targets)
        secret = adopt_authorities(
            rotation_view.secret, trusted_authorities(rotation_view.registrations)
        )
        before = rotation_state(secret, self.parameters.names)
        observed = replace(
            self._observe(rotation_view.registrations),
            nobody_serves=before.leaf is None and await self.nobody_serves(),
        )
        now = self.clock.wall()
        step = next_step(before, observed, now=now, lifetimes=self.parameters.lifetimes)
        published, failed = await self._publish(rotation_view)
        await self._perform(step, secret, rotation_view.stored)
        self._log_round(step, before, published)
        return Round(step=step, published=published, failed=failed, missing=rotation_view.missing)

    async def nobody_serves(self) -> bool:
        """Say whether certainly no replica serves a leaf, of a Secret that has none."""
        if self.replicas is None:
            return False
        try:
            return await self.replicas.nobody_serves()
        except KubeError as error:
            log.warning("replicas unknown, waiting as if one served", why=str(error))
            return False

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
        return ObservedTrust(trusts=trusts, unchanged_for=timedelta(seconds=now - self._since))

    async def _publish(
        self, rotation_view: RotationView
    ) -> tuple[tuple[WebhookTarget, ...], tuple[str, ...]]:
        """Publish the Secret's bundle where it is missing; return the targets, and the failures."""
        published: list[WebhookTarget] = []
        failed: list[str] = []
        for registration in rotation_view.registrations:
            if not rotation_view.secret.bundle or not is_outdated(
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

    async def _perform(self, step: Step, secret: SecretState, stored: StoredSecret | None) -> None:
        if isinstance(step, Nothing | Settling):
            return
        after = apply_step(
            secret, step, self.parameters, material=self.new_material(self.clock.wall())
        )
        data, annotations = encode_secret(after)
        version = stored.version if stored else None
        await self.secrets.write(version, SecretChange(data=data, annotations=annotations))

    def _log_round(
        self, step: Step, before: RotationState, published: tuple[WebhookTarget, ...]
    ) -> None:
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
    """Request a rotation; the leader begins it within one poll interval.

    Raises :class:`NoSecretError` before the first installation and :class:`KubeError` when the
    Secret changed meanwhile.
    """
    stored = await secrets.read()
    if stored is None:
        raise NoSecretError("the Secret does not exist yet; is `vgpu webhook` running?")
    await secrets.write(stored.version, SecretChange(annotations={REQUEST: rotation.value}))


async def status(writer: RotationController) -> CertificatesStatus:
    """Return the present state; raises :class:`KubeError`."""
    rotation_view = await read_view(writer.secrets, writer.registrations, writer.targets)
    return CertificatesStatus(
        now=writer.clock.wall(),
        state=rotation_state(rotation_view.secret, writer.parameters.names),
        bundle=rotation_view.bundle,
        registrations=rotation_view.registrations,
        missing=rotation_view.missing,
    )
