"""Certificates and the progress of their rotation, as text."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, assert_never

from certs import rotation_policy
from certs.ca_bundle import WebhookRegistration, WebhookTarget, is_outdated, trusted_fingerprints
from certs.rotation_policy import Certificate, RotationState, Step

SHOWN: Final = 16  # characters of a fingerprint; enough to compare by eye


class RotationPhase(StrEnum):
    """The states of a rotation, as :mod:`certs.rotation_policy` describes them."""

    EMPTY = "empty"  # no usable certificate yet
    PUBLISHING = "publishing"  # a next authority waits until it may sign
    OVERLAP = "overlap"  # old authorities are still trusted
    STEADY = "steady"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificatesStatus:
    """The content of the Secret and the registrations at *now*."""

    now: datetime
    state: RotationState
    bundle: bytes
    registrations: tuple[WebhookRegistration, ...]
    missing: tuple[WebhookTarget, ...]


def phase(state: RotationState) -> RotationPhase:
    """Return the phase of the rotation."""
    if state.next is not None:
        return RotationPhase.PUBLISHING
    if state.leaf is None:
        return RotationPhase.EMPTY
    return RotationPhase.OVERLAP if state.old else RotationPhase.STEADY


def step_sentence(step: Step) -> str | None:
    """Return what *step* has changed, as a sentence for an Event; ``None`` if nothing."""
    match step:
        case rotation_policy.Nothing() | rotation_policy.Settling():
            return None
        case rotation_policy.AddNextCA():
            return (
                "a new CA is trusted and will sign in some weeks, or sooner if requested; "
                "give it to schedulers that call the extender (vgpu certs status)"
            )
        case rotation_policy.SwitchLeaf():
            return "the new CA has signed the serving certificate"
        case rotation_policy.RenewLeaf():
            return "the serving certificate was renewed"
        case rotation_policy.DropOldCA():
            return "the old CA is no longer trusted"
        case _:
            assert_never(step)


def lines(status: CertificatesStatus) -> Iterator[str]:
    """Render *status*, one aligned line per fact."""
    state = status.state
    yield f"phase       {_phase_text(state)}"
    yield f"leaf        {_certificate_text(state.leaf, status.now)}"
    yield f"signing CA  {_certificate_text(state.signing, status.now)}"
    if state.next is not None:
        yield f"next CA     {_certificate_text(state.next, status.now)}"
    for old in state.old:
        yield f"old CA      {_certificate_text(old, status.now)}"
    yield f"requested   {state.request or 'nothing'}"
    for registration in status.registrations:
        yield f"{registration.target} {_carries(registration, status)}"
    for target in status.missing:
        yield f"{target} does not exist, skipped"


def _phase_text(state: RotationState) -> str:
    match phase(state):
        case RotationPhase.EMPTY:
            return "empty: no usable certificate yet"
        case RotationPhase.PUBLISHING:
            text = "publishing: the next CA signs once every registration trusts it"
            signs = rotation_policy.signs_from(state, rotation_policy.DEFAULT)
            return text if signs is None else f"{text}, not before {_minute(signs)}"
        case RotationPhase.OVERLAP:
            until = state.old_until or max(old.not_after for old in state.old)
            return f"overlap: old CAs are trusted until {_minute(until)}"
        case RotationPhase.STEADY:
            return "steady"


def _certificate_text(certificate: Certificate | None, now: datetime) -> str:
    if certificate is None:
        return "none"
    left = (certificate.not_after - now).days
    return f"{certificate.fingerprint[:SHOWN]} until {_minute(certificate.not_after)} ({left} days)"


def _carries(registration: WebhookRegistration, status: CertificatesStatus) -> str:
    if not is_outdated(registration, status.bundle):
        return "carries the bundle"
    known = (status.state.signing, status.state.next, *status.state.old)
    wanted = {certificate.fingerprint for certificate in known if certificate is not None}
    lacking = sorted(item[:SHOWN] for item in wanted - trusted_fingerprints(registration))
    return f"lacks CA {', '.join(lacking)}" if lacking else "carries the bundle and other CAs"


def _minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
