"""Names of objects, as far as they must be harmless."""

from typing import Final

_LONGEST: Final = 253
_ALLOWED: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")


def is_safe_name(name: str) -> bool:
    """Say whether *name* may be part of a path; who sends it may be anybody.

    The API server itself checks names after the hooks.
    """
    return 0 < len(name) <= _LONGEST and name[0] != "." and _ALLOWED.issuperset(name)
