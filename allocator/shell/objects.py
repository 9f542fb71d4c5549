"""What is read of each object that the inventory follows: a few fields of a large world."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import msgspec
import structlog

from allocator.core import gpunode
from allocator.core.wire import REGISTER
from allocator.model.gpu import Node

POD_SECURITY: Final = "pod-security.kubernetes.io/enforce"

log = structlog.get_logger(__name__)


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata
    data: dict[str, str] | None = None


_OBJECT: Final = msgspec.json.Decoder(_Object)


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """What admission needs to know about a namespace."""

    name: str
    enforce: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def host_paths(self) -> bool:
        """Say whether Pod Security admits hostPath volumes there."""
        return self.enforce not in {"baseline", "restricted"}


@dataclass(frozen=True, slots=True)
class Listed:
    """A GPUNode by name; ``node`` is ``None`` where its status has no GPUs yet.

    ``promises`` tells by pod uid since when.
    """

    name: str
    node: Node | None
    promises: Mapping[str, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Registered:
    """A Node by name, with the text of its register annotation."""

    name: str
    text: str


def gpu_node(raw: bytes) -> Listed:
    """Read a GPUNode; what is odd about it is said once per version."""
    decoded = gpunode.decode(msgspec.json.decode(raw))
    for problem in decoded.problems:
        log.warning("GPUNode is odd", node=decoded.node.name, what=str(problem))
    node = decoded.node if decoded.node.gpus else None
    return Listed(decoded.node.name, node, {entry.uid: entry.since for entry in decoded.entries})


def registered(raw: bytes) -> Registered:
    """Read a Node's register annotation."""
    metadata = _OBJECT.decode(raw).metadata
    return Registered(metadata.name, (metadata.annotations or {}).get(REGISTER, ""))


def namespace(raw: bytes) -> Namespace:
    """Read a namespace."""
    metadata = _OBJECT.decode(raw).metadata
    return Namespace(
        name=metadata.name,
        enforce=(metadata.labels or {}).get(POD_SECURITY, ""),
        annotations=metadata.annotations or {},
    )


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """A ConfigMap by name, with its text."""

    name: str
    data: Mapping[str, str]


def config_map(raw: bytes) -> ConfigMap:
    """Read a ConfigMap."""
    found = _OBJECT.decode(raw)
    return ConfigMap(found.metadata.name, found.data or {})
