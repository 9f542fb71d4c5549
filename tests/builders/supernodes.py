"""Answers of topo-master to ``GET /node_group``."""

from collections.abc import Collection, Mapping
from typing import Any

Boxes = Mapping[str, Mapping[str, Collection[str]]]  # switchboxes of dragonflies of nodes


def node_group(boxes: Boxes, *, unready: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return the tree of *boxes*; what is named in *unready* has another status."""

    def element(name: str, kind: str, child: list[dict[str, Any]] | None) -> dict[str, Any]:
        status = "NotReady" if name in unready else "Ready"
        below = {} if child is None else {"child": child}
        return {"name": name, "kind": kind, **below, "status": status}

    return [
        element(
            box,
            "switchbox",
            [
                element(fly, "dragonfly", [element(name, "node", None) for name in nodes])
                for fly, nodes in flies.items()
            ],
        )
        for box, flies in boxes.items()
    ]
