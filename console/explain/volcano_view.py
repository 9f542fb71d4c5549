"""The part of a cluster in which Volcano's scheduler looks for a place.

It knows one mode per node, so of a registered node with GPUs in both modes it sees the more common
one (docs/volcano.md). The bind hook would accept the other GPUs; nobody proposes them.
"""

from dataclasses import replace

from allocator.ledger.registered_capacity import most_common_mode
from allocator.model.decision import Finding, Reason
from allocator.model.gpu import Node, Snapshot
from allocator.model.untrusted import escaped
from console.cluster.pod import PodView
from console.cluster.snapshot import ClusterView


def seen_by_scheduler(snapshot: Snapshot, pod: PodView, site: ClusterView) -> Snapshot:
    """Return *snapshot* without the GPUs that the scheduler of *pod* does not see."""
    machines = site.machines or {}
    if pod.spec.scheduler_name not in site.configuration.settings.volcano_schedulers:
        return snapshot
    nodes = {
        name: _in_one_mode(node) if name in machines and machines[name].registered else node
        for name, node in snapshot.nodes.items()
    }
    return replace(snapshot, nodes=nodes)


def unseen_finding(node: Node, pod: PodView) -> Finding:
    """Return why a pod does not get a GPU of *node* that would take it."""
    name, mode = escaped(pod.spec.scheduler_name), most_common_mode(node.gpus)
    return Finding(
        reason=Reason.MODE_UNAVAILABLE,
        place="pod",
        field="spec.schedulerName",
        what=f"{name} sees one mode per node, and here only GPUs in mode {mode}",
        remedy="bring all GPUs of the node into one mode, or set another schedulerName",
    )


def _in_one_mode(node: Node) -> Node:
    mode = most_common_mode(node.gpus)
    return replace(node, gpus=tuple(gpu for gpu in node.gpus if gpu.mode is mode))
