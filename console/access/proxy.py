"""What an authenticating proxy says in its headers of the person that it let through."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from console.access.identity import AUTHENTICATED, RESERVED, UserIdentity

USER_HEADER: Final = "X-Forwarded-User"
GROUP_HEADER: Final = "X-Forwarded-Group"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyRules:
    """Which proxies are believed: those with one of ``names`` as common name.

    Groups are one header each, or parts of one where a ``separator`` is given.
    """

    names: frozenset[str]
    user_header: str = USER_HEADER
    group_header: str = GROUP_HEADER
    separator: str = ""


def proxied_identity(
    headers: Iterable[tuple[bytes, bytes]], rules: ProxyRules
) -> UserIdentity | None:
    """Return the person that a proxy names in *headers*; ``None`` where it names none.

    A name that begins with ``system:`` is believed of no proxy: it would make somebody a part of
    the cluster, or one of its administrators.
    """
    pairs = [(name.decode("latin-1").lower(), value) for name, value in headers]
    users = [value for name, value in pairs if name == rules.user_header.lower()]
    if len(users) != 1:
        return None
    try:
        user = users[0].decode().strip()
        texts = [value.decode() for name, value in pairs if name == rules.group_header.lower()]
    except UnicodeDecodeError:
        return None
    groups = [
        group.strip()
        for text in texts
        for group in (text.split(rules.separator) if rules.separator else [text])
    ]
    if any(name.startswith(RESERVED) or not name.isprintable() for name in (user, *groups)):
        return None
    identity = UserIdentity(
        user=user, groups=tuple(dict.fromkeys((*filter(None, groups), AUTHENTICATED)))
    )
    return identity if identity.is_bounded else None
