"""Issue: creates CA and serving certificates."""

from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Address, IPv6Address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.pem import Pair, certificates_pem, key_pem
from certs.rotation_policy import DEFAULT, Lifetimes

Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """What one certificate is made from: a P-256 key, a random serial number, the moment."""

    key: ec.EllipticCurvePrivateKey
    serial: int
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What a serving certificate is valid for; the first DNS name stands in its subject."""

    dns: tuple[str, ...]
    addresses: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueParameters:
    """Whom certificates are issued for, and for how long."""

    names: Names
    lifetimes: Lifetimes = DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A certificate of ours and the key that belongs to it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pair(self) -> Pair:
        """Return it as PEM."""
        return Pair(certificate=certificates_pem(self.certificate), key=key_pem(self.key))


def service_names(service: str, namespace: str) -> Names:
    """Return every name by which a Service is called inside its cluster."""
    full = f"{service}.{namespace}.svc"
    return Names(dns=(full, service, f"{service}.{namespace}", f"{full}.cluster.local"))


def authority(lifetimes: Lifetimes, fresh: Fresh) -> Credential:
    """Make a certificate authority.

    Each has a subject of its own, because a verifier that holds two authorities of one name
    may try only the first.
    """
    name = _common_name(f"vgpu-admission CA {fresh.serial:040x}"[:64])
    key_id = x509.SubjectKeyIdentifier.from_public_key(fresh.key.public_key())
    unsigned = (
        _builder(fresh, start=fresh.now - lifetimes.skew, end=fresh.now + lifetimes.ca)
        .subject_name(name)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(key_id, critical=False)
    )
    return Credential(certificate=unsigned.sign(fresh.key, hashes.SHA256()), key=fresh.key)


def leaf(issuer: Credential, terms: IssueParameters, fresh: Fresh) -> Credential:
    """Make a serving certificate that ends no later than its issuer."""
    end = min(fresh.now + terms.lifetimes.leaf, issuer.certificate.not_valid_after_utc)
    alternatives = [
        *(x509.DNSName(name) for name in terms.names.dns),
        *(x509.IPAddress(address) for address in terms.names.addresses),
    ]
    unsigned = (
        _builder(fresh, start=fresh.now - terms.lifetimes.skew, end=end)
        .subject_name(_common_name(terms.names.dns[0][:64]))
        .issuer_name(issuer.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(_authority_key_id(issuer.certificate), critical=False)
    )
    return Credential(certificate=unsigned.sign(issuer.key, hashes.SHA256()), key=fresh.key)


def _builder(fresh: Fresh, *, start: datetime, end: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .public_key(fresh.key.public_key())
        .serial_number(fresh.serial)
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_key_id(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    held = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(held.value)
