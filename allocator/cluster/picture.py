"""Pictures: objects by key that a watch edits in place, and what changed in one since a last look.

A collection may have a hundred thousand objects, of which a few change each second. So nothing is
copied or gone through per change: a reader asks for the keys that changed since it last asked.
"""

from collections.abc import Collection, Mapping
from typing import Final, Generic, TypeVar

MOST_REMEMBERED: Final = 10_000  # changed keys; who asks for more goes through all objects
T = TypeVar("T")


class Picture(dict[str, T]):
    """Objects by key. Only its owner changes it, by :meth:`apply`; for all others it is read-only.

    Readers that wait in between see later objects afterwards.
    """

    __slots__ = ("_changed", "_forgotten", "version")

    def __init__(self) -> None:
        """Begin without objects."""
        super().__init__()
        self.version = 0  # of the last change
        self._changed: dict[str, int] = {}  # version by key, the latest at the end
        self._forgotten = 0  # changes up to this version are not remembered

    def apply(self, changes: Mapping[str, T | None]) -> list[str]:
        """Add or replace objects, or remove where ``None``; return the keys that changed.

        An object that is there already is no change.
        """
        changed = [key for key, value in changes.items() if self.get(key) is not value]
        for key in changed:
            value = changes[key]
            if value is None:
                del self[key]
            else:
                self[key] = value
        self._remember(changed)
        return changed

    def changed_since(self, version: int) -> list[str] | None:
        """Return the keys that changed after *version*; ``None`` where too many did."""
        if version < self._forgotten:
            return None
        keys = []
        for key in reversed(self._changed):
            if self._changed[key] <= version:
                break
            keys.append(key)
        return keys

    def _remember(self, changed: Collection[str]) -> None:
        if not changed:
            return
        self.version += 1
        if len(changed) > MOST_REMEMBERED:
            self._changed.clear()
            self._forgotten = self.version
            return
        for key in changed:
            self._changed.pop(key, None)
            self._changed[key] = self.version
        while len(self._changed) > MOST_REMEMBERED:
            self._forgotten = self._changed.pop(next(iter(self._changed)))


class ChangeTracker(Generic[T]):
    """What one reader has not seen yet of a mapping of objects, which are replaced, not edited."""

    def __init__(self) -> None:
        """Begin before the first look."""
        self._seen: Mapping[str, T] | None = None
        self._version = 0

    def take(self, objects: Mapping[str, T]) -> Collection[str] | None:
        """Return the keys that were added, replaced or removed since the last call.

        ``None`` at first, and where it is not known: then anything may have changed.
        """
        seen, self._seen = self._seen, objects
        if isinstance(objects, Picture):
            since, self._version = self._version, objects.version
            changed = objects.changed_since(since)
            return changed if seen is objects else None
        self._seen = dict(objects)
        if seen is None or isinstance(seen, Picture):
            return None
        keys = seen.keys() | objects.keys()
        return [key for key in keys if seen.get(key) is not objects.get(key)]
