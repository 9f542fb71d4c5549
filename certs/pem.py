"""Parses untrusted certificates and keys in PEM, and writes them deterministically."""

from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its key as PEM."""

    certificate: bytes  # with the rest of its chain after it
    key: bytes = field(repr=False)


def certificates(text: bytes) -> tuple[x509.Certificate, ...]:
    """Return the certificates in *text*, which is PEM; none if any of it is malformed."""
    try:
        return tuple(x509.load_pem_x509_certificates(text))
    except ValueError:
        return ()


def private_key(text: bytes) -> PrivateKeyTypes | None:
    """Return the private key in *text*, or ``None`` if that is no unencrypted PEM key."""
    try:
        return serialization.load_pem_private_key(text, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of *certificate* in hexadecimal."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def public_bytes(key: PublicKeyTypes) -> bytes:
    """Return *key* as DER, which is equal for equal keys."""
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def certificates_pem(*several: x509.Certificate) -> bytes:
    """Return *several* certificates as PEM, in that order."""
    return b"".join(item.public_bytes(serialization.Encoding.PEM) for item in several)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key as unencrypted PKCS #8 PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
