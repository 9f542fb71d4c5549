"""A cache of bounded size, whose entries live for a while."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ExpiringCache(Generic[K, V]):
    """At most *most* values; the one that was put or read longest ago goes first.

    Times are seconds of one clock, which callers pass.
    """

    def __init__(self, most: int) -> None:
        """Begin empty."""
        self._most = most
        self._entries: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, now: float) -> V | None:
        """Return the value of *key*, ``None`` where there is none or its time is over."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, until = entry
        if now >= until:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V, until: float) -> None:
        """Keep *value* under *key* until then."""
        self._entries[key] = (value, until)
        self._entries.move_to_end(key)
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def drop(self, key: K) -> None:
        """Forget *key*."""
        self._entries.pop(key, None)
