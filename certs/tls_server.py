"""Reload: replaces the certificate of a running TLS server.

Every pair gets a context of its own, complete or discarded, and each handshake is sent to the
newest one. Loading into the live context instead would leave it half changed on a mismatch, and
after a change of key type OpenSSL keeps offering the certificate of the old type beside the new
(seen with P-256 to RSA). Connections keep the context they began with.
"""

import os
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509

from certs.check import TIME_FAULTS, Expected, PairFault, PairFinding, findings
from certs.pem import Pair, certificates, fingerprint
from kube.clock import SYSTEM


def server_context() -> ssl.SSLContext:
    """Return a server's context without a certificate: TLS 1.2 at least, 1.3 where possible."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


@dataclass(frozen=True, slots=True)
class _Loaded:
    context: ssl.SSLContext
    text: bytes
    leaf: x509.Certificate


class ServingPair:
    """The pair that handshakes are answered with; replaced whole, never edited.

    ``context`` goes to the server and stays; until a pair is loaded, handshakes fail. *build*
    makes it and each pair's own, so what it sets, such as whom clients must be signed by, holds
    for all of them.
    """

    def __init__(
        self,
        *,
        now: Callable[[], datetime] = SYSTEM.wall,
        build: Callable[[], ssl.SSLContext] = server_context,
    ) -> None:
        """Serve nothing yet."""
        self._now = now
        self._build = build
        self._loaded: _Loaded | None = None
        self.context = build()
        self.context.sni_callback = self._direct

    def load(self, pair: Pair) -> tuple[PairFinding, ...]:
        """Serve *pair* from now on and return what is wrong with it.

        One that cannot be served is not loaded, nor one that is expired or not yet valid in
        place of one that is valid.
        """
        pair_findings = findings(pair, Expected(now=self._now()))
        if any(item.fault not in TIME_FAULTS for item in pair_findings) or (
            pair_findings and self.ready
        ):
            return pair_findings
        if self._loaded is not None and self._loaded.text == pair.certificate:
            return pair_findings
        context = self._build()
        try:
            with _path_to(pair.certificate + b"\n" + pair.key) as path:
                context.load_cert_chain(path)
        except ssl.SSLError as error:  # a key that OpenSSL finds too weak, for example
            return (
                *pair_findings,
                PairFinding(PairFault.UNREADABLE, f"OpenSSL rejects the pair: {error.reason}"),
            )
        leaf = certificates(pair.certificate)[0]
        self._loaded = _Loaded(context, pair.certificate, leaf)
        return pair_findings

    @property
    def ready(self) -> bool:
        """Say whether a pair that is valid now is loaded."""
        leaf = self.leaf
        if leaf is None:
            return False
        return leaf.not_valid_before_utc <= self._now() <= leaf.not_valid_after_utc

    @property
    def leaf(self) -> x509.Certificate | None:
        """Return the certificate that is served."""
        return None if self._loaded is None else self._loaded.leaf

    @property
    def fingerprint(self) -> str | None:
        """Return the SHA-256 of what is served, in hexadecimal."""
        return None if self.leaf is None else fingerprint(self.leaf)

    @property
    def not_after(self) -> datetime | None:
        """Return when what is served expires."""
        return None if self.leaf is None else self.leaf.not_valid_after_utc

    def _direct(
        self, handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> int | None:
        """Send a handshake to the newest pair; OpenSSL calls this with or without a name."""
        if self._loaded is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        handshake.context = self._loaded.context
        return None


@contextmanager
def _path_to(text: bytes) -> Iterator[str]:
    """Lend *text* under a path, which is all that OpenSSL's loader takes.

    On Linux it never reaches a file system, which may be read-only anyway, and is gone even if
    we are killed; elsewhere it is a file of mode 0600 for the moment.
    """
    if sys.platform == "linux":
        descriptor = os.memfd_create("pair", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb", buffering=0) as memory:
            memory.write(text)
            yield f"/proc/self/fd/{descriptor}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(text)
            file.flush()
            yield file.name
