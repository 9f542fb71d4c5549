"""All pods by uid."""

from collections.abc import Mapping

from allocator.request.pod_summary import PodSummary, pod_summary
from kube.shared_informer import SharedInformer


class Pods:
    """All pods as a watch last saw them; ``by_uid`` is ``None`` before the first list."""

    def __init__(self) -> None:
        """Wait for the first list."""
        self.by_uid: Mapping[str, PodSummary] | None = None

    def follow(self, watch: SharedInformer) -> None:
        """Consume a watch of all pods."""
        watch.add(pod_summary, lambda pods, _: self.replace(pods))

    def replace(self, pods: Mapping[str, PodSummary]) -> None:
        """Replace all pods by *pods*."""
        self.by_uid = pods
