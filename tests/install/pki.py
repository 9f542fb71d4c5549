"""Certificates of a cluster, as kubeadm makes them: one authority, a key for each component."""

import base64
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID: timedelta = timedelta(days=1)


class Pki:
    """One certificate authority, and what it has signed, as files of *folder*."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
        usage = x509.BasicConstraints(ca=True, path_length=None)
        certificate = (
            self._builder(self._name, self._key)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca_file = folder / "ca.crt"
        self.ca_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(self._key, folder / "ca.key")

    def issue(
        self, name: str, *, user: str, group: str = "", hosts: Iterable[str] = ()
    ) -> tuple[Path, Path]:
        """Write a certificate of *user* and its key; return both files.

        It serves too, as each of *hosts*, which are names or addresses.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group:
            parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = self._builder(x509.Name(parts), key).add_extension(
            x509.ExtendedKeyUsage(usages), critical=False
        )
        if names := [_alternative(host) for host in hosts]:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        files = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(key, files[1])
        return files

    def service_account_key(self) -> Path:
        """Write the key that signs the tokens of service accounts."""
        file = self.folder / "sa.key"
        _write_key(rsa.generate_private_key(public_exponent=65537, key_size=2048), file)
        return file

    def kubeconfig(self, name: str, *, server: str, user: str, group: str = "") -> Path:
        """Write a kubeconfig with a certificate of *user*."""
        certificate, key = self.issue(name, user=user, group=group)
        cluster = {"server": server, "certificate-authority-data": _encoded(self.ca_file)}
        credentials = {
            "client-certificate-data": _encoded(certificate),
            "client-key-data": _encoded(key),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "one-node", "cluster": cluster}],
            "users": [{"name": name, "user": credentials}],
            "contexts": [{"name": name, "context": {"cluster": "one-node", "user": name}}],
            "current-context": name,
        }
        file = self.folder / f"{name}.kubeconfig"
        file.write_text(json.dumps(config))
        return file

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + VALID)
        )


def _write_key(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, file: Path) -> None:
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
