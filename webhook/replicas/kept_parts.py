"""KeptParts: what many pods share, kept within bounds; tenants decide how many there are."""

from collections import OrderedDict
from typing import Final, Generic, TypeVar

ENTRY: Final = 512  # bytes of a part besides its texts
_SEEN: Final = 4096  # names
_Part = TypeVar("_Part")


class KeptParts(Generic[_Part]):
    """Parts by what names them. Those that were not used for longest go once all are too large."""

    def __init__(self, *, most_bytes: int, largest: int) -> None:
        """Keep up to *most_bytes*, and no part of more than *largest*."""
        self.size = 0  # bytes
        self._most = most_bytes
        self._largest = largest
        self._parts: OrderedDict[str | bytes | int, tuple[_Part, int]] = OrderedDict()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._parts)

    def get(self, name: str | bytes | int) -> _Part | None:
        """Return the part called *name*."""
        found = self._parts.get(name)
        if found is None:
            return None
        self._parts.move_to_end(name)
        return found[0]

    def keep(self, name: str | bytes | int, part: _Part, size: int) -> None:
        """Keep *part*, which takes *size* bytes, instead of any other called *name*."""
        before = self._parts.pop(name, None)
        if before is not None:
            self.size -= before[1]
        size += ENTRY
        if size > self._largest:
            return
        self._parts[name] = part, size
        self.size += size
        while self.size > self._most:
            _, (_, least) = self._parts.popitem(last=False)
            self.size -= least


class SeenNames:
    """The last 4,096 names that were noted. Tenants write them, so only their hashes are kept."""

    def __init__(self) -> None:
        """Know no name."""
        self._hashes: OrderedDict[int, None] = OrderedDict()

    def note(self, name: str) -> bool:
        """Say whether *name* was here of late; from now on it was."""
        hashed = hash(name)
        seen = hashed in self._hashes
        self._hashes[hashed] = None
        self._hashes.move_to_end(hashed)
        if len(self._hashes) > _SEEN:
            self._hashes.popitem(last=False)
        return seen
