"""The fields that are read of each object that the inventory follows, and their decoders."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
import structlog

from allocator.catalog.keys import AGENT_LABEL, CAPACITY_KEY, REGISTER_KEY
from allocator.catalog.vocabularies import OWN
from allocator.families.family import InventoryFacts
from allocator.families.inventory_facts import inventory_facts
from allocator.hami.node_marks import UNMARKED, HamiMarks, hami_marks
from allocator.ledger.closed import offered_resources, withdrawn_resources
from allocator.ledger.drift import MOST_PROBLEMS
from allocator.ledger.ledger import Ledger, parse_ledger_text
from allocator.ledger.lifecycle import NodeIdentity
from allocator.ledger.registered_capacity import restore_register
from allocator.model.gpu import Node
from allocator.volcano.register import HANDSHAKE_ANNOTATION, REGISTER_ANNOTATION

POD_SECURITY: Final = "pod-security.kubernetes.io/enforce"
MODEL_LABEL: Final = f"{OWN}gpu-model"  # set by our agent on its Node: the model of its GPUs
log = structlog.get_logger(__name__)


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    uid: str = ""
    version: str = msgspec.field(name="resourceVersion", default="")
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None

    def is_version(self, uid: str, version: str) -> bool:
        """Say whether this is object *uid* at *version*; empty ones are no answer."""
        return bool(version) and (self.uid, self.version) == (uid, version)


class _ApiObject(msgspec.Struct, frozen=True):
    metadata: _Metadata
    data: dict[str, str] | None = None


class _System(msgspec.Struct, frozen=True):
    boot: str = msgspec.field(name="bootID", default="")


class _NodeStatus(msgspec.Struct, frozen=True):
    system: _System | None = msgspec.field(name="nodeInfo", default=None)
    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None


class _NodeSpec(msgspec.Struct, frozen=True):
    unschedulable: bool = False


class _NodeObject(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _NodeSpec | None = None
    status: _NodeStatus | None = None


class _ManagedField(msgspec.Struct, frozen=True):
    manager: str = ""
    time: str = ""
    fields: dict[str, msgspec.Raw] = msgspec.field(name="fieldsV1", default_factory=dict)


class _ManagedMetadata(msgspec.Struct, frozen=True, rename="camel"):
    managed_fields: tuple[_ManagedField, ...] | None = None


class _ManagedObject(msgspec.Struct, frozen=True):
    metadata: _ManagedMetadata = _ManagedMetadata()


_MANAGED_DECODER: Final = msgspec.json.Decoder(_ManagedObject)
_OBJECT_DECODER: Final = msgspec.json.Decoder(_ApiObject)
_NODE_DECODER: Final = msgspec.json.Decoder(_NodeObject)


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """What admission reads of a namespace."""

    name: str
    pod_security: str = ""  # level of the label pod-security.kubernetes.io/enforce
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def allows_host_paths(self) -> bool:
        """Say whether Pod Security admits hostPath volumes there."""
        return self.pod_security not in {"baseline", "restricted"}


@dataclass(frozen=True, slots=True)
class NodeObject:
    """A Node."""

    name: str
    register: str  # Volcano's register annotation; empty: none
    uid: str = ""
    boot: str = ""  # boot id
    has_agent: bool = False  # it runs our agent
    handshake: str = ""  # Volcano's handshake annotation
    saved_register: str = ""  # our annotation: the register before we lowered it
    resource_version: str = ""
    withdrawn: frozenset[str] = frozenset()  # extended resources of which it has 0 to give
    offered: frozenset[str] = frozenset()  # those of which it has more
    added: frozenset[str] = frozenset()  # those that our agent notes as its own
    cordoned: bool = False
    facts: InventoryFacts | None = None  # None: no family reads its GPUs from the Node
    hami: HamiMarks = UNMARKED

    @property
    def gpu_facts(self) -> tuple[object, ...]:
        """Return what the node's GPUs, and whether they may be given out, depend on."""
        marks = self.hami.register, self.hami.digest, self.hami.offered
        return self.uid, self.boot, self.register, self.saved_register, *marks, self.facts

    @property
    def full_register(self) -> str:
        """Return the register as it was before we lowered it."""
        return restore_register(self.register, self.saved_register)

    def identity(
        self,
        registered: Node | None = None,
        *,
        registered_by: str = "",
        registered_closed: str = "",
        conflict: str = "",
    ) -> NodeIdentity:
        """Return its identity; *registered* is its register, decoded, as *registered_by* says.

        *registered_closed* says why none of its GPUs may be given out, if so, and *conflict* why
        nobody may give them out.
        """
        return NodeIdentity(
            name=self.name,
            uid=self.uid,
            boot=self.boot,
            agent=self.has_agent,
            registered=registered,
            registered_by=registered_by,
            registered_closed=registered_closed,
            withdrawn=self.withdrawn,
            offered=self.offered,
            added=self.added,
            conflict=conflict,
        )


