"""One watch of a collection for several consumers, each with its own decoder.

Every watch costs the API server one message per change, and this process one parse of it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Generic, Never, TypeVar

import msgspec

from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.watch import Publish, WatchHealth, WatchSource, follow_changes

T = TypeVar("T")


class _Metadata(msgspec.Struct, gc=False):
    uid: str


class _Identified(msgspec.Struct, gc=False):
    metadata: _Metadata


_IDENTIFIED: Final = msgspec.json.Decoder(_Identified)


@dataclass(frozen=True, slots=True)
class _DecodedParts:
    """One object as each consumer decoded it."""

    uid: str
    parts: tuple[Any, ...]  # by consumer; None: that consumer does not need it


class _Consumer(Generic[T]):
    """One consumer with its decoder and its objects by uid."""

    def __init__(self, decode: Callable[[bytes], T | None], publish: Publish[T]) -> None:
        self.decode = decode
        self._publish = publish
        self._objects: Mapping[str, T] = {}

    def update(self, changes: Mapping[str, T | None]) -> None:
        """Publish the objects with *changes*; ``None`` removes an object."""
        objects = dict(self._objects)
        for uid, decoded in changes.items():
            if decoded is None:
                objects.pop(uid, None)
            else:
                objects[uid] = decoded
        self._objects = objects
        self._publish(MappingProxyType(objects), changes.keys())


class SharedInformer:
    """A watch on the collection at *path*; consumers are added before it is followed."""

    def __init__(self, path: str, *, clock: Clock = SYSTEM) -> None:
        """Begin without consumers."""
        self._path = path
        self._clock = clock
        self._consumers: list[_Consumer[Any]] = []
        self.health = WatchHealth()

    def add(self, decode: Callable[[bytes], T | None], publish: Publish[T]) -> None:
        """Add a consumer: *publish* gets all decoded objects by uid.

        It also gets the uids that may have changed. *decode* returns ``None`` for an object that
        this consumer does not need. An object for which it raises stays as it was last decoded, for
        all consumers.
        """
        self._consumers.append(_Consumer(decode, publish))

    async def follow(self, client: Client) -> Never:
        """Follow, for ever, as :func:`kube.watch.follow_changes` does; RBAC: list, watch."""
        source = WatchSource(path=self._path, decode=self.decode, key=lambda decoded: decoded.uid)
        await follow_changes(client, source, self.publish, health=self.health, clock=self._clock)

    def decode(self, raw: bytes) -> _DecodedParts:
        """Decode an object for every consumer."""
        uid = _IDENTIFIED.decode(raw).metadata.uid
        return _DecodedParts(uid, tuple(part.decode(raw) for part in self._consumers))

    def publish(self, objects: Mapping[str, _DecodedParts], touched: Collection[str]) -> None:
        """Pass the objects *touched* on to every consumer."""
        changes = {uid: objects.get(uid) for uid in touched}
        for index, consumer in enumerate(self._consumers):
            consumer.update(
                {uid: decoded and decoded.parts[index] for uid, decoded in changes.items()}
            )
