"""Pictures of all pods, as a watch would come to them."""

from collections.abc import Mapping

from allocator.cluster.pods import Pods
from allocator.request.pod_summary import PodSummary


def replace_pods(known: Pods, pods: Mapping[str, PodSummary]) -> None:
    """Let *known* hear that *pods*, by uid, are all there are."""
    known.update({**dict.fromkeys(known.by_uid or ()), **pods})
