"""The CAs that a webhook configuration trusts, and whether it needs our bundle."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cryptography import x509

from certs.pem import certificates, fingerprint


class WebhookKind(StrEnum):
    """The two kinds of webhook configuration."""

    MUTATING = "MutatingWebhookConfiguration"
    VALIDATING = "ValidatingWebhookConfiguration"


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """A webhook configuration that is entirely ours: every webhook in it gets our bundle."""

    kind: WebhookKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where one webhook is called."""

    path: str  # of its Service or URL; empty if none is set
    service: tuple[str, str] | None = None  # namespace and name; None: it is called by a URL


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRegistration:
    """A webhook configuration as it was read."""

    target: WebhookTarget
    version: str  # resource version
    bundles: tuple[tuple[str, bytes], ...]  # name and caBundle (PEM) of each webhook
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)  # by name of the webhook


def trusted_fingerprints(registration: WebhookRegistration) -> frozenset[str]:
    """Return the fingerprints of the authorities that all webhooks of *registration* trust."""
    sets = [frozenset(map(fingerprint, certificates(text))) for _, text in registration.bundles]
    return frozenset.intersection(*sets) if sets else frozenset()


def is_outdated(registration: WebhookRegistration, bundle: bytes) -> bool:
    """Say whether any webhook's caBundle differs from *bundle*, byte by byte."""
    return any(text != bundle for _, text in registration.bundles)


def trusted_authorities(
    registrations: Iterable[WebhookRegistration],
) -> tuple[x509.Certificate, ...]:
    """Return every certificate that any webhook trusts, each once."""
    by_fingerprint = {
        fingerprint(certificate): certificate
        for registration in registrations
        for _, text in registration.bundles
        for certificate in certificates(text)
    }
    return tuple(by_fingerprint.values())
