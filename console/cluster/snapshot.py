"""ClusterView: nodes, ledgers and agents' reports at one moment; what a GPU still takes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

import msgspec

from allocator.catalog.keys import AGENT_LABEL
from allocator.catalog.vocabularies import VOCABULARIES, LostVocabulary, Vocabulary
from allocator.config.namespace_policy import NamespacePolicy
from allocator.config.settings import DEFAULTS, Settings
from allocator.hami.node_marks import UNMARKED, HamiMarks, hami_marks
from allocator.hami.ownership import conflict_of_plugins
from allocator.ledger.closed import (
    NO_NODE,
    closed_reason,
    offered_resources,
    withdrawn_resources,
)
from allocator.ledger.decode import forget_status
from allocator.ledger.ledger import Ledger, parse_ledger
from allocator.ledger.lifecycle import NodeIdentity
from allocator.mig.positions import with_volcano_positions
from allocator.model.allocation import Entry
from allocator.model.gpu import Gpu, Node, Snapshot
from allocator.model.untrusted import escaped, quote
from allocator.model.usage import parts
from allocator.placement.choose import PlacementPolicy
from allocator.placement.fleet import snapshot_of
from allocator.volcano.register import REGISTER_ANNOTATION


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverAccount:
    """The driver version and the GPU problems that the agent of a node reports."""

    driver: str = ""  # its version, "" where unknown
    exposed: str = ""  # why any container may see GPUs that nobody gave it; "" where none may
    # Why a GPU is not used, by its UUID.
    reasons: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


NO_ACCOUNT = DriverAccount()


def account_of(document: Mapping[str, Any]) -> DriverAccount:
    """Read the report in a GPUNode that was parsed from JSON; malformed parts are left out."""
    status = document.get("status")
    if not isinstance(status, Mapping):
        return NO_ACCOUNT
    driver, exposed, gpus = status.get("driver"), status.get("exposed"), status.get("gpus")
    mappings = [gpu for gpu in gpus if isinstance(gpu, Mapping)] if isinstance(gpus, list) else []
    pairs = ((gpu.get("uuid"), gpu.get("reason")) for gpu in mappings)
    return DriverAccount(
        driver=driver if isinstance(driver, str) else "",
        exposed=exposed if isinstance(exposed, str) else "",
        reasons={
            uuid: reason
            for uuid, reason in pairs
            if isinstance(uuid, str) and uuid and isinstance(reason, str) and reason
        },
    )


READER_ROLE: Final = "vgpu-reader"  # the ClusterRole that may read what a view is made from
Json = Mapping[str, Any]


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str = ""


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    uid: str = ""
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    creation_timestamp: datetime | None = None


class _Spec(msgspec.Struct, frozen=True):
    unschedulable: bool = False


class _NodeInfo(msgspec.Struct, frozen=True):
    boot_id: str = msgspec.field(name="bootID", default="")


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    conditions: tuple[_Condition, ...] | None = None
    node_info: _NodeInfo | None = None
    allocatable: dict[str, str] | None = None


class _NodeObject(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None


class _Created(msgspec.Struct, frozen=True):
    metadata: _Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A Node as its cluster sees it."""

    name: str
    uid: str = ""
    boot: str = ""
    created: datetime | None = None
    closed_reason: str = ""  # why no pod may go there; "" where one may
    withdrawn: frozenset[str] = frozenset()  # extended resources of which kubelet has 0 to give
    registered: bool = False  # with Volcano's scheduler, which keeps account of it too
    has_agent: bool = False  # it runs our agent
    hami: HamiMarks = UNMARKED


