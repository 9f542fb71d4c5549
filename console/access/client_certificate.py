"""Client certificates: whose they are, and which of our authorities issued them.

The handshake has checked the chain, the purpose and that the caller holds the key, against all
authorities of a port at once. Which of them it was decides whom the caller may claim to be, so it
is checked here again, for each request: a connection outlives certificates and authorities.
"""

from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.pem import certificates
from console.access.identity import AUTHENTICATED, UserIdentity


def read_certificate(der: bytes | None) -> x509.Certificate | None:
    """Return the certificate that a caller showed; ``None`` without one that can be read."""
    if not der:
        return None
    try:
        return x509.load_der_x509_certificate(der)
    except ValueError:
        return None


def is_issued_by(leaf: x509.Certificate, authorities: str, now: datetime) -> bool:
    """Say whether one of *authorities*, PEM, issued *leaf* itself, and both are valid *now*."""
    return (
        _is_valid(leaf, now)
        and _is_for_clients(leaf)
        and any(
            _is_valid(authority, now) and _issued(authority, leaf)
            for authority in certificates(authorities.encode())
        )
    )


def common_name(leaf: x509.Certificate) -> str:
    """Return the only common name of *leaf*, empty where it has none or several."""
    names = _names(leaf, NameOID.COMMON_NAME)
    return names[0] if len(names) == 1 else ""


def identity_of_certificate(leaf: x509.Certificate) -> UserIdentity | None:
    """Return the user as API servers read one: common name, and organisations as groups."""
    user = common_name(leaf)
    groups = tuple(dict.fromkeys((*_names(leaf, NameOID.ORGANIZATION_NAME), AUTHENTICATED)))
    identity = UserIdentity(user=user, groups=groups)
    return identity if identity.is_bounded else None


def _names(leaf: x509.Certificate, kind: x509.ObjectIdentifier) -> list[str]:
    found = leaf.subject.get_attributes_for_oid(kind)
    return [each.value for each in found if isinstance(each.value, str)]


def _is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def _is_for_clients(leaf: x509.Certificate) -> bool:
    try:
        usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True  # for everything, as API servers have it
    except ValueError:
        return False
    return ExtendedKeyUsageOID.CLIENT_AUTH in usage or (
        ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usage
    )


def _issued(authority: x509.Certificate, leaf: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
