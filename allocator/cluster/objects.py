"""What is read of each object that the inventory follows: a few fields of a large world."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import msgspec
import structlog

from allocator.catalog.keys import REGISTER_KEY
from allocator.catalog.vocabularies import OWN
from allocator.ledger.ledger import Ledger, parse_ledger_text
from allocator.ledger.lifecycle import NodeIdentity
from allocator.model.gpu import Node
from allocator.volcano.register import HANDSHAKE_ANNOTATION, REGISTER_ANNOTATION
from allocator.volcano.registered_capacity import restore_register

POD_SECURITY: Final = "pod-security.kubernetes.io/enforce"
FINALIZER: Final = f"{OWN}ledger"  # of every GPUNode
AGENT_LABEL: Final = f"{OWN}agent"  # set by our agent on its Node, with its version
log = structlog.get_logger(__name__)


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    uid: str = ""
    version: str = msgspec.field(name="resourceVersion", default="")
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _ApiObject(msgspec.Struct, frozen=True):
    metadata: _Metadata
    data: dict[str, str] | None = None


class _System(msgspec.Struct, frozen=True):
    boot: str = msgspec.field(name="bootID", default="")


class _NodeStatus(msgspec.Struct, frozen=True):
    system: _System | None = msgspec.field(name="nodeInfo", default=None)


class _NodeObject(msgspec.Struct, frozen=True):
    metadata: _Metadata
    status: _NodeStatus | None = None


_OBJECT: Final = msgspec.json.Decoder(_ApiObject)
_NODE: Final = msgspec.json.Decoder(_NodeObject)


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """What admission needs to know about a namespace."""

    name: str
    pod_security: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def allows_host_paths(self) -> bool:
        """Say whether Pod Security admits hostPath volumes there."""
        return self.pod_security not in {"baseline", "restricted"}


@dataclass(frozen=True, slots=True)
class GpuNodeObject:
    """A GPUNode by name; ``node`` is ``None`` where its status has no GPUs yet.

    ``promises`` tells by pod uid since when, ``ledger`` all there is.
    """

    name: str
    node: Node | None
    since_by_uid: Mapping[str, datetime]
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class NodeObject:
    """A Node by name, with the text of its register annotation, its uid and its boot id.

    ``agent`` says that it runs our agent. ``handshake`` is the annotation beside the register,
    ``beside`` what is kept there of a register that we lowered. ``version`` is that of the object.
    """

    name: str
    register: str
    uid: str = ""
    boot: str = ""
    has_agent: bool = False
    handshake: str = ""
    saved_register: str = ""
    resource_version: str = ""

    @property
    def full_register(self) -> str:
        """Return the register with nothing taken off by us."""
        return restore_register(self.register, self.saved_register)

    def identity(self, registered: Node | None = None) -> NodeIdentity:
        """Return it as its GPUNode goes by it, with what its register was read as."""
        return NodeIdentity(
            name=self.name,
            uid=self.uid,
            boot=self.boot,
            agent=self.has_agent,
            registered=registered,
        )


def decode_gpu_node(raw: bytes) -> GpuNodeObject:
    """Read a GPUNode; what is odd about it is said once per version."""
    ledger, decoded = parse_ledger_text(raw)
    for problem in decoded.problems:
        log.warning("GPUNode is odd", node=decoded.node.name, what=str(problem))
    node = decoded.node if decoded.node.gpus else None
    promises = {entry.uid: entry.since for entry in decoded.entries}
    return GpuNodeObject(decoded.node.name, node, promises, ledger)


def decode_node(raw: bytes) -> NodeObject:
    """Read what of a Node its GPUs are known by."""
    node = _NODE.decode(raw)
    metadata, system = node.metadata, node.status and node.status.system
    return NodeObject(
        name=metadata.name,
        register=(metadata.annotations or {}).get(REGISTER_ANNOTATION, ""),
        uid=metadata.uid,
        boot=system.boot if system else "",
        has_agent=AGENT_LABEL in (metadata.labels or {}),
        handshake=(metadata.annotations or {}).get(HANDSHAKE_ANNOTATION, ""),
        saved_register=(metadata.annotations or {}).get(REGISTER_KEY, ""),
        resource_version=metadata.version,
    )


def decode_namespace(raw: bytes) -> Namespace:
    """Read a namespace."""
    metadata = _OBJECT.decode(raw).metadata
    return Namespace(
        name=metadata.name,
        pod_security=(metadata.labels or {}).get(POD_SECURITY, ""),
        annotations=metadata.annotations or {},
    )


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """A ConfigMap by name, with its text."""

    name: str
    data: Mapping[str, str]


def decode_config_map(raw: bytes) -> ConfigMap:
    """Read a ConfigMap."""
    api_object = _OBJECT.decode(raw)
    return ConfigMap(api_object.metadata.name, api_object.data or {})
