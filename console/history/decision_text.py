"""One decision as a page of text: who asked, what was given and why, and the life of the pod."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from allocator.audit.record import AdmissionRecord
from allocator.model.untrusted import zoned_time
from allocator.report.terminal_lines import CutLine, Line, TextSpan, Tone, WrappedLine, heading, row
from console.get.candidate_text import candidate_rows, candidates_document
from console.get.table import span
from console.history.amounts import asked_text, given_text
from console.history.answers import DecisionAnswer, RecordAnswer
from console.history.decision_rows import decision_item
from console.history.record_rows import record_item
from console.history.record_text import known_record
from console.history.who import person_text
from console.records.query import PodOutcome
from console.records.rows import DecisionRow

_TONES: Final = {
    PodOutcome.REFUSED: Tone.BAD,
    PodOutcome.WAITING: Tone.WARN,
    PodOutcome.RUNNING: Tone.GOOD,
    PodOutcome.OVER: Tone.LABEL,
}
_OFFSET: Final = 10  # columns of the time since the first record
_KIND: Final = 15  # columns of its kind


def decision_lines(answer: DecisionAnswer) -> Iterator[Line]:
    """Yield a decision and the life of its pod."""
    decision = answer.decision
    tone = _TONES.get(decision.state, Tone.PLAIN)
    title = f"{decision.namespace}/{decision.pod}"
    yield heading(title, str(decision.state).upper(), tone)
    yield from row("asked", asked_text(decision.asked))
    yield from row("by", person_text(decision))
    yield from row("decided", _decided(decision), tone if decision.reason else Tone.PLAIN)
    yield from _why(answer.records)
    if decision.given:
        where = f", on {decision.node}" if decision.node else ""
        yield from row("given", f"{given_text(decision.given)}{where}", Tone.STRONG)
    if decision.waiting_since and decision.state is PodOutcome.WAITING:
        yield from row(
            "waits", f"since {decision.waiting_since}: {decision.waiting_reason}", Tone.WARN
        )
    if decision.violations:
        yield from row("violated", f"its limits, {decision.violations} times", Tone.BAD)
    yield from row("digest", " ".join(filter(None, (decision.digest, decision.pod_uid))))
    if answer.candidates is not None:
        yield from candidate_rows(answer.candidates)
    yield from _life(answer.records)


def _decided(decision: DecisionRow) -> str:
    times = f" ({decision.times} times since {decision.first})" if decision.times > 1 else ""
    if decision.verdict == "refused":
        return f"refused: {decision.text or decision.reason}{times}"
    mode = f" as {decision.mode}" if decision.mode else ""
    source = f" ({decision.mode_source})" if decision.mode_source else ""
    warning = f"; {decision.text}" if decision.text else ""
    return f"{decision.verdict}{mode}{source}{times}{warning}"


def _why(life: Iterable[RecordAnswer]) -> Iterator[Line]:
    """Yield the rule behind the mode, and what each mode would have cost."""
    for each in life:
        record = known_record(each.record)
        if isinstance(record, AdmissionRecord) and (record.rule or record.costs_per_mille):
            costs = ", ".join(f"{m} {c / 10:g} %" for m, c in record.costs_per_mille.items())
            if record.rule:
                yield from row("why", record.rule)
            if costs:
                yield from row("costs", f"of the fleet's memory withheld: {costs}")
            return


def _life(life: tuple[RecordAnswer, ...]) -> Iterator[Line]:
    """Yield when each thing happened: the first with its time, the others by how long after."""
    items = [record_item(each) for each in life]
    start = next((time for item in items if (time := zoned_time(item.at)) is not None), None)
    if start is None:
        return
    yield ()
    yield CutLine("", f"life, from {start.isoformat(timespec='seconds')}", Tone.STRONG)
    for item in items:
        head = f"  {_after(zoned_time(item.at), start):<{_OFFSET}}{item.kind:<{_KIND}} "
        who = TextSpan(f"  {item.node}" if item.node else "", Tone.LABEL)
        yield WrappedLine(head, f"{' '.join(item.text.split())}{who.text}")


def _after(time: datetime | None, start: datetime) -> str:
    if time is None:
        return "?"
    passed = max(time - start, timedelta())
    if timedelta() < passed < timedelta(seconds=10):
        return f"+{passed.total_seconds():.1f}s"
    return f"+{span(passed)}"


def decision_document(answer: DecisionAnswer) -> dict[str, Any]:
    """Return a decision with its records as a document."""
    item: dict[str, Any] = msgspec.to_builtins(decision_item(answer.decision))
    life = [{"record": each.record, "sender": each.sender} for each in answer.records]
    return {
        "apiVersion": "vgpu-admission.io/v1alpha1",
        "kind": "Decision",
        "decision": item,
        "life": life,
        "candidates": candidates_document(answer.candidates),
    }
