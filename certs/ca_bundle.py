"""Registrations: which CAs a webhook configuration trusts, and whether it needs ours."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from cryptography import x509

from certs.pem import certificates, fingerprint


class WebhookKind(StrEnum):
    """The two kinds of webhook configuration."""

    MUTATING = "MutatingWebhookConfiguration"
    VALIDATING = "ValidatingWebhookConfiguration"


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """A webhook configuration that is ours whole: every webhook in it gets our bundle."""

    kind: WebhookKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRegistration:
    """A webhook configuration as it was read; ``bundles`` maps each webhook's name to its PEM."""

    target: WebhookTarget
    version: str
    bundles: tuple[tuple[str, bytes], ...]


def trusted_fingerprints(registration: WebhookRegistration) -> frozenset[str]:
    """Return the fingerprints of the authorities that every webhook of it trusts."""
    sets = [frozenset(map(fingerprint, certificates(text))) for _, text in registration.bundles]
    return frozenset.intersection(*sets) if sets else frozenset()


def is_outdated(registration: WebhookRegistration, bundle: bytes) -> bool:
    """Say whether a webhook of it trusts anything but *bundle*, byte by byte."""
    return any(text != bundle for _, text in registration.bundles)


def authorities(registrations: Iterable[WebhookRegistration]) -> tuple[x509.Certificate, ...]:
    """Return every certificate that any webhook trusts, each once."""
    by_fingerprint = {
        fingerprint(certificate): certificate
        for registration in registrations
        for _, text in registration.bundles
        for certificate in certificates(text)
    }
    return tuple(by_fingerprint.values())
