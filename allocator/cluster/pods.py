"""All pods that may concern us, by uid, by node and by what they wait for."""

from collections.abc import Collection, Mapping
from typing import Final

from allocator.cluster.picture import Picture
from allocator.cluster.pod_messages import decode_pod
from allocator.request.pod_fields import WatchedPod
from allocator.request.pod_summary import PodSummary, summary_if_needed
from kube.clock import SYSTEM, Clock
from kube.shared_informer import SharedInformer

PODS: Final = "/api/v1/pods"
_NOBODY: Final[Mapping[str, PodSummary]] = {}


def pod_informer(*, clock: Clock = SYSTEM) -> SharedInformer[WatchedPod]:
    """Return a watch of all pods, without consumers."""
    return SharedInformer(
        PODS, decode=decode_pod, uid=lambda pod: pod.metadata.uid, protobuf=True, clock=clock
    )


class Pods:
    """Pods as a watch last saw them; ``by_uid`` is ``None`` before the first list.

    Those that ask for no extended resource and are in no PodGroup may be missing. All mappings are
    edited as pods change.
    """

    def __init__(self) -> None:
        """Wait for the first list."""
        self._pods: Picture[PodSummary] = Picture()
        self._by_node: dict[str, dict[str, PodSummary]] = {}  # of those that ask, by uid
        self._grouped: Picture[PodSummary] = Picture()
        self._listed = False

    @property
    def by_uid(self) -> Mapping[str, PodSummary] | None:
        """Return the pods by uid, ``None`` before the first list."""
        return self._pods if self._listed else None

    @property
    def grouped(self) -> Mapping[str, PodSummary]:
        """Return the pods that are in a PodGroup, by uid."""
        return self._grouped

    def on_node(self, name: str) -> Collection[PodSummary]:
        """Return the pods bound to a node that ask for extended resources."""
        return self._by_node.get(name, _NOBODY).values()

    def unbound(self) -> Collection[PodSummary]:
        """Return the pods without a node that ask for extended resources."""
        return self.on_node("")

    def follow(self, watch: SharedInformer[WatchedPod]) -> None:
        """Consume a watch of all pods."""
        watch.add(summary_if_needed, self.update)

    def update(self, changes: Mapping[str, PodSummary | None]) -> None:
        """Take *changes* of pods, by uid."""
        self._listed = True
        for uid, pod in changes.items():
            before = self._pods.get(uid)
            if before is not None and before.extended:
                self._take_off_node(before)
            if pod is not None and pod.extended:
                self._by_node.setdefault(pod.node, {})[uid] = pod
        self._pods.apply(changes)
        in_group = {uid: pod if pod and pod.group else None for uid, pod in changes.items()}
        self._grouped.apply(in_group)

    def _take_off_node(self, pod: PodSummary) -> None:
        there = self._by_node[pod.node]
        del there[pod.uid]
        if not there:
            del self._by_node[pod.node]
