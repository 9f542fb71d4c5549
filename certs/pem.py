"""PEM: parses untrusted certificates and keys, and writes them deterministically."""

from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate (and what else its chain needs) and its key as PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


def certificates(text: bytes) -> tuple[x509.Certificate, ...]:
    """Return the certificates in *text*, which is PEM; nothing if any of it is malformed."""
    try:
        return tuple(x509.load_pem_x509_certificates(text))
    except ValueError:
        return ()


def private_key(text: bytes) -> PrivateKeyTypes | None:
    """Return the key in *text*, which is unencrypted PEM, if it is one."""
    try:
        return serialization.load_pem_private_key(text, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of *certificate* in hexadecimal."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def public_bytes(key: PublicKeyTypes) -> bytes:
    """Return what makes two public keys the same key."""
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def certificates_pem(*several: x509.Certificate) -> bytes:
    """Return certificates as PEM, in the order given."""
    return b"".join(item.public_bytes(serialization.Encoding.PEM) for item in several)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key as unencrypted PKCS #8 PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
