"""Words of decisions: verdicts, states, what was asked and what was given."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from allocator.audit.record import AdmissionVerdict, AskedPart, DevicePart, GivenPart
from allocator.model.decision import Reason
from allocator.report.terminal_lines import Tone
from console.pages.parts.cell import TableCell, code, plain, word
from console.records.query import PodOutcome
from console.records.rows import DecisionRow

_VERDICTS: Final = {
    AdmissionVerdict.REWRITTEN: (Tone.GOOD, "✓"),
    AdmissionVerdict.REFUSED: (Tone.BAD, "✕"),
    AdmissionVerdict.ERROR: (Tone.BAD, "✕"),
    AdmissionVerdict.UNTOUCHED: (Tone.PLAIN, "○"),
}
_REASONS: Final = frozenset(map(str, Reason))
_STATES: Final = {
    PodOutcome.REFUSED: (Tone.BAD, "✕"),
    PodOutcome.ADMITTED: (Tone.PLAIN, "○"),
    PodOutcome.WAITING: (Tone.WARN, "…"),
    PodOutcome.BOUND: (Tone.PLAIN, "→"),
    PodOutcome.RUNNING: (Tone.GOOD, "✓"),
    PodOutcome.OVER: (Tone.LABEL, "□"),
}
NOBODY_KNOWN: Final = "no record names a person"
PEOPLE_HIDDEN: Final = "you may not see the names of people"


def verdict_cell(verdict: str) -> TableCell:
    """Return what admission did."""
    tone, mark = _VERDICTS.get(verdict, (Tone.PLAIN, ""))  # type: ignore[call-overload]
    return word(verdict, tone, mark=mark)


def state_cell(row: DecisionRow) -> TableCell:
    """Return what became of a pod."""
    tone, mark = _STATES[row.state]
    waits = row.waiting_reason if row.state is PodOutcome.WAITING else ""
    return word(str(row.state), tone, mark=mark, note=waits)


def requester_cell(row: DecisionRow, *, people: bool) -> TableCell:
    """Return the person behind a pod, and how that is known."""
    if not people:
        return plain("", why=PEOPLE_HIDDEN)
    how = "" if row.requester_source in ("", "direct", "unknown") else f"by {row.requester_source}"
    return plain(row.requester, note=how if row.requester else "", why=NOBODY_KNOWN)


def reason_cell(reason: str, *, why: str) -> TableCell:
    """Return a reason, with the address of its meaning where it is one of ours."""
    return code(reason, href=f"/reasons#{reason}" if reason in _REASONS else "", why=why)


def asked_text(parts: Iterable[AskedPart]) -> str:
    """Return what containers ask for, in one line."""
    return " + ".join(map(_asked, parts))


def _asked(part: AskedPart) -> str:
    gpus = "" if part.count == 1 else f"{part.count} x "
    if part.memory_mib is not None:
        memory = f"{part.memory_mib:,} MiB"
    elif part.memory_percent is not None:
        memory = f"{part.memory_percent} % of the memory"
    else:
        memory = "all memory"
    cores = f", {part.cores_percent} % compute" if part.cores_percent else ""
    return f"{gpus}{memory}{cores}"


def given_text(parts: Iterable[GivenPart]) -> str:
    """Return what containers were given, in one line, equal devices counted."""
    counts = Counter(device_text(device) for part in parts for device in part.devices)
    return " + ".join(text if count == 1 else f"{count} x {text}" for text, count in counts.items())


def device_text(device: DevicePart) -> str:
    """Return one grant, without its GPU."""
    memory = "" if device.memory_mib is None else f"{device.memory_mib:,} MiB"
    if device.profile:
        return f"{device.profile} ({memory})" if memory else device.profile
    cores = f", {device.cores_percent} % compute" if device.cores_percent else ""
    return f"{memory or 'a share'}{cores}"


def given_memory(parts: Iterable[GivenPart]) -> int | None:
    """Return the MiB of all devices; ``None`` where that of one is unknown."""
    amounts = [device.memory_mib for part in parts for device in part.devices]
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known and len(known) == len(amounts) else None


def asked_memory(parts: Iterable[AskedPart]) -> int | None:
    """Return the MiB that all containers ask for; ``None`` where one names none."""
    amounts = [None if part.memory_mib is None else part.memory_mib * part.count for part in parts]
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known and len(known) == len(amounts) else None