def _unknown(_: str) -> None:
    return None


def decode_gpu_node(raw: bytes, known: Callable[[str], Ledger | None]) -> Ledger:
    """Read a GPUNode, and log its problems; the one *known* by its name where it is the same."""
    metadata = _OBJECT_DECODER.decode(raw).metadata
    before = known(metadata.name)
    if before is not None and metadata.is_version(before.uid, before.resource_version):
        return before
    ledger, decoded = parse_ledger_text(raw)
    for problem in decoded.problems[:MOST_PROBLEMS]:
        log.warning("malformed GPUNode", node=decoded.node.name, what=str(problem))
    return ledger


def decode_node(raw: bytes, known: Callable[[str], NodeObject | None] = _unknown) -> NodeObject:
    """Read a Node; the one *known* by its name where it is the same."""
    node = _NODE_DECODER.decode(raw)
    metadata, system = node.metadata, node.status and node.status.system
    before = known(metadata.name)
    if before is not None and metadata.is_version(before.uid, before.resource_version):
        return before
    allocatable = (node.status and node.status.allocatable) or {}
    offered = offered_resources(allocatable)
    annotations, labels = metadata.annotations or {}, metadata.labels or {}
    added = annotations.get(CAPACITY_KEY, "")
    return NodeObject(
        name=metadata.name,
        register=annotations.get(REGISTER_ANNOTATION, ""),
        uid=metadata.uid,
        boot=system.boot if system else "",
        has_agent=AGENT_LABEL in labels,
        handshake=annotations.get(HANDSHAKE_ANNOTATION, ""),
        saved_register=annotations.get(REGISTER_KEY, ""),
        resource_version=metadata.version,
        withdrawn=withdrawn_resources(allocatable),
        offered=offered,
        added=frozenset(filter(None, added.split(","))),
        cordoned=node.spec is not None and node.spec.unschedulable,
        facts=None if AGENT_LABEL in labels else _facts(node, annotations, labels),
        hami=hami_marks(annotations, offered),
    )


def _facts(
    node: _NodeObject, annotations: Mapping[str, str], labels: Mapping[str, str]
) -> InventoryFacts | None:
    status = node.status or _NodeStatus()
    return inventory_facts(
        node.metadata.name,
        annotations,
        labels=labels,
        capacity=status.capacity or {},
        allocatable=status.allocatable or {},
    )


def decode_namespace(raw: bytes) -> Namespace:
    """Read a namespace."""
    metadata = _OBJECT_DECODER.decode(raw).metadata
    return Namespace(
        name=metadata.name,
        pod_security=(metadata.labels or {}).get(POD_SECURITY, ""),
        annotations=metadata.annotations or {},
    )


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """A ConfigMap by name, with its text.

    ``author`` is the manager that changed the text last, and ``changed_at`` when that was, as
    RFC 3339; both are empty where the API server does not say.
    """

    name: str
    data: Mapping[str, str]
    author: str = ""
    changed_at: str = ""


def decode_config_map(raw: bytes) -> ConfigMap:
    """Read a ConfigMap."""
    api_object = _OBJECT_DECODER.decode(raw)
    author, changed_at = _last_author(raw)
    return ConfigMap(api_object.metadata.name, api_object.data or {}, author, changed_at)


def _last_author(raw: bytes) -> tuple[str, str]:
    """Return which manager changed the data of the object *raw* last, and when."""
    try:
        fields = _MANAGED_DECODER.decode(raw).metadata.managed_fields or ()
    except msgspec.ValidationError:
        return "", ""
    writers = [(one.time, one.manager) for one in fields if "f:data" in one.fields]
    changed_at, author = max(writers, default=("", ""))
    return author, changed_at
