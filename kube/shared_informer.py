"""One watch of a collection for several consumers, each with its own view of the objects.

Every watch costs the API server one message per change, and this process one parse of it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, Never, TypeVar

from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.watch import PublishUpdates, WatchHealth, WatchSource, follow_updates

P = TypeVar("P")
T = TypeVar("T")
_Views = tuple[str, tuple[Any, ...]]  # uid, and by consumer; None: it does not need the object


class SharedInformer(Generic[P]):
    """A watch on the collection at *path*; consumers are added before it is followed."""

    def __init__(
        self,
        path: str,
        *,
        decode: Callable[[bytes], P],
        uid: Callable[[P], str],
        protobuf: bool = False,
        clock: Clock = SYSTEM,
    ) -> None:
        """Begin without consumers; *decode* reads an object for all of them.

        It gets JSON; with *protobuf*, either.
        """
        self._protobuf = protobuf
        self._path = path
        self._decode = decode
        self._uid = uid
        self._clock = clock
        self._consumers: list[tuple[Callable[[P, bytes], Any], PublishUpdates[Any]]] = []
        self.health = WatchHealth()

    def add(self, view: Callable[[P, bytes], T | None], publish: PublishUpdates[T]) -> None:
        """Add a consumer: *publish* gets its views of the objects that changed, by uid.

        *view* takes an object as it was decoded, and as it was sent. It returns ``None`` for one
        that this consumer does not need; for *publish* that is as good as gone. An object for which
        it raises stays as it was, for all consumers.
        """
        self._consumers.append((view, publish))

    async def follow(self, client: Client) -> Never:
        """Follow, for ever, as :func:`kube.watch.follow_updates` does; RBAC: list, watch."""
        source = WatchSource(
            path=self._path,
            decode=self.decode,
            key=lambda views: views[0],
            protobuf=self._protobuf,
        )
        await follow_updates(client, source, self.publish, health=self.health, clock=self._clock)

    def decode(self, raw: bytes) -> _Views:
        """Return an object as every consumer views it."""
        decoded = self._decode(raw)
        return self._uid(decoded), tuple(view(decoded, raw) for view, _ in self._consumers)

    def publish(self, changes: Mapping[str, _Views | None]) -> None:
        """Pass *changes* on to every consumer."""
        for index, (_, publish) in enumerate(self._consumers):
            publish({uid: views and views[1][index] for uid, views in changes.items()})