@dataclass(frozen=True, slots=True)
class GrantHolder:
    """Who holds a grant on a GPU."""

    entry: Entry
    container: str

    @property
    def pod(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.entry.namespace}/{self.entry.pod}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The operator's settings; defaults replace those that could not be read."""

    settings: Settings = DEFAULTS
    vocabularies: tuple[Vocabulary, ...] = VOCABULARIES
    lost: tuple[LostVocabulary, ...] = ()  # vocabularies that the settings name in vain
    policy: PlacementPolicy = field(default_factory=PlacementPolicy)

    def policy_for(self, namespace: NamespacePolicy) -> PlacementPolicy:
        """Return the policy for a namespace, which may have a preference of its own."""
        prefer = namespace.prefer
        return self.policy if prefer is None else replace(self.policy, prefer=prefer)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """A cluster at one moment; mappings are by node name, in its order."""

    now: datetime  # aware
    ledgers: Mapping[str, Ledger] = field(default_factory=lambda: MappingProxyType({}))
    accounts: Mapping[str, DriverAccount] = field(default_factory=lambda: MappingProxyType({}))
    created: Mapping[str, datetime] = field(default_factory=lambda: MappingProxyType({}))
    # None: Nodes could not be read, and every GPUNode counts as a node in service.
    machines: Mapping[str, Machine] | None = None
    configuration: Configuration = Configuration()
    unreadable: tuple[str, ...] = ()  # one sentence for each object that could not be read
    blind: bool = False  # GPUNodes may not be read, so the ledgers are unknown

    def closed_reason(self, name: str) -> str:
        """Return why a node takes no new pods; empty if it does."""
        upstream = self.configuration.settings.node_agent.is_other
        machine = Machine(name=name) if self.machines is None else self.machines.get(name)
        if machine is None:
            return NO_NODE
        settings = self.configuration.settings
        identity = NodeIdentity(
            name=name,
            uid=machine.uid,
            boot=machine.boot,
            withdrawn=machine.withdrawn,
            conflict=conflict_of_plugins(machine.hami, settings, has_agent=machine.has_agent),
        )
        slot = self.configuration.vocabularies[0].slot
        return machine.closed_reason or closed_reason(
            self.ledgers[name], identity, upstream=upstream, slot=slot
        )

    def account(self, name: str) -> DriverAccount:
        """Return what the agent of a node reports about its driver and its GPUs."""
        return self.accounts.get(name, NO_ACCOUNT)

    def created_at(self, name: str) -> datetime | None:
        """Return when a node was created."""
        machine = (self.machines or {}).get(name)
        return machine.created if machine is not None else self.created.get(name)

    def snapshot(self) -> Snapshot:
        """Return the fleet that a decision reads; GPUs of a closed node count as unhealthy."""
        return snapshot_of(
            (self.node(name) for name in self.ledgers),
            version=str(self.now),
            complete=not self.unreadable,
        )

    def node(self, name: str) -> Node:
        """Return one node as decisions read it."""
        return in_service(self.ledgers[name].node, self.closed_reason(name))


def in_service(node: Node, closed_reason: str) -> Node:
    """Return *node*; all its GPUs are unhealthy where a *closed_reason* is given."""
    if not closed_reason:
        return node
    return replace(node, gpus=tuple(replace(gpu, healthy=False) for gpu in node.gpus))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """One GPUNode: its ledger, and what its agent reports beside."""

    ledger: Ledger
    account: DriverAccount = NO_ACCOUNT
    created: datetime | None = None


def node_report(document: Json) -> NodeReport | str:
    """Read a GPUNode that was parsed from JSON; return why where it cannot be read."""
    try:
        ledger, metadata = parse_ledger(document), msgspec.convert(document, _Created).metadata
    except ValueError as error:
        return f"GPUNode {quote(name_of(document))} cannot be read: {escaped(str(error))}"
    finally:
        forget_status(name_of(document))
    return NodeReport(
        ledger=ledger, account=account_of(document), created=metadata.creation_timestamp
    )


