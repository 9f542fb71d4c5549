"""Issues certificates of authorities, servers and clients."""

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
class KeyMaterial:
    """The inputs of one certificate that come from outside: entropy and time."""

    key: ec.EllipticCurvePrivateKey  # P-256
    serial: int  # random
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names that a serving certificate is valid for."""

    dns: tuple[str, ...]  # the first one is the common name too
    addresses: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueParameters:
    """The names and lifetimes of the certificates that are issued."""

    names: Names
    lifetimes: Lifetimes = DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A certificate that we issued, and its key."""

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


def authority(lifetimes: Lifetimes, material: KeyMaterial) -> Credential:
    """Issue the certificate of a new authority.

    Each authority has a different subject, because a verifier with two authorities of one name may
    try only the first.
    """
    name = _common_name(f"vgpu-admission CA {material.serial:040x}"[:64])
    key_id = x509.SubjectKeyIdentifier.from_public_key(material.key.public_key())
    unsigned = (
        _builder(material, start=material.now - lifetimes.skew, end=material.now + lifetimes.ca)
        .subject_name(name)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(key_id, critical=False)
    )
    return Credential(certificate=unsigned.sign(material.key, hashes.SHA256()), key=material.key)


def leaf(issuer: Credential, parameters: IssueParameters, material: KeyMaterial) -> Credential:
    """Issue a serving certificate that expires no later than *issuer*."""
    end = min(material.now + parameters.lifetimes.leaf, issuer.certificate.not_valid_after_utc)
    alternatives = [
        *(x509.DNSName(name) for name in parameters.names.dns),
        *(x509.IPAddress(address) for address in parameters.names.addresses),
    ]
    builder = _builder(material, start=material.now - parameters.lifetimes.skew, end=end)
    builder = builder.subject_name(_common_name(parameters.names.dns[0][:64]))
    builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return _end_entity(issuer, builder, material, usage=ExtendedKeyUsageOID.SERVER_AUTH)


def client(
    issuer: Credential, name: str, material: KeyMaterial, *, lifetimes: Lifetimes = DEFAULT
) -> Credential:
    """Issue a certificate by which a caller called *name* is known, for as long as *issuer* lives.

    It serves nobody, as a serving certificate makes nobody known.
    """
    builder = _builder(
        material,
        start=material.now - lifetimes.skew,
        end=issuer.certificate.not_valid_after_utc,
    )
    builder = builder.subject_name(_common_name(name))
    return _end_entity(issuer, builder, material, usage=ExtendedKeyUsageOID.CLIENT_AUTH)


def _end_entity(
    issuer: Credential,
    builder: x509.CertificateBuilder,
    material: KeyMaterial,
    *,
    usage: x509.ObjectIdentifier,
) -> Credential:
    """Sign what signs nothing itself."""
    unsigned = (
        builder.issuer_name(issuer.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(_authority_key_id(issuer.certificate), critical=False)
    )
    return Credential(certificate=unsigned.sign(issuer.key, hashes.SHA256()), key=material.key)


def _builder(material: KeyMaterial, *, start: datetime, end: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .public_key(material.key.public_key())
        .serial_number(material.serial)
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
    extension = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(extension.value)
