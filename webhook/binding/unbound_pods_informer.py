"""The pods without a node, followed by a watch, so that a bind need not read each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from allocator.cluster.pod_messages import pod_json
from allocator.request.pod_fields import WatchedPod
from kube.shared_informer import SharedInformer
from webhook.review.binding_schema import LivePod, UnreadablePodError, live_pod

# Bytes of a pod that is kept. Nearly all pods are smaller, and tenants may create any number of
# pods of 1.4 MB that are never bound. A larger one is read from the API server at its bind.
LARGEST_KEPT: Final = 16 * 1024


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

    def follow(self, watch: SharedInformer[WatchedPod]) -> None:
        """Take part in a watch of all pods."""
        watch.add(unbound_of, self.know)

    def know(self, changes: Mapping[str, UnboundPod | None]) -> None:
        """Take *changes* of the pods without a node, by uid."""
        for uid in changes:
            before = self._pods.pop(uid, None)
            # A name may have been taken again, before or after the end of its first pod is told.
            if before is not None and self._places.get(before.place) is before:
                del self._places[before.place]
        for uid, unbound_pod in changes.items():
            if unbound_pod is not None:
                self._pods[uid] = self._places[unbound_pod.place] = unbound_pod

    def pod(self, namespace: str, name: str) -> LivePod | None:
        """Return a pod as it was last heard of; ``None`` also if it is unreadable or large."""
        unbound_pod = self._places.get(f"{namespace}/{name}")
        if unbound_pod is None or not unbound_pod.raw:
            return None
        try:
            return live_pod(pod_json(unbound_pod.raw))
        except (UnreadablePodError, ValueError):  # whoever reads it anew says what is wrong
            return None


def unbound_of(pod: WatchedPod, raw: bytes) -> UnboundPod | None:
    """Return *pod* as it stands in *raw* if it has no node."""
    if pod.spec.node_name:
        return None
    place = f"{pod.metadata.namespace}/{pod.metadata.name}"
    return UnboundPod(place, raw if len(raw) <= LARGEST_KEPT else b"")
