"""The secret that ends the path of every hook, by which the API server is known.

An API server presents nothing to a webhook by default, and anybody on the pod network reaches our
port. So the registrations name paths that only they and we know. Failures of the API server quote
such a path to tenants; the secret is therefore replaced every hour.

A replica accepts the secret in our Secret and those that the registrations carry, each for ten
minutes after it saw it last. So a new one is known to all replicas before the API server uses it,
and no call is lost with a Secret that is lost, nor while nobody leads. Only who may write the
registrations decides what they carry. A path without a secret is accepted while they carry one.
"""

import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from allocator.model.untrusted import zoned_time

LIFE: Final = timedelta(hours=1)  # of a secret, until another one is made
SKEW: Final = timedelta(minutes=5)  # by which clocks of replicas may differ
HELD_SECONDS: Final = 600.0  # for which a secret is accepted after it was seen last
SETTLE_SECONDS: Final = 15.0  # in which every replica reads what is new, before it is published
LONG_ENOUGH: Final = 32  # characters of a secret that nobody guesses: 128 bits in hexadecimal
# API servers admit only lowercase names in the path of a Service.
_USABLE: Final = re.compile(rf"[a-z0-9]{{{LONG_ENOUGH},128}}")
TOKEN_BYTES: Final = 32  # of entropy, in a secret that we make
TOKEN: Final = "token"  # noqa: S105 -- the key in the Secret
MADE: Final = "vgpu-admission.io/path-made"  # annotation of the Secret, RFC 3339
READS_PATHS: Final = (
    "vgpu-admission.io/secret-paths"  # annotation of replicas that know of all this
)

# By the name of each webhook in our registrations.
HOOK_PATHS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "pods.vgpu-admission.io": "/mutate/pods",
        "others.vgpu-admission.io": "/mutate/pods",
        "ephemeral.vgpu-admission.io": "/mutate/pods/ephemeralcontainers",
        "others.ephemeral.vgpu-admission.io": "/mutate/pods/ephemeralcontainers",
        "bindings.vgpu-admission.io": "/mutate/bindings",
        "pods.validate.vgpu-admission.io": "/validate/pods",
        "workloads.vgpu-admission.io": "/validate/workloads",
    }
)
_KNOWN: Final = frozenset(HOOK_PATHS.values())


def split(path: str) -> tuple[str, str] | None:
    """Return the path of a hook and the secret behind it, empty where *path* has none.

    ``None`` stands for a path of no hook.
    """
    if path in _KNOWN:
        return path, ""
    hook, _, token = path.rpartition("/")
    return (hook, token) if hook in _KNOWN else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    """The secret as our Secret holds it; missing or malformed parts are ``None``."""

    token: str | None = None
    made: datetime | None = None

    def is_due(self, now: datetime) -> bool:
        """Say whether another one must be made; one from the future has a wrong clock."""
        if self.token is None or self.made is None:
            return True
        return not -SKEW <= now - self.made < LIFE


def decode_token(data: Mapping[str, bytes], annotations: Mapping[str, str]) -> StoredToken:
    """Decode the data and annotations of the Secret; a secret that can be guessed is none."""
    text = data.get(TOKEN, b"").decode("ascii", errors="replace")
    token = text if _USABLE.fullmatch(text) else None
    return StoredToken(token=token, made=zoned_time(annotations.get(MADE, "")))


class HookPaths:
    """Which paths are answered; until the first call of :meth:`see` any secret but none is wrong.

    Nobody waits for time to pass: *now* is monotonic, in seconds.
    """

    def __init__(self, tokens: Iterable[str] = ("",)) -> None:
        """Accept *tokens*, where nothing else is ever seen: the empty one is a path without."""
        self._tokens = tuple(token.encode() for token in tokens)
        self._seen: dict[str, float] = {}

    def see(self, tokens: Iterable[str], now: float) -> None:
        """Accept *tokens* from now on, and no longer those not seen for ``HELD_SECONDS``."""
        seen = {token: at for token, at in self._seen.items() if now - at < HELD_SECONDS}
        self._seen = seen | dict.fromkeys(tokens, now)
        self._tokens = tuple(token.encode() for token in self._seen)

    def hook_of(self, path: str) -> str | None:
        """Return the hook that *path* leads to, ``None`` for callers that do not know the secret.

        Each comparison takes the same time, whatever is wrong.
        """
        found = split(path)
        if found is None:
            return None
        hook, token = found
        given = token.encode(errors="surrogateescape")
        known = [hmac.compare_digest(given, token) for token in self._tokens]
        return hook if any(known) else None

    @property
    def known(self) -> bool:
        """Say whether any path is answered."""
        return bool(self._tokens)

    @property
    def secret(self) -> bool:
        """Say whether every caller that is answered knows a secret that nobody guesses."""
        return all(len(token) >= LONG_ENOUGH for token in self._tokens)
