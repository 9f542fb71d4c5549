"""Bounds: what a ledger can hold, so that whoever reads it next can read all of it."""

from allocator.core.document import Notes
from allocator.core.gpunodeparts import FieldPlace, GpuInventory, entries_of
from allocator.core.gpunodewire import MOST_ENTRIES
from allocator.core.ledger import Ledger, wire_of
from allocator.model.ledger import Entry
from allocator.model.problem import Problem


def is_full(ledger: Ledger, uid: str) -> bool:
    """Say whether the list of promises is as long as it may be, and pod *uid* not in it."""
    written = ledger.written or ()
    return len(written) >= MOST_ENTRIES and uid not in written


def readback_problems(ledger: Ledger, entry: Entry) -> tuple[Problem, ...]:
    """Say what of *entry* could not be read back from *ledger* if it were written there.

    A promise that cannot be read closes its node, so this is asked before each is written.
    """
    notes, shapes = Notes(), {gpu.uuid: gpu.board for gpu in ledger.node.gpus}
    place = FieldPlace("spec.entries", notes)
    first = len(ledger.written or ())
    for _ in entries_of([wire_of(entry)], GpuInventory(gpus={}, shapes=shapes), place, first=first):
        pass
    return tuple(notes.errors)
