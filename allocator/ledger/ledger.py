"""Ledger: one GPUNode at one version."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec

from allocator.ledger.decode import DecodedGpuNode, decode, decode_text
from allocator.model.allocation import Entry
from allocator.model.gpu import Node
from allocator.model.problem import Problem
from allocator.model.untrusted import is_safe_name
from allocator.model.usage import without_entries

_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class _PodName(msgspec.Struct):
    namespace: str
    name: str


class _EntryPodName(msgspec.Struct):
    pod: _PodName


class _EntrySince(msgspec.Struct):
    since: Annotated[datetime, msgspec.Meta(tz=True)]


def uid_of(element: object) -> str:
    """Return the uid of the pod that *element* names, empty where it names none."""
    pod = element.get("pod") if isinstance(element, Mapping) else None
    uid = pod.get("uid") if isinstance(pod, Mapping) else None
    return uid if isinstance(uid, str) else ""


def unreadable_entry(element: object) -> Entry:
    """Return *element* as a promise of nothing, to the pod that it names if any.

    One that does not say since when it stands never ages.
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


class _Status(msgspec.Struct, rename="camel"):
    inventory: str = ""
    boot_id: str = msgspec.field(name="bootID", default="")
    node_uid: str = msgspec.field(name="nodeUID", default="")
    driver: str = ""
    observed_generation: int = 0
    held: tuple[str, ...] = ()


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
    """One GPUNode at one version.

    ``written`` has the pod uid of each element of ``spec.entries``, empty where it cannot be
    read, or is ``None`` where there is no such list. ``node`` has every readable promise, and
    ``entries`` are those. ``unread`` are the others, with nothing but whose they seem to be: each
    keeps the node from promising anything. ``problems`` say what is odd.
    ``driver`` is what is said of the driver, or in its place. ``held`` are uids of entries whose
    containers may have started; ``unpromised`` is in use by pods that have no entry. ``boot`` and
    ``node_uid`` are those of the Node that the status is of.
    """

    name: str
    uid: str
    resource_version: str
    generation: int
    inventory: str
    boot: str
    node_uid: str
    driver: str
    observed_generation: int
    deleting: bool
    held: frozenset[str]
    entry_uids: tuple[str, ...] | None
    entries: tuple[Entry, ...]
    unreadable: tuple[Entry, ...] = ()
    unpromised: tuple[Entry, ...]
    node: Node
    problems: tuple[Problem, ...] = ()

    def entry(self, uid: str) -> Entry | None:
        """Return what pod *uid* was promised here."""
        return next((entry for entry in self.entries if entry.uid == uid), None)

    @property
    def closed(self) -> str:
        """Say why nothing may be promised here, whatever is free; empty where it may."""
        if self.deleting:
            return "its GPUNode is being deleted"
        known = self.inventory and self.node.gpus
        return "" if known else "its GPUs have not been accounted for yet"


def parse_ledger(document: Mapping[str, Any]) -> Ledger:
    """Read a GPUNode that was parsed from JSON.

    Raises ``ValueError`` where its metadata or status is not what the CRD's schema lets in; of
    what else is odd, ``gpunode`` says how it is read.
    """
    entries, decoded = (document.get("spec") or {}).get("entries"), decode(document)
    ledger = _ledger(msgspec.convert(document, _GpuNode), decoded, _entry_uids(entries))
    readable = {entry.uid for entry in decoded.entries}
    others = [e for e in entries if uid_of(e) not in readable] if isinstance(entries, list) else ()
    return replace(ledger, unreadable=tuple(map(unreadable_entry, others)))


def parse_ledger_text(raw: bytes) -> tuple[Ledger, DecodedGpuNode]:
    """Read a GPUNode as JSON, and what ``gpunode`` says of it; raises as :func:`read` does."""
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
        held=frozenset(status.held),
        entry_uids=entry_uids,
        entries=decoded.entries,
        unpromised=decoded.unpromised,
        node=decoded.node,
        problems=decoded.problems,
    )


def _entry_uids(entries: object) -> tuple[str, ...] | None:
    return tuple(map(uid_of, entries)) if isinstance(entries, list) else None


def is_accounted(ledger: Ledger, *, node_uid: str, boot: str) -> bool:
    """Say whether the status was written for the Node as it runs now: this object, this boot.

    What either side does not say is not compared.
    """
    pairs = ((ledger.node_uid, node_uid), (ledger.boot, boot))
    return all(recorded == actual or not recorded or not actual for recorded, actual in pairs)


def node_for(ledger: Ledger, uid: str) -> Node:
    """Return the node as pod *uid* finds it: what it was promised itself counts as free."""
    return without_entries(ledger.node, _pod_entries(ledger, uid))


def _pod_entries(ledger: Ledger, uid: str) -> list[Entry]:
    """Return what pod *uid* has, promised or not."""
    return [entry for entry in (*ledger.entries, *ledger.unpromised) if entry.uid == uid]


def annotated_entry(
    document: Mapping[str, Any], pod: Mapping[str, str], containers: object
) -> Entry | None:
    """Return the entry that a pod's annotations tell of, read as if it stood in this GPUNode.

    *pod* has its namespace, name and uid; *told* is what ``assignment`` holds. ``None`` where the
    GPUNode cannot have promised that.
    """
    entry = {"pod": pod, "since": "1970-01-01T00:00:00Z", "containers": containers}
    decoded_gpu_node = decode({**document, "spec": {"entries": [entry]}})
    return (
        decoded_gpu_node.entries[0]
        if decoded_gpu_node.entries and not decoded_gpu_node.problems
        else None
    )
