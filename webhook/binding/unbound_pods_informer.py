"""The pods without a node, followed by a watch, so that a bind need not read each."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from kube.shared_informer import SharedInformer
from webhook.review.binding_schema import LivePod, UnreadablePodError, live_pod
from webhook.review.pod_schema import PlacedPod

# Bytes of a pod that is kept. Nearly all pods are smaller, and tenants may create any number of
# pods of 1.4 MB that are never bound. A larger one is read from the API server at its bind.
LARGEST_KEPT: Final = 16 * 1024
_PLACED: Final = msgspec.json.Decoder(PlacedPod)


@dataclass(frozen=True, slots=True)
class UnboundPod:
    """A pod as it was sent; it is read when it is bound, once, and not at each change."""

    place: str
    raw: bytes  # empty where it is too large to be kept


class UnboundPods:
    """Knows the pods without a node; none before the first picture."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._pods: dict[str, UnboundPod] = {}  # by uid
        self._places: dict[str, UnboundPod] = {}

    def follow(self, watch: SharedInformer) -> None:
        """Take part in a watch of all pods."""
        watch.add(decode_unbound, self.know)

    def know(self, pods: Mapping[str, UnboundPod], touched: Collection[str]) -> None:
        """Take *pods* without a node by uid, of which those *touched* may have changed."""
        for uid in touched:
            before = self._pods.pop(uid, None)
            if before is not None:
                self._places.pop(before.place, None)
        for uid in touched:  # after all that went: a name may have been taken again
            unbound_pod = pods.get(uid)
            if unbound_pod is not None:
                self._pods[uid] = self._places[unbound_pod.place] = unbound_pod

    def pod(self, namespace: str, name: str) -> LivePod | None:
        """Return a pod as it was last heard of; ``None`` also if it is unreadable or large."""
        unbound_pod = self._places.get(f"{namespace}/{name}")
        if unbound_pod is None or not unbound_pod.raw:
            return None
        try:
            return live_pod(unbound_pod.raw)
        except UnreadablePodError:  # whoever reads it anew says what is wrong
            return None


def decode_unbound(raw: bytes) -> UnboundPod | None:
    """Return a pod without a node as it stands; raises ``ValueError`` where it is no pod."""
    placed = _PLACED.decode(raw)
    if placed.spec.node_name:
        return None
    place = f"{placed.metadata.namespace}/{placed.metadata.name}"
    return UnboundPod(place, raw if len(raw) <= LARGEST_KEPT else b"")
