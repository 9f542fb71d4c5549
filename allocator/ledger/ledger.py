"""Ledger: one GPUNode at one resource version, and how a pod sees its node."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from sys import intern
from typing import Annotated, Any, Final

import msgspec

from allocator.ledger.decode import DecodedGpuNode, decode, decode_text
from allocator.ledger.schema import FOREIGN_NAMESPACE, FORMER_FINALIZER
from allocator.model.allocation import Entry
from allocator.model.gpu import Node
from allocator.model.problem import Problem
from allocator.model.untrusted import is_safe_name
from allocator.model.usage import without_entries

LONGEST_STATED: Final = 256  # characters of status.closed; the CRD's bound
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class _PodName(msgspec.Struct):
    namespace: str
    name: str


class _EntryPodName(msgspec.Struct):
    pod: _PodName


class _EntrySince(msgspec.Struct):
    since: Annotated[datetime, msgspec.Meta(tz=True)]


def uid_of(element: object) -> str:
    """Return the pod uid in *element* of ``spec.entries``; empty where there is none."""
    pod = element.get("pod") if isinstance(element, Mapping) else None
    uid = pod.get("uid") if isinstance(pod, Mapping) else None
    return intern(uid) if isinstance(uid, str) else ""


def unreadable_entry(element: object) -> Entry:
    """Return *element* of ``spec.entries`` as an entry without grants, for the pod that it names.

    Without a readable ``since`` the entry gets the latest time there is, so that it never expires.
    """
    try:
        pod = msgspec.convert(element, _EntryPodName).pod
    except msgspec.ValidationError:
        pod = _PodName("", "")
    try:
        since = msgspec.convert(element, _EntrySince).since
    except msgspec.ValidationError:
        since = _NEVER
    named = is_safe_name(pod.namespace) and is_safe_name(pod.name)  # they become part of a path
    return Entry(
        namespace=pod.namespace if named else "",
        pod=pod.name if named else "",
        uid=uid_of(element),
        since=since,
        containers=(),
    )


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] | None = None


class _Status(msgspec.Struct, rename="camel"):
    inventory: str = ""
    boot_id: str = msgspec.field(name="bootID", default="")
    node_uid: str = msgspec.field(name="nodeUID", default="")
    driver: str = ""
    observed_generation: int = 0
    held: tuple[str, ...] = ()
    closed: str = ""


class _GpuNode(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


class _EntryPod(msgspec.Struct):
    uid: str


class _EntryUid(msgspec.Struct):
    pod: _EntryPod


class _Spec(msgspec.Struct):
    entries: list[_EntryUid] | None = None


class _GpuNodeWithUids(_GpuNode):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_DECODER: Final = msgspec.json.Decoder(_GpuNodeWithUids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """One GPUNode at one resource version."""

    name: str  # also the name of its Node
    uid: str  # every patch tests it
    resource_version: str  # tested where nothing at all may have changed
    generation: int  # of the spec; every commit tests it
    inventory: str  # digest of boards and GPUs; every commit tests it; "" closes the node
    boot: str  # boot id of the Node when the status was written
    node_uid: str  # uid of the Node that the status describes
    driver: str  # driver version, or "upstream" where the status was read from a register
    observed_generation: int  # the last generation that the agent has seen
    deleting: bool  # a deletion timestamp is set
    has_former_finalizer: bool = False  # an earlier release made it
    held: frozenset[str]  # uids of pods whose containers may have started
    # Pod uid of each element of spec.entries, "" where it is unreadable; None: no list yet.
    entry_uids: tuple[str, ...] | None
    entries: tuple[Entry, ...]  # the readable ones
    unreadable: tuple[Entry, ...] = ()  # the others, with the pod they name; each closes the node
    unpromised: tuple[Entry, ...]  # in use by pods without an entry, as the agent reports
    node: Node  # the GPUs with everything promised and unpromised on them
    problems: tuple[Problem, ...] = ()  # what is malformed
    excess: Problem | None = None  # the bound that its status exceeds; then no GPU is read
    stated: str = ""  # status.closed: why no GPU of the node can be used

    def entry(self, uid: str) -> Entry | None:
        """Return the readable entry of pod *uid*, if it has one."""
        return next((entry for entry in self.entries if entry.uid == uid), None)

    @property
    def strangers(self) -> tuple[Entry, ...]:
        """Return what pods use without an entry; MIG instances of nobody's are left out."""
        return tuple(use for use in self.unpromised if use.namespace != FOREIGN_NAMESPACE)

    @property
    def closed(self) -> str:
        """Return why no entry may be added, whatever is free; empty for an open node."""
        if self.deleting:
            return "its GPUNode is being deleted"
        if self.excess is not None:
            return f"its agent reports more than is accepted: {self.excess}"
        if not self.node.gpus:
            return self.stated or "its agent has not reported its GPUs yet"
        if not self.inventory:
            return self.stated or "its agent is starting, stopping or being replaced"
        return ""


