"""All pods by uid."""

from collections.abc import Mapping

from allocator.request.pod_summary import PodSummary, pod_summary
from kube.shared_informer import SharedInformer


class Pods:
    """All pods as a watch last saw them, by uid; ``seen`` is ``None`` before the first picture."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.by_uid: Mapping[str, PodSummary] | None = None

    def follow(self, watch: SharedInformer) -> None:
        """Take part in a watch of all pods."""
        watch.add(pod_summary, lambda pods, _: self.replace(pods))

    def replace(self, pods: Mapping[str, PodSummary]) -> None:
        """Take what a watch says of all pods."""
        self.by_uid = pods
