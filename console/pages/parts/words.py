"""Words of decisions: verdicts, states, what was asked and what was given."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from allocator.audit.record import AdmissionVerdict, AskedPart, DevicePart, GivenPart
from allocator.model.decision import Reason
from allocator.report.terminal_lines import Tone
from console.cluster.pod import PodState
from console.languages.messages import PageMessage, joined_text, message
from console.pages.parts.cell import TableCell, code, plain, word
from console.records.query import PodOutcome
from console.records.rows import DecisionRow

_VERDICTS: Final = {
    AdmissionVerdict.REWRITTEN: (Tone.GOOD, "✓"),
    AdmissionVerdict.REFUSED: (Tone.BAD, "✕"),
    AdmissionVerdict.ERROR: (Tone.BAD, "✕"),
    AdmissionVerdict.UNTOUCHED: (Tone.PLAIN, "○"),
}
_VERDICT_TEXTS: Final = {  # as a word, and beside a heading
    "rewritten": (message("rewritten"), message("REWRITTEN")),
    "refused": (message("refused"), message("REFUSED")),
    "error": (message("error"), message("ERROR")),
    "untouched": (message("untouched"), message("UNTOUCHED")),
}
_STATE_TEXTS: Final = {
    PodOutcome.REFUSED: message("refused"),
    PodOutcome.ADMITTED: message("admitted"),
    PodOutcome.WAITING: message("waiting"),
    PodOutcome.BOUND: message("bound"),
    PodOutcome.RUNNING: message("running"),
    PodOutcome.OVER: message("over"),
}
_POD_STATES: Final = {
    PodState.WAITING: message("waiting"),
    PodState.RESERVED: message("reserved"),
    PodState.BOUND: message("bound"),
    PodState.FAILING: message("failing"),
    PodState.RUNNING: message("running"),
    PodState.BYPASSED: message("bypassed"),
    PodState.ENDED: message("ended"),
    PodState.GONE: message("gone"),
}
_REQUESTER_SOURCES: Final = {"workload": message("workload")}
_REASONS: Final = frozenset(map(str, Reason))
_STATES: Final = {
    PodOutcome.REFUSED: (Tone.BAD, "✕"),
    PodOutcome.ADMITTED: (Tone.PLAIN, "○"),
    PodOutcome.WAITING: (Tone.WARN, "…"),
    PodOutcome.BOUND: (Tone.PLAIN, "→"),
    PodOutcome.RUNNING: (Tone.GOOD, "✓"),
    PodOutcome.OVER: (Tone.LABEL, "□"),
}
NOBODY_KNOWN: Final = message("no record names a person")
UNRECORDED: Final = message("no record says so")
PEOPLE_HIDDEN: Final = message("you may not see the names of people")


def verdict_cell(verdict: str) -> TableCell:
    """Return what admission did."""
    tone, mark = _VERDICTS.get(verdict, (Tone.PLAIN, ""))  # type: ignore[call-overload]
    return word(verdict_text(verdict), tone, mark=mark)


def verdict_text(verdict: str) -> str:
    """Return a verdict as a word; one that is not ours as it is."""
    return _VERDICT_TEXTS.get(str(verdict), (str(verdict),))[0]


def verdict_heading(verdict: str) -> str:
    """Return a verdict as it stands beside a heading."""
    texts = _VERDICT_TEXTS.get(str(verdict))
    return str(verdict).upper() if texts is None else texts[1]


def pod_state_text(state: PodState) -> PageMessage:
    """Return the state of a pod that exists as a word."""
    return _POD_STATES[state]


def facet_text(field: str, value: str) -> str:
    """Return a value by which a list is narrowed; only verdicts have words of ours."""
    return verdict_text(value) if field == "verdict" else value


def state_cell(row: DecisionRow) -> TableCell:
    """Return what became of a pod."""
    tone, mark = _STATES[row.state]
    waits = row.waiting_reason if row.state is PodOutcome.WAITING else ""
    return word(_STATE_TEXTS[row.state], tone, mark=mark, note=waits)


def requester_cell(row: DecisionRow, *, people: bool) -> TableCell:
    """Return the person behind a pod, and how that is known."""
    if not people:
        return plain("", why=PEOPLE_HIDDEN)
    how = ""
    if row.requester_source not in ("", "direct", "unknown"):
        source = _REQUESTER_SOURCES.get(row.requester_source, row.requester_source)
        how = message("by {source}", source=source)
    return plain(row.requester, note=how if row.requester else "", why=NOBODY_KNOWN)


def reason_cell(reason: str, *, why: str) -> TableCell:
    """Return a reason, with the address of its meaning where it is one of ours."""
    return code(reason, href=f"/reasons#{reason}" if reason in _REASONS else "", why=why)


def asked_text(parts: Iterable[AskedPart]) -> str:
    """Return what containers ask for, in one line."""
    return joined_text(" + ", map(_asked, parts))


def _asked(part: AskedPart) -> str:
    return asked_amounts(
        count=part.count,
        memory_mib=part.memory_mib,
        memory_percent=part.memory_percent,
        cores_percent=part.cores_percent,
    )


def asked_amounts(
    *, count: int, memory_mib: int | None, memory_percent: int | None, cores_percent: int | None
) -> PageMessage:
    """Return what a container asks for: memory in MiB or percent of a GPU, or all of it."""
    memory: str = message("all memory")
    if memory_mib is not None:
        memory = f"{memory_mib:,} MiB"
    elif memory_percent is not None:
        memory = message("{percent} % of the memory", percent=memory_percent)
    text = joined_text(", ", filter(None, (memory, compute_text(cores_percent))))
    return text if count == 1 else joined_text(" x ", (str(count), text))


def compute_text(percent: int | None) -> str:
    """Return a share of the compute of a GPU; empty where it is not limited."""
    return message("{percent} % compute", percent=percent) if percent else ""


def given_text(parts: Iterable[GivenPart]) -> str:
    """Return what containers were given, in one line, equal devices counted."""
    counts = Counter(device_text(device) for part in parts for device in part.devices)
    return joined_text(
        " + ",
        (
            text if count == 1 else joined_text(" x ", (str(count), text))
            for text, count in counts.items()
        ),
    )


def device_text(device: DevicePart) -> str:
    """Return one grant, without its GPU."""
    memory = "" if device.memory_mib is None else f"{device.memory_mib:,} MiB"
    if device.profile:
        return f"{device.profile} ({memory})" if memory else device.profile
    parts = (memory or message("a share"), compute_text(device.cores_percent))
    return joined_text(", ", filter(None, parts))


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
