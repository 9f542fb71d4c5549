"""The token and the TLS context for the API server, reread as their files change."""

import os
import ssl
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from kube.clock import Clock
from kube.config import Access
from kube.errors import ConfigError, shorten

REREAD_EVERY: Final = 60.0  # seconds; kubelet replaces a projected token at 80 % of its life


class _Material(NamedTuple):
    """The contents of the certificates and the key of one :class:`Access`, as PEM."""

    ca: bytes | None
    certificate: bytes | None
    key: bytes | None


class Credentials:
    """Token and certificates; the last good ones stay while a file is being replaced."""

    def __init__(self, access: Access, clock: Clock) -> None:
        """Store the parameters; files are read at the first use."""
        self._access = access
        self._clock = clock
        self._read_at: float | None = None
        self._token: str | None = None
        self._material: _Material | None = None
        self._tls: ssl.SSLContext | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers that carry our identity; raises :class:`ConfigError`."""
        self._refresh()
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def tls(self) -> ssl.SSLContext | bool:
        """Return the context for https, a new one when a certificate changed.

        Connections are pooled by context, so those made with the old one are not used again.
        Raises :class:`ConfigError`.
        """
        self._refresh()
        return self._tls if self._tls is not None else True

    def forget(self) -> None:
        """Read the files again at the next use, because the server answered 401."""
        self._read_at = None

    def _refresh(self) -> None:
        now = self._clock.monotonic()
        if self._read_at is not None and now - self._read_at < REREAD_EVERY:
            return
        try:
            self._load()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            message = f"cannot load the credentials for {self._access.url}: {shorten(str(error))}"
            if self._material is None:
                raise ConfigError(message) from error
            _log_kept(message)
        self._read_at = now

    def _load(self) -> None:
        access = self._access
        token = _token_text(_content(access.token))
        material = _Material(
            _content(access.ca), _content(access.certificate), _content(access.key)
        )
        if material != self._material:
            self._tls = _context(access, material) if access.url.startswith("https:") else None
            self._material = material
        self._token = token


def _content(source: str | bytes | Path | None) -> bytes | None:
    match source:
        case Path():
            return source.read_bytes()
        case str():
            return source.encode()
        case _:
            return source


def _token_text(content: bytes | None) -> str | None:
    """Return a token that a header may carry; raises ``ValueError``."""
    text = content.decode("ascii").strip() if content else ""
    if not text.isprintable():
        raise ValueError("the token has a line break or another control character")
    return text or None


def _context(access: Access, material: _Material) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=material.ca.decode() if material.ca else None)
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if material.certificate is not None:
        _load_pair(context, material.certificate + b"\n" + (material.key or b""))
    return context


def _load_pair(context: ssl.SSLContext, pair: bytes) -> None:
    """Load certificate and key, which OpenSSL's binding takes from a file only.

    On Linux that is memory: an agent's root file system is read-only, and has no other place.
    """
    if sys.platform == "linux":
        descriptor = os.memfd_create("pair", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb", buffering=0) as memory:
            memory.write(pair)
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        return
    with tempfile.NamedTemporaryFile() as file:  # created for its owner alone
        file.write(pair)
        file.flush()
        context.load_cert_chain(file.name)


def _log_kept(why: str) -> None:
    # Importing it takes a tenth of a second, which a command that a person types should not pay.
    import structlog  # noqa: PLC0415 -- see above

    structlog.get_logger(__name__).warning("previous credentials kept", why=why)
