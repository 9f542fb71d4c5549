"""The ledger of one node as it was read, and the JSON Patches that add to it or take from it.

A patch tests what the decision rested on and touches one pod's entry only: an agent's write to
the status does not disturb it, and fields that a newer replica wrote stay (DESIGN.md §5, rule 2).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from allocator.core.gpunode import decode
from allocator.core.gpunodewire import spec_of
from allocator.model.gpu import Node
from allocator.model.ledger import Entry

Operation = Mapping[str, object]

_ENTRIES: Final = "/spec/entries"


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None


class _Status(msgspec.Struct, rename="camel"):
    inventory: str = ""
    boot_id: str = msgspec.field(name="bootID", default="")
    observed_generation: int = 0
    held: tuple[str, ...] = ()


class _Object(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """One GPUNode at one version.

    ``written`` has the pod uid of each element of ``spec.entries``, empty where it cannot be
    read, or is ``None`` where there is no such list. ``node`` has every readable promise.
    ``held`` are uids of entries whose containers may have started.
    """

    name: str
    uid: str
    resource_version: str
    generation: int
    inventory: str
    boot: str
    observed_generation: int
    deleting: bool
    held: frozenset[str]
    written: tuple[str, ...] | None
    entries: tuple[Entry, ...]
    node: Node

    def entry(self, uid: str) -> Entry | None:
        """Return what pod *uid* was promised here."""
        return next((entry for entry in self.entries if entry.uid == uid), None)

    @property
    def closed(self) -> str:
        """Say why nothing may be promised here, whatever is free; empty where it may."""
        if self.deleting:
            return "its GPUNode is being deleted"
        return "" if self.inventory and self.node.gpus else "its agent has reported no GPUs yet"


def read(document: Mapping[str, Any]) -> Ledger:
    """Read a GPUNode that was parsed from JSON.

    Raises ``ValueError`` where its metadata or status is not what the CRD's schema lets in; of
    what else is odd, ``gpunode`` says how it is read.
    """
    found = msgspec.convert(document, _Object)
    decoded = decode(document)
    metadata, status = found.metadata, found.status
    return Ledger(
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        generation=metadata.generation,
        inventory=status.inventory,
        boot=status.boot_id,
        observed_generation=status.observed_generation,
        deleting=metadata.deletion_timestamp is not None,
        held=frozenset(status.held),
        written=_written((document.get("spec") or {}).get("entries")),
        entries=decoded.entries,
        node=decoded.node,
    )


def _written(entries: object) -> tuple[str, ...] | None:
    return tuple(map(_uid, entries)) if isinstance(entries, list) else None


def _uid(entry: object) -> str:
    pod = entry.get("pod") if isinstance(entry, Mapping) else None
    uid = pod.get("uid") if isinstance(pod, Mapping) else None
    return uid if isinstance(uid, str) else ""


def node_for(ledger: Ledger, uid: str) -> Node:
    """Return the node as pod *uid* finds it: what it was promised itself counts as free."""
    others = [entry for entry in ledger.entries if entry.uid != uid]
    grants = [g for entry in others for held in entry.containers for g in held.grants]
    gpus = tuple(
        replace(gpu, grants=tuple(g for g in grants if g.gpu == gpu.uuid))
        for gpu in ledger.node.gpus
    )
    return replace(ledger.node, gpus=gpus)


def promising(ledger: Ledger, entry: Entry) -> Ledger:
    """Return *ledger* as the next decision must see it, once *entry* is about to be committed."""
    others = tuple(other for other in ledger.entries if other.uid != entry.uid)
    return replace(ledger, entries=(*others, entry))


def commit_all(ledger: Ledger, entries: Sequence[Entry]) -> tuple[Operation, ...]:
    """Return one patch that promises *entries*, of different pods, on *ledger* as it was read.

    It fails as a whole where promises or inventory have changed since. A pod that has an entry
    keeps its place in the list, with a new ``since``.
    """
    rest = ledger.written or ()
    doubled = [i for entry in entries for i in _places(rest, entry.uid)[1:]]
    return (
        _test("/metadata/uid", ledger.uid),
        _test("/metadata/generation", ledger.generation),
        _test("/status/inventory", ledger.inventory),
        *(() if ledger.written is not None else (_add(_ENTRIES, []),)),
        *(operation for entry in entries for operation in _promised(rest, entry)),
        *_removed(doubled),
    )


def without(ledger: Ledger, uid: str) -> tuple[Operation, ...]:
    """Return the patch that removes what pod *uid* was promised; empty where that is nothing.

    It fails where anything about the GPUNode has changed since it was read (rule 3).
    """
    places = _places(ledger.written or (), uid)
    if not places:
        return ()
    unchanged = _test("/metadata/resourceVersion", ledger.resource_version)
    return (_test("/metadata/uid", ledger.uid), unchanged, *_removed(places))


def _promised(written: Sequence[str], entry: Entry) -> Iterator[Operation]:
    """Append *entry*, or renew the one that its pod has, field by field."""
    wire = wire_of(entry)
    places = _places(written, entry.uid)
    if not places:
        yield _add(f"{_ENTRIES}/-", wire)
        return
    for field in ("since", "containers"):
        yield _add(f"{_ENTRIES}/{places[0]}/{field}", wire[field])  # replaces a member


def wire_of(entry: Entry) -> dict[str, object]:
    """Return *entry* as an element of ``spec.entries``."""
    entries: Any = spec_of((entry,))["entries"]
    wire: dict[str, object] = entries[0]
    return wire


def _places(written: Sequence[str], uid: str) -> list[int]:
    return [index for index, other in enumerate(written) if other == uid]


def _removed(places: Iterable[int]) -> list[Operation]:
    """Remove from the back, so that no index moves before it is used."""
    return [{"op": "remove", "path": f"{_ENTRIES}/{i}"} for i in sorted(places, reverse=True)]


def _test(path: str, value: object) -> Operation:
    return {"op": "test", "path": path, "value": value}


def _add(path: str, value: object) -> Operation:
    return {"op": "add", "path": path, "value": value}
