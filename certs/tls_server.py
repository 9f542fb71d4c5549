"""Replaces the certificate of a running TLS server.

Every pair gets a TLS context of its own, and each handshake uses the newest one. Loading into the
live context instead would leave it half changed on a mismatch. After a change of key type OpenSSL
would also keep offering the certificate of the old type (seen with P-256 to RSA). Connections keep
the context they began with.
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

from certs.check import TIME_FAULTS, Expected, PairFault, PairFinding, check_pair
from certs.pem import Pair, certificates, fingerprint
from kube.clock import SYSTEM


def server_context(*, mutual: bool = False, optional: bool = False) -> ssl.SSLContext:
    """Return a server's context without a certificate: TLS 1.2 at least, 1.3 where possible.

    A *mutual* one wants a certificate of its callers too, an *optional* one takes it if there is
    one.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if mutual:
        context.verify_mode = ssl.CERT_OPTIONAL if optional else ssl.CERT_REQUIRED
    return context


@dataclass(frozen=True, slots=True)
class _Loaded:
    context: ssl.SSLContext
    text: bytes  # of the certificate and its chain, PEM
    client_ca: str  # that callers must show a certificate of, PEM; empty: they show none
    leaf: x509.Certificate


class ServingPair:
    """The pair that handshakes use; replaced as a whole, never changed.

    The server gets ``context`` once and keeps it; until a pair is loaded, handshakes fail.
    *client_ca* returns client CAs, which may change, as PEM: while there are any, callers must show
    a certificate of theirs, or may where that is *optional*. A *mutual* one serves nobody while
    there are none.
    """

    def __init__(
        self,
        *,
        now: Callable[[], datetime] = SYSTEM.wall,
        client_ca: Callable[[], str] = lambda: "",
        mutual: bool = False,
        optional: bool = False,
    ) -> None:
        """Start without a pair."""
        self._now = now
        self._client_ca = client_ca
        self._mutual = mutual
        self._optional = optional
        self._loaded: _Loaded | None = None
        self.context = server_context(mutual=mutual)
        self.context.sni_callback = self._switch_context

    def load(self, pair: Pair) -> tuple[PairFinding, ...]:
        """Serve *pair* from now on, and return its faults.

        A pair that cannot be served is not loaded. A pair that has expired or is not valid yet does
        not replace a valid one.
        """
        pair_findings = check_pair(pair, Expected(now=self._now()))
        if any(item.fault not in TIME_FAULTS for item in pair_findings) or (
            pair_findings and self.ready
        ):
            return pair_findings
        client_ca = self._client_ca()
        loaded = self._loaded
        if loaded and (loaded.text, loaded.client_ca) == (pair.certificate, client_ca):
            return pair_findings
        if self._mutual and not certificates(client_ca.encode()):
            return (PairFinding(PairFault.UNREADABLE, "callers have no authority, in PEM"),)
        context = server_context(mutual=self._mutual or bool(client_ca), optional=self._optional)
        try:
            if client_ca:
                context.load_verify_locations(cadata=client_ca)
            with _path_to(pair.certificate + b"\n" + pair.key) as path:
                context.load_cert_chain(path)
        except ssl.SSLError as error:  # a key that OpenSSL finds too weak, for example
            return (
                *pair_findings,
                PairFinding(PairFault.UNREADABLE, f"OpenSSL rejects the pair: {error.reason}"),
            )
        leaf = certificates(pair.certificate)[0]
        self._loaded = _Loaded(context, pair.certificate, client_ca, leaf)
        # A handshake that changes its context keeps what the first one demands of callers.
        self.context.verify_mode = context.verify_mode
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
        """Return the certificate that is served, ``None`` if there is none."""
        return None if self._loaded is None else self._loaded.leaf

    @property
    def fingerprint(self) -> str | None:
        """Return the SHA-256 of the served certificate, in hexadecimal."""
        return None if self.leaf is None else fingerprint(self.leaf)

    @property
    def not_after(self) -> datetime | None:
        """Return when the served certificate expires."""
        return None if self.leaf is None else self.leaf.not_valid_after_utc

    def _switch_context(
        self, handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> int | None:
        """Make a handshake use the newest pair; OpenSSL calls this with or without a name."""
        if self._loaded is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        handshake.context = self._loaded.context
        return None


@contextmanager
def _path_to(text: bytes) -> Iterator[str]:
    """Yield a path with the content *text*, because OpenSSL's loader takes nothing else.

    On Linux that is memory, which needs no writable file system and disappears even if we are
    killed. Elsewhere it is a temporary file of mode 0600.
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
