"""The ledger of one node as it was read, and the JSON Patches that add to it or take from it.

A patch tests what the decision rested on and touches one pod's entry only: an agent's write to
the status does not disturb it, and fields that a newer replica wrote stay (docs/design.md, commit
rule 2).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from allocator.core.elements import uid_of, unreadable_entry
from allocator.core.gpunode import DecodedGpuNode, decode, decode_text
from allocator.core.gpunodewire import spec_of
from allocator.core.holdings import peak_grants, with_grants, without_entries
from allocator.model.gpu import Node
from allocator.model.ledger import Entry
from allocator.model.problem import Problem

Operation = Mapping[str, object]

_ENTRIES: Final = "/spec/entries"
# Who wrote which field is not tracked: policies say who may, and tracking makes a write a tenth
# dearer for the API server. One empty element is how it is told to stop.
_UNTRACKED: Final[Operation] = {"op": "add", "path": "/metadata/managedFields", "value": [{}]}


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


class _Object(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


class _Pod(msgspec.Struct):
    uid: str


class _Entry(msgspec.Struct):
    pod: _Pod


class _Spec(msgspec.Struct):
    entries: list[_Entry] | None = None


class _Whole(_Object):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_WHOLE: Final = msgspec.json.Decoder(_Whole)


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
    written: tuple[str, ...] | None
    entries: tuple[Entry, ...]
    unread: tuple[Entry, ...] = ()
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
    found = _ledger(msgspec.convert(document, _Object), decoded, _entry_uids(entries))
    readable = {entry.uid for entry in decoded.entries}
    others = [e for e in entries if uid_of(e) not in readable] if isinstance(entries, list) else ()
    return replace(found, unread=tuple(map(unreadable_entry, others)))


def read_text(raw: bytes) -> tuple[Ledger, DecodedGpuNode]:
    """Read a GPUNode as JSON, and what ``gpunode`` says of it; raises as :func:`read` does."""
    decoded = decode_text(raw)
    try:
        found = _WHOLE.decode(raw)
    except msgspec.ValidationError:
        return parse_ledger(msgspec.json.decode(raw)), decoded
    entries = found.spec.entries
    if len(entries or ()) != len(decoded.entries):
        return parse_ledger(msgspec.json.decode(raw)), decoded
    written = None if entries is None else tuple(entry.pod.uid for entry in entries)
    return _ledger(found, decoded, written), decoded


def _ledger(found: _Object, decoded: DecodedGpuNode, written: tuple[str, ...] | None) -> Ledger:
    metadata, status = found.metadata, found.status
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
        written=written,
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
    return all(mine == its or not mine or not its for mine, its in pairs)


def node_for(ledger: Ledger, uid: str) -> Node:
    """Return the node as pod *uid* finds it: what it was promised itself counts as free."""
    return without_entries(ledger.node, _pod_entries(ledger, uid))


def with_entry(ledger: Ledger, entry: Entry) -> Ledger:
    """Return *ledger* as the next decision must see it, once *entry* is about to be committed."""
    others = tuple(other for other in ledger.entries if other.uid != entry.uid)
    unpromised = tuple(other for other in ledger.unpromised if other.uid != entry.uid)
    node = with_grants(node_for(ledger, entry.uid), peak_grants(entry.containers))
    written = ledger.written or ()
    return replace(
        ledger,
        written=written if entry.uid in written else (*written, entry.uid),
        entries=(*others, entry),
        unpromised=unpromised,
        node=node,
    )


def _pod_entries(ledger: Ledger, uid: str) -> list[Entry]:
    """Return what pod *uid* has, promised or not."""
    return [entry for entry in (*ledger.entries, *ledger.unpromised) if entry.uid == uid]


def commit_all(ledger: Ledger, entries: Sequence[Entry]) -> tuple[Operation, ...]:
    """Return one patch that promises *entries*, of different pods, on *ledger* as it was read.

    It fails as a whole where promises or inventory have changed since. A pod that has an entry
    keeps its place in the list, with a new ``since``; to exchange what it was promised, nothing at
    all may have changed, because its containers may start on it at any moment.
    """
    rest = ledger.written or ()
    doubled = [i for entry in entries for i in _places(rest, entry.uid)[1:]]
    exchanged = any(entry.uid in rest and not _is_unchanged(ledger, entry) for entry in entries)
    unchanged = _test("/metadata/resourceVersion", ledger.resource_version)
    return (
        _test("/metadata/uid", ledger.uid),
        *((unchanged,) if exchanged else ()),
        _test("/metadata/generation", ledger.generation),
        _test("/status/inventory", ledger.inventory),
        *(() if ledger.written is not None else (_add(_ENTRIES, []),)),
        *(operation for entry in entries for operation in _put_entry(rest, entry)),
        *_remove_at(doubled),
        _UNTRACKED,
    )


def remove_entries(ledger: Ledger, *uids: str) -> tuple[Operation, ...]:
    """Return the patch that removes what pods *uids* were promised; empty where that is nothing.

    It fails where anything about the GPUNode has changed since it was read (docs/design.md, commit
    rule 3).
    """
    places = [place for uid in set(uids) for place in _places(ledger.written or (), uid)]
    if not places:
        return ()
    unchanged = _test("/metadata/resourceVersion", ledger.resource_version)
    return (_test("/metadata/uid", ledger.uid), unchanged, *_remove_at(places), _UNTRACKED)


def _put_entry(written: Sequence[str], entry: Entry) -> Iterator[Operation]:
    """Append *entry*, or renew the one that its pod has, field by field."""
    wire = wire_of(entry)
    places = _places(written, entry.uid)
    if not places:
        yield _add(f"{_ENTRIES}/-", wire)
        return
    for field in ("since", "containers"):
        yield _add(f"{_ENTRIES}/{places[0]}/{field}", wire[field])  # replaces a member


def _is_unchanged(ledger: Ledger, entry: Entry) -> bool:
    """Say whether *entry* promises its pod what it was promised before."""
    before = ledger.entry(entry.uid)
    return before is not None and before.containers == entry.containers


def wire_of(entry: Entry) -> dict[str, object]:
    """Return *entry* as an element of ``spec.entries``."""
    entries: Any = spec_of((entry,))["entries"]
    wire: dict[str, object] = entries[0]
    return wire


def annotated_entry(
    document: Mapping[str, Any], pod: Mapping[str, str], told: object
) -> Entry | None:
    """Return the entry that a pod's annotations tell of, read as if it stood in this GPUNode.

    *pod* has its namespace, name and uid; *told* is what ``assignment`` holds. ``None`` where the
    GPUNode cannot have promised that.
    """
    entry = {"pod": pod, "since": "1970-01-01T00:00:00Z", "containers": told}
    found = decode({**document, "spec": {"entries": [entry]}})
    return found.entries[0] if found.entries and not found.problems else None


def _places(written: Sequence[str], uid: str) -> list[int]:
    return [index for index, other in enumerate(written) if other == uid]


def _remove_at(places: Iterable[int]) -> list[Operation]:
    """Remove from the back, so that no index moves before it is used."""
    return [{"op": "remove", "path": f"{_ENTRIES}/{i}"} for i in sorted(places, reverse=True)]


def _test(path: str, value: object) -> Operation:
    return {"op": "test", "path": path, "value": value}


def _add(path: str, value: object) -> Operation:
    return {"op": "add", "path": path, "value": value}
