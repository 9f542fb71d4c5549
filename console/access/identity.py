"""Who somebody is to the API server: what a token, a certificate or a proxy says of them."""

from dataclasses import dataclass
from typing import Final

AUTHENTICATED: Final = "system:authenticated"  # the group of everybody who is known
RESERVED: Final = "system:"  # how names begin that only the API server's own sources may give
LONGEST_NAME: Final = 1024  # characters of a user, a group or a value of ``extra``
MOST_GROUPS: Final = 2000
MOST_EXTRA: Final = 64  # keys, and values of each


@dataclass(frozen=True, slots=True, kw_only=True)
class UserIdentity:
    """A user as reviews of the API server name one; hashable, so that caches can hold it."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def is_bounded(self) -> bool:
        """Say whether names and their number are such as real users have."""
        values = [value for _, several in self.extra for value in several]
        names = (self.user, self.uid, *self.groups, *(key for key, _ in self.extra), *values)
        few = len(self.groups) <= MOST_GROUPS and len(self.extra) <= MOST_EXTRA
        return (
            bool(self.user)
            and few
            and len(values) <= MOST_EXTRA * MOST_EXTRA
            and all(len(name) <= LONGEST_NAME and "\0" not in name for name in names)
        )

    def values(self, key: str) -> tuple[str, ...]:
        """Return what ``extra`` says under *key*."""
        return next((values for name, values in self.extra if name == key), ())
