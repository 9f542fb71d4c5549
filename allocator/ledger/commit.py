"""JSON Patches that add or remove entries of a GPUNode: what they test, and their bounds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from allocator.config.document import Notes
from allocator.ledger.decode_parts import FieldPlace, GpuInventory, entries_of
from allocator.ledger.ledger import Ledger, node_for
from allocator.ledger.schema import MOST_ENTRIES, spec_of
from allocator.model.allocation import Entry
from allocator.model.problem import Problem
from allocator.model.usage import peak_grants, with_grants

Operation = Mapping[str, object]
_ENTRIES: Final = "/spec/entries"
# Switches off the tracking of field managers, which makes a write about 10 % more expensive for the
# API server; admission policies decide who may write here. One empty element means "do not track".
_UNTRACKED: Final[Operation] = {"op": "add", "path": "/metadata/managedFields", "value": [{}]}


def with_entry(ledger: Ledger, entry: Entry) -> Ledger:
    """Return *ledger* as if *entry* had been committed, for the next decision of a batch."""
    others = tuple(other for other in ledger.entries if other.uid != entry.uid)
    unpromised = tuple(other for other in ledger.unpromised if other.uid != entry.uid)
    node = with_grants(node_for(ledger, entry.uid), peak_grants(entry.containers))
    uids = ledger.entry_uids or ()
    return replace(
        ledger,
        entry_uids=uids if entry.uid in uids else (*uids, entry.uid),
        entries=(*others, entry),
        unpromised=unpromised,
        node=node,
    )


def commit_all(ledger: Ledger, entries: Sequence[Entry]) -> tuple[Operation, ...]:
    """Return one patch that adds *entries*, of different pods, to *ledger* as it was read.

    The API server rejects the whole patch if entries or inventory have changed since. A pod's
    existing entry keeps its index and gets a new ``since``. A patch that replaces grants also tests
    the resource version, because containers may start on them at any moment.
    """
    uids = ledger.entry_uids or ()
    duplicates = [i for entry in entries for i in _indexes_of(uids, entry.uid)[1:]]
    replaces_grants = any(
        entry.uid in uids and not _is_unchanged(ledger, entry) for entry in entries
    )
    unchanged = _test("/metadata/resourceVersion", ledger.resource_version)
    return (
        _test("/metadata/uid", ledger.uid),
        *((unchanged,) if replaces_grants else ()),
        _test("/metadata/generation", ledger.generation),
        _test("/status/inventory", ledger.inventory),
        *(() if ledger.entry_uids is not None else (_add(_ENTRIES, []),)),
        *(operation for entry in entries for operation in _put_entry(uids, entry)),
        *_remove_at(duplicates),
        _UNTRACKED,
    )


def remove_entries(ledger: Ledger, *uids: str) -> tuple[Operation, ...]:
    """Return the patch that removes the entries of pods *uids*; empty where there are none.

    The API server rejects it if anything in the GPUNode has changed since it was read
    (docs/design.md, commit rule 3).
    """
    indexes = [index for uid in set(uids) for index in _indexes_of(ledger.entry_uids or (), uid)]
    if not indexes:
        return ()
    unchanged = _test("/metadata/resourceVersion", ledger.resource_version)
    return (_test("/metadata/uid", ledger.uid), unchanged, *_remove_at(indexes), _UNTRACKED)


def _put_entry(uids: Sequence[str], entry: Entry) -> Iterator[Operation]:
    """Yield the operations that append *entry*, or replace the fields of its pod's entry."""
    wire = wire_of(entry)
    indexes = _indexes_of(uids, entry.uid)
    if not indexes:
        yield _add(f"{_ENTRIES}/-", wire)
        return
    for field in ("since", "containers"):
        yield _add(f"{_ENTRIES}/{indexes[0]}/{field}", wire[field])  # replaces a member


def _is_unchanged(ledger: Ledger, entry: Entry) -> bool:
    """Say whether *entry* has the same grants as the entry that its pod has already."""
    before = ledger.entry(entry.uid)
    return before is not None and before.containers == entry.containers


def wire_of(entry: Entry) -> dict[str, object]:
    """Return *entry* as an element of ``spec.entries``."""
    entries: Any = spec_of((entry,))["entries"]
    wire: dict[str, object] = entries[0]
    return wire


def _indexes_of(uids: Sequence[str], uid: str) -> list[int]:
    return [index for index, other in enumerate(uids) if other == uid]


def _remove_at(indexes: Iterable[int]) -> list[Operation]:
    """Return removals from the last index to the first, so that none shifts the next."""
    return [{"op": "remove", "path": f"{_ENTRIES}/{i}"} for i in sorted(indexes, reverse=True)]


def _test(path: str, value: object) -> Operation:
    return {"op": "test", "path": path, "value": value}


def _add(path: str, value: object) -> Operation:
    return {"op": "add", "path": path, "value": value}


def is_full(ledger: Ledger, uid: str) -> bool:
    """Say whether the list has its maximum length without an entry of pod *uid*."""
    uids = ledger.entry_uids or ()
    return len(uids) >= MOST_ENTRIES and uid not in uids


def readback_problems(ledger: Ledger, entry: Entry) -> tuple[Problem, ...]:
    """Return the problems that decoding *entry* would meet once it is written into *ledger*.

    An unreadable entry closes its node, so every entry is checked before it is written.
    """
    notes, boards = Notes(), {gpu.uuid: gpu.board for gpu in ledger.node.gpus}
    place = FieldPlace("spec.entries", notes)
    first = len(ledger.entry_uids or ())
    for _ in entries_of([wire_of(entry)], GpuInventory(gpus={}, boards=boards), place, first=first):
        pass
    return tuple(notes.errors)