def cluster_view(
    gpu_nodes: Iterable[Json] | None,
    nodes: Iterable[Json] | None,
    *,
    now: datetime,
    configuration: Configuration = Configuration(),
) -> ClusterView:
    """Return the view of GPUNodes and Nodes that were parsed from JSON.

    ``None`` stands for objects that may not be read.
    """
    unreadable: list[str] = []
    reports: list[NodeReport] = []
    for document in sorted(gpu_nodes or (), key=name_of):
        report = node_report(document)
        if isinstance(report, str):
            unreadable.append(report)
        else:
            reports.append(report)
    machines = None if nodes is None else dict(_machines(nodes, unreadable))
    view = view_of_reports(reports, machines, now=now, configuration=configuration)
    return replace(view, unreadable=tuple(unreadable), blind=gpu_nodes is None)


def view_of_reports(
    reports: Iterable[NodeReport],
    machines: Mapping[str, Machine] | None,
    *,
    now: datetime,
    configuration: Configuration = Configuration(),
) -> ClusterView:
    """Return the view of objects that were read one by one; *reports* are in order of names."""
    known = {report.ledger.name: report for report in reports}
    ledgers = {name: report.ledger for name, report in known.items()}
    return ClusterView(
        now=now,
        ledgers=_with_positions(ledgers, machines or {}),
        accounts={name: report.account for name, report in known.items()},
        created={
            name: report.created for name, report in known.items() if report.created is not None
        },
        machines=machines,
        configuration=configuration,
    )


def _with_positions(
    ledgers: Mapping[str, Ledger], machines: Mapping[str, Machine]
) -> dict[str, Ledger]:
    """Return *ledgers*; those of registered nodes have only positions that Volcano can name."""
    registered = {name for name, node in machines.items() if node.registered}
    return {
        name: replace(ledger, node=with_volcano_positions(ledger.node))
        if name in registered
        else ledger
        for name, ledger in ledgers.items()
    }


def _machines(nodes: Iterable[Json], unreadable: list[str]) -> Iterator[tuple[str, Machine]]:
    """Yield Nodes by name; an unreadable Node is closed, and noted in *unreadable*."""
    for document in nodes:
        name = name_of(document)
        try:
            yield name, machine(document)
        except ValueError as error:
            unreadable.append(f"Node {quote(name)} cannot be read: {escaped(str(error))}")
            yield name, Machine(name=name, closed_reason="its Node cannot be read")


def name_of(document: Json) -> str:
    """Return the name of an object that was parsed from JSON, empty where it has none."""
    metadata = document.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, Mapping) else ""


def machine(document: Json) -> Machine:
    """Read a Node; it is closed where it is cordoned or its kubelet is not ready.

    Raises ``ValueError`` where the document is not a Node.
    """
    node = msgspec.convert(document, _NodeObject)
    spec, status = node.spec or _Spec(), node.status or _Status()
    annotations = node.metadata.annotations or {}
    conditions = {condition.type: condition.status for condition in status.conditions or ()}
    closed_reason = ""
    if spec.unschedulable:
        closed_reason = "it is cordoned"
    elif conditions.get("Ready", "True") != "True":
        closed_reason = "its kubelet is not ready"
    return Machine(
        name=node.metadata.name,
        uid=node.metadata.uid,
        boot=status.node_info.boot_id if status.node_info else "",
        created=node.metadata.creation_timestamp,
        closed_reason=closed_reason,
        withdrawn=withdrawn_resources(status.allocatable or {}),
        registered=bool(annotations.get(REGISTER_ANNOTATION)),
        has_agent=AGENT_LABEL in (node.metadata.labels or {}),
        hami=hami_marks(annotations, offered_resources(status.allocatable or {})),
    )


def entries_in_use(ledger: Ledger) -> tuple[Entry, ...]:
    """Return all entries of a node, and the use that has no entry."""
    return (*ledger.entries, *ledger.unpromised)


def holders(ledger: Ledger, gpu: Gpu) -> tuple[GrantHolder, ...]:
    """Return who holds the grants on *gpu*, in the order of ``gpu.grants``."""
    return tuple(
        GrantHolder(entry, name)
        for entry in entries_in_use(ledger)
        for name, grant in parts(entry.containers)
        if grant.gpu == gpu.uuid
    )
