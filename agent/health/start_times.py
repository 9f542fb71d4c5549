"""How long pods take from their admission until a container of theirs runs with its share."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from agent.node.pods import NodePod
from agent.share import Share

CountStart = Callable[[str, float], None]  # takes the mode of a share, and seconds


class StartTimes:
    """Counts each pod once, when the first of its containers with a share is seen running.

    A pod that ran before this agent looked is not counted, because another one may have done so.
    """

    def __init__(self, count: CountStart) -> None:
        """Tell *count* of each start."""
        self._count = count
        self._looked = False
        self._seen: set[str] = set()  # uids of the pods that run or ran

    def observe(self, shares: Sequence[Share], pods: Mapping[str, NodePod]) -> None:
        """Look at the *pods* of this node, by uid, and at what the ledger promises to them."""
        self._seen &= pods.keys()
        for share in shares:
            pod = pods.get(share.owner.uid)
            if pod is None or pod.uid in self._seen:
                continue
            since = _running_since(pod, share)
            if since is None:
                continue
            self._seen.add(pod.uid)
            if self._looked and pod.created is not None:
                # The clocks of the node and of the API server may disagree.
                seconds = max(0.0, (since - pod.created).total_seconds())
                self._count(str(share.grants[0].mode), seconds)
        self._looked = True


def _running_since(pod: NodePod, share: Share) -> datetime | None:
    """Return since when a container with this share runs or ran, ``None`` before that."""
    if not share.grants:
        return None
    containers = (pod.container(name) for name in share.owner.containers)
    times = [one.running_since for one in containers if one is not None and one.running_since]
    return min(times, default=None)