def parse_ledger(document: Mapping[str, Any]) -> Ledger:
    """Return the Ledger of a GPUNode that was parsed from JSON.

    Raises ``ValueError`` where metadata or status do not match the schema of the CRD. Everything
    else that is malformed becomes a problem, as :func:`allocator.ledger.decode.decode` says.
    """
    entries, decoded = (document.get("spec") or {}).get("entries"), decode(document)
    ledger = _ledger(msgspec.convert(document, _GpuNode), decoded, _entry_uids(entries))
    readable = {entry.uid for entry in decoded.entries}
    others = [e for e in entries if uid_of(e) not in readable] if isinstance(entries, list) else ()
    return replace(ledger, unreadable=tuple(map(unreadable_entry, others)))


def parse_ledger_text(raw: bytes) -> tuple[Ledger, DecodedGpuNode]:
    """Return the Ledger of a GPUNode in JSON, and how it was decoded.

    Where all entries are well-formed it parses much less than :func:`parse_ledger`. Raises the
    same errors.
    """
    decoded = decode_text(raw)
    try:
        gpu_node = _DECODER.decode(raw)
    except msgspec.ValidationError:
        return parse_ledger(msgspec.json.decode(raw)), decoded
    entries = gpu_node.spec.entries
    if len(entries or ()) != len(decoded.entries):
        return parse_ledger(msgspec.json.decode(raw)), decoded
    entry_uids = None if entries is None else tuple(entry.pod.uid for entry in entries)
    return _ledger(gpu_node, decoded, entry_uids), decoded


def _ledger(
    gpu_node: _GpuNode, decoded: DecodedGpuNode, entry_uids: tuple[str, ...] | None
) -> Ledger:
    metadata, status = gpu_node.metadata, gpu_node.status
    return Ledger(
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        generation=metadata.generation,
        inventory=status.inventory,
        boot=status.boot_id,
        node_uid=status.node_uid,
        driver=status.driver,
        observed_generation=status.observed_generation,
        deleting=metadata.deletion_timestamp is not None,
        has_former_finalizer=FORMER_FINALIZER in (metadata.finalizers or ()),
        held=frozenset(map(intern, status.held)),
        entry_uids=entry_uids,
        entries=decoded.entries,
        unpromised=decoded.unpromised,
        node=decoded.node,
        problems=decoded.problems,
        excess=decoded.excess,
        stated=_printable(status.closed),
    )


def _printable(text: str) -> str:
    """Return *text* of an agent, bounded and without control characters."""
    return "".join(c if c.isprintable() else "?" for c in text[:LONGEST_STATED])


def _entry_uids(entries: object) -> tuple[str, ...] | None:
    return tuple(map(uid_of, entries)) if isinstance(entries, list) else None


def describes_node(ledger: Ledger, *, node_uid: str, boot: str) -> bool:
    """Say whether the status describes this Node object in this boot.

    A uid or boot id that either side lacks is not compared.
    """
    pairs = ((ledger.node_uid, node_uid), (ledger.boot, boot))
    return all(recorded == actual or not recorded or not actual for recorded, actual in pairs)


def node_for(ledger: Ledger, uid: str) -> Node:
    """Return the node as pod *uid* sees it: its own grants count as free."""
    return without_entries(ledger.node, _pod_entries(ledger, uid))


def _pod_entries(ledger: Ledger, uid: str) -> list[Entry]:
    """Return the entries of pod *uid*, those without a promise included."""
    return [entry for entry in (*ledger.entries, *ledger.unpromised) if entry.uid == uid]


def annotated_entry(
    document: Mapping[str, Any], pod: Mapping[str, str], containers: object
) -> Entry | None:
    """Return the annotation ``assignment`` of a pod as an entry of the GPUNode *document*.

    *pod* has its namespace, name and uid; *containers* is the parsed annotation. ``None`` if the
    result is not a valid entry of this GPUNode.
    """
    entry = {"pod": pod, "since": "1970-01-01T00:00:00Z", "containers": containers}
    decoded_gpu_node = decode({**document, "spec": {"entries": [entry]}})
    return (
        decoded_gpu_node.entries[0]
        if decoded_gpu_node.entries and not decoded_gpu_node.problems
        else None
    )
