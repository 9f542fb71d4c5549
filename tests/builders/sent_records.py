"""Records as senders write them: mappings, one for each line."""

import json
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

Line = dict[str, Any]


def now_text() -> str:
    """Return the time as records have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _line(kind: str, component: str, more: Line) -> Line:
    return {
        "kind": kind,
        "id": uuid.uuid4().hex,
        "at": now_text(),
        "component": component,
        "version": "0.1.0",
        **more,
    }


def admission(**more: object) -> Line:
    """Return the decision about one pod, refused unless *more* says otherwise."""
    fields = {
        "step": "mutate",
        "outcome": "refused",
        "operation": "CREATE",
        "review": uuid.uuid4().hex,
        "namespace": "a",
        "pod": "train",
        "digest": "d1",
        "user": "amy",
        "reason": "GpuMemoryShort",
        "findings": [{"reason": "GpuMemoryShort", "text": "asks for 90000 MiB on one GPU"}],
        "containers": [{"name": "main", "count": 1, "memory_mib": 90000}],
    }
    return _line("admission", "webhook", {**fields, **more})


def health(node: str = "node-1", **more: object) -> Line:
    """Return what an agent writes about a GPU."""
    return _line(
        "health",
        "agent",
        {"node": node, "gpu": "GPU-1", "healthy": False, "text": "XID 79", **more},
    )


def started(node: str = "node-1", **more: object) -> Line:
    """Return what an agent writes about a container of a pod."""
    fields = {"node": node, "namespace": "a", "pod": "train", "container": "main"}
    return _line("started", "agent", {**fields, **more})


def body_of(lines: Iterable[Line]) -> bytes:
    """Return a batch as it is sent."""
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
