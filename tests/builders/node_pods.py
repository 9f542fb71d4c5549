"""Pods of a node, as its agent reads them."""

import json
from typing import Final

from agent.node.pods import NodePod, parse_pod

_RUNNING: Final[dict[str, object]] = {"state": {"running": {}}}


def pod(
    uid: str,
    annotations: dict[str, str],
    *limits: dict[str, str],
    started: bool = True,
    init: tuple[dict[str, str], ...] = (),
) -> NodePod:
    """Return a pod on the node, with a container for each of *limits*."""
    names = [f"c{i}" for i in range(len(limits))]
    spec = {
        "nodeName": "n",
        "containers": [
            {"name": name, "resources": {"limits": wanted}}
            for name, wanted in zip(names, limits, strict=True)
        ],
        "initContainers": [
            {"name": f"i{i}", "resources": {"limits": wanted}} for i, wanted in enumerate(init)
        ],
    }
    statuses = [{"name": name} | (_RUNNING if started else {}) for name in names]
    metadata = {"uid": uid, "name": uid, "namespace": "team-a", "annotations": annotations}
    written = {"metadata": metadata, "spec": spec, "status": {"containerStatuses": statuses}}
    return parse_pod(json.dumps(written).encode())
