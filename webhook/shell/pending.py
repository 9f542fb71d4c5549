"""Pending: the pods that have no node yet, so that a bind need not ask for each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Never

import msgspec

from kube.client import Client
from kube.watch import Source, follow
from webhook.core.bindingreview import LivePod, live_pod

PODS: Final = "/api/v1/pods"


class _Metadata(msgspec.Struct, gc=False):
    name: str
    namespace: str


class _Named(msgspec.Struct, gc=False):
    metadata: _Metadata


_NAMED: Final = msgspec.json.Decoder(_Named)


@dataclass(frozen=True, slots=True)
class Stored:
    """A pod as it was sent; it is read when it is bound, once, and not at each change."""

    place: str
    raw: bytes


class Pending:
    """Follows pods without a node; knows nothing before the first picture."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._pods: Mapping[str, Stored] = {}

    async def follow(self, client: Client) -> Never:
        """Follow them, for ever."""
        unbound = {"fieldSelector": "spec.nodeName="}
        source = Source(path=PODS, decode=stored, key=lambda found: found.place, selectors=unbound)
        await follow(client, source, self.know)

    def know(self, pods: Mapping[str, Stored]) -> None:
        """Take what a watch says of all pods without a node."""
        self._pods = pods

    def pod(self, namespace: str, name: str) -> LivePod | None:
        """Return a pod as it was last heard of; ``None`` also where it cannot be read."""
        found = self._pods.get(f"{namespace}/{name}")
        if found is None:
            return None
        try:
            return live_pod(found.raw)
        except (msgspec.MsgspecError, ValueError):  # whoever reads it anew says what is wrong
            return None


def stored(raw: bytes) -> Stored:
    """Read where a pod belongs; raises ``ValueError`` where it is none."""
    metadata = _NAMED.decode(raw).metadata
    return Stored(f"{metadata.namespace}/{metadata.name}", raw)
