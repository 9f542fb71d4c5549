"""Check: validates a certificate and its key."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from certs.issue import Names
from certs.pem import Pair, certificates, private_key, public_bytes


class PairFault(StrEnum):
    """What can be wrong with a pair."""

    UNREADABLE = "unreadable"
    MISMATCH = "mismatch"
    UNTRUSTED = "untrusted"
    MISNAMED = "misnamed"
    EARLY = "early"
    EXPIRED = "expired"


TIME_FAULTS: Final = frozenset(
    {PairFault.EARLY, PairFault.EXPIRED}
)  # these can heal, or come, by themselves


@dataclass(frozen=True, slots=True)
class PairFinding:
    """One thing that is wrong with a pair; lower case, no stop."""

    fault: PairFault
    what: str

    def __str__(self) -> str:
        return f"{self.fault}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a pair is held against; what is not given is not looked at."""

    now: datetime
    trusted: tuple[x509.Certificate, ...] = ()
    names: Names | None = None


def findings(pair: Pair, expected: Expected) -> tuple[PairFinding, ...]:
    """Return everything that is wrong with *pair*; an unreadable one is not looked at further."""
    held = certificates(pair.certificate)
    if not held:
        return (PairFinding(PairFault.UNREADABLE, "the certificate is not PEM"),)
    key = private_key(pair.key)
    if key is None:
        return (PairFinding(PairFault.UNREADABLE, "the key is not an unencrypted PEM private key"),)
    wrong = (_mismatch(held[0], key), *(check(held[0], expected) for check in CHECKS))
    return tuple(finding for finding in wrong if finding is not None)


def _mismatch(certificate: x509.Certificate, key: PrivateKeyTypes) -> PairFinding | None:
    try:
        matches = public_bytes(certificate.public_key()) == public_bytes(key.public_key())
    except (ValueError, UnsupportedAlgorithm):
        matches = False
    return (
        None
        if matches
        else PairFinding(PairFault.MISMATCH, "the key belongs to another certificate")
    )


def _issuer_finding(certificate: x509.Certificate, expected: Expected) -> PairFinding | None:
    if not expected.trusted or issuer_of(certificate, expected.trusted) is not None:
        return None
    name = certificate.issuer.rfc4514_string()
    return PairFinding(PairFault.UNTRUSTED, f"the issuer {name!r} is not in the CA bundle")


def _names_finding(certificate: x509.Certificate, expected: Expected) -> PairFinding | None:
    if expected.names is None:
        return None
    dns, addresses = alternatives(certificate)
    missing = [name for name in expected.names.dns if name not in dns]
    missing += [str(item) for item in expected.names.addresses if item not in addresses]
    if not missing:
        return None
    return PairFinding(PairFault.MISNAMED, f"the certificate is not valid for {', '.join(missing)}")


def _start_finding(certificate: x509.Certificate, expected: Expected) -> PairFinding | None:
    start = certificate.not_valid_before_utc
    if expected.now >= start:
        return None
    return PairFinding(PairFault.EARLY, f"valid from {start.isoformat()}, but it is {expected.now}")


def _end_finding(certificate: x509.Certificate, expected: Expected) -> PairFinding | None:
    end = certificate.not_valid_after_utc
    if expected.now <= end:
        return None
    return PairFinding(
        PairFault.EXPIRED, f"valid until {end.isoformat()}, but it is {expected.now}"
    )


CHECKS: Final[tuple[Callable[[x509.Certificate, Expected], PairFinding | None], ...]] = (
    _issuer_finding,
    _names_finding,
    _start_finding,
    _end_finding,
)


def issuer_of(
    certificate: x509.Certificate, among: tuple[x509.Certificate, ...]
) -> x509.Certificate | None:
    """Return the one *among* several that signed *certificate*, whatever the time is."""
    for candidate in among:
        try:
            certificate.verify_directly_issued_by(candidate)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            continue
        return candidate
    return None


def alternatives(certificate: x509.Certificate) -> tuple[list[str], list[object]]:
    """Return the DNS names and the addresses that *certificate* is valid for."""
    try:
        extension = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value
    except (x509.ExtensionNotFound, ValueError):
        return [], []
    return extension.get_values_for_type(x509.DNSName), list(
        extension.get_values_for_type(x509.IPAddress)
    )
