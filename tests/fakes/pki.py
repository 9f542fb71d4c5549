"""A certificate authority for tests, whose certificates live for an hour."""

import datetime as dt
import ipaddress
import ssl
import tempfile
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

LOOPBACK = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A certificate and its key as PEM."""

    certificate: bytes
    key: bytes


class Authority:
    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.certificate = self._signed(self._name, self._key.public_key(), None)

    def issue(self, name: str, names: x509.SubjectAlternativeName = LOOPBACK) -> Issued:
        """Issue for *names*, 127.0.0.1 if not given, good for servers and clients alike."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        return Issued(
            certificate=self._signed(subject, key.public_key(), names),
            key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        )

    def server(self, *, clients: bool = False) -> ssl.SSLContext:
        """Return a server's context; with *clients*, one that wants a certificate of ours."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        issued = self.issue("server")
        with tempfile.NamedTemporaryFile() as file:
            file.write(issued.certificate + issued.key)
            file.flush()
            context.load_cert_chain(file.name)
        if clients:
            context.load_verify_locations(cadata=self.certificate.decode())
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _signed(
        self,
        subject: x509.Name,
        public: ec.EllipticCurvePublicKey,
        names: x509.SubjectAlternativeName | None,
    ) -> bytes:
        now = dt.datetime.now(dt.UTC)
        hour = dt.timedelta(hours=1)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - hour)
            .not_valid_after(now + hour)
            .add_extension(x509.BasicConstraints(ca=names is None, path_length=None), critical=True)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
