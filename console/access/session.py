"""Sessions in a cookie: encrypted and signed, so that a browser can neither read nor change one."""

import hmac
import json
import zlib
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from console.access.identity import UserIdentity

SESSION_COOKIE: Final = "__Host-vgpu-session"
FORM_COOKIE: Final = "__Host-vgpu-form"  # of the login form, before there is a session
LARGEST_COOKIE: Final = 3900  # characters; browsers keep 4096 with the name and attributes
LARGEST_PAYLOAD: Final = 256 * 1024  # bytes once inflated; ours, but bounded all the same
FORM_SECONDS: Final = 3600.0


class SessionTooLargeError(Exception):
    """A session does not fit into a cookie; the text says what would help."""


class SessionKeyError(ValueError):
    """A key file holds something else; the text says what is accepted."""


class _Payload(msgspec.Struct, frozen=True, array_like=True):
    id: str
    csrf: str
    until: float
    user: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Somebody who logged in; ``until`` is Unix seconds."""

    id: str
    csrf: str  # what forms of this session carry
    until: float
    identity: UserIdentity

    def has_token(self, text: str) -> bool:
        """Say whether *text* is the token of this session's forms."""
        return hmac.compare_digest(self.csrf.encode(), text.encode())


def parse_keys(text: str) -> tuple[bytes, ...]:
    """Return the keys of a file, the newest first; raises :class:`SessionKeyError`."""
    keys = tuple(line.strip().encode() for line in text.splitlines() if line.strip())
    try:
        for key in keys:
            Fernet(key)
    except ValueError as error:
        raise SessionKeyError(_BAD_KEY) from error
    if not keys:
        raise SessionKeyError(_BAD_KEY)
    return keys


_BAD_KEY: Final = "no session key; accepted: lines of 32 bytes in URL-safe base64, the newest first"


class SessionCodec:
    """Seals sessions with the first of its keys, and opens those of any."""

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        """Take *keys*, or a random one that ends with the process."""
        keys = keys or (Fernet.generate_key(),)
        self._fernet = MultiFernet([Fernet(key) for key in keys])
        self._key = keys[0]

    def seal(self, session: Session, now: float) -> str:
        """Return the value of a cookie; raises :class:`SessionTooLargeError`."""
        identity = session.identity
        payload = _Payload(
            session.id,
            session.csrf,
            session.until,
            identity.user,
            identity.uid,
            identity.groups,
            identity.extra,
        )
        text = self._seal(b"s" + zlib.compress(msgspec.json.encode(payload), 9), now)
        if len(text) > LARGEST_COOKIE:
            raise SessionTooLargeError(
                f"{len(identity.groups)} groups do not fit into a cookie of {LARGEST_COOKIE}"
                " characters; use an authenticating proxy, or a token of fewer groups"
            )
        return text

    def open(self, text: str, now: float) -> Session | None:
        """Return the session of a cookie; ``None`` where it is forged, damaged or over."""
        sealed = self._open(text, b"s")
        if sealed is None:
            return None
        inflater = zlib.decompressobj()
        try:
            plain = inflater.decompress(sealed, LARGEST_PAYLOAD)
            payload = msgspec.json.decode(plain, type=_Payload)
        except (zlib.error, msgspec.MsgspecError):
            return None
        if now >= payload.until:
            return None
        identity = UserIdentity(
            user=payload.user, uid=payload.uid, groups=payload.groups, extra=payload.extra
        )
        return Session(id=payload.id, csrf=payload.csrf, until=payload.until, identity=identity)

    def token_of(self, identity: UserIdentity) -> str:
        """Return what forms carry of somebody who is known without a session."""
        text = f"forms of {identity.uid} {identity.user}"
        return hmac.digest(self._key, text.encode(), "sha256").hex()

    def seal_form(self, csrf: str, now: float) -> str:
        """Return the cookie of a login form whose hidden field is *csrf*."""
        return self._seal(b"f" + msgspec.json.encode((csrf, now + FORM_SECONDS)), now)

    def is_form(self, text: str, csrf: str, now: float) -> bool:
        """Say whether cookie and hidden field of a login form belong together."""
        sealed = self._open(text, b"f")
        if sealed is None:
            return False
        expected, until = msgspec.json.decode(sealed, type=tuple[str, float])
        return now < until and hmac.compare_digest(expected.encode(), csrf.encode())

    def _seal(self, plain: bytes, now: float) -> str:
        return self._fernet.encrypt_at_time(plain, int(now)).decode()

    def _open(self, text: str, purpose: bytes) -> bytes | None:
        if len(text) > LARGEST_COOKIE or not text.isascii():
            return None
        try:
            plain = self._fernet.decrypt(text.encode())
        except InvalidToken:
            return None
        return plain[1:] if plain[:1] == purpose else None


def token_expiry(token: str) -> float | None:
    """Return when a JSON web token says that it ends, as Unix seconds; ``None`` for others.

    The signature is not checked here: the API server has done so.
    """
    parts = token.split(".")
    if len(parts) != _JWT_PARTS:
        return None
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expiry = claims["exp"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return float(expiry) if type(expiry) in {int, float} and 0 < expiry < _YEAR_9999 else None


_JWT_PARTS: Final = 3
_YEAR_9999: Final = 253_402_300_799
