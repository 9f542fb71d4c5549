"""Validates a certificate and its key."""

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

    UNREADABLE = "unreadable"  # not PEM, or the key is encrypted
    MISMATCH = "mismatch"  # the key belongs to another certificate
    UNTRUSTED = "untrusted"  # signed by no trusted authority
    MISNAMED = "misnamed"  # not valid for all expected names
    EARLY = "early"  # not valid yet
    EXPIRED = "expired"


# Faults that appear or disappear with time.
TIME_FAULTS: Final = frozenset({PairFault.EARLY, PairFault.EXPIRED})


@dataclass(frozen=True, slots=True)
class PairFinding:
    """One fault of a pair."""

    fault: PairFault
    what: str  # lower case, without a full stop

    def __str__(self) -> str:
        return f"{self.fault}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a pair is compared with."""

    now: datetime
    trusted: tuple[x509.Certificate, ...] = ()  # authorities; empty: the issuer is not checked
    names: Names | None = None  # None: names are not checked


def check_pair(pair: Pair, expected: Expected) -> tuple[PairFinding, ...]:
    """Return all faults of *pair*; an unreadable pair has only that one."""
    chain = certificates(pair.certificate)
    if not chain:
        return (PairFinding(PairFault.UNREADABLE, "the certificate is not PEM"),)
    key = private_key(pair.key)
    if key is None:
        return (PairFinding(PairFault.UNREADABLE, "the key is not an unencrypted PEM private key"),)
    results = (_mismatch(chain[0], key), *(check(chain[0], expected) for check in CHECKS))
    return tuple(finding for finding in results if finding is not None)


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
    dns, addresses = subject_alternatives(certificate)
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
    """Return the certificate *among* several that signed *certificate*, valid now or not."""
    for candidate in among:
        try:
            certificate.verify_directly_issued_by(candidate)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            continue
        return candidate
    return None


def subject_alternatives(certificate: x509.Certificate) -> tuple[list[str], list[object]]:
    """Return the DNS names and the IP addresses that *certificate* is valid for."""
    try:
        extension = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value
    except (x509.ExtensionNotFound, ValueError):
        return [], []
    return extension.get_values_for_type(x509.DNSName), list(
        extension.get_values_for_type(x509.IPAddress)
    )
