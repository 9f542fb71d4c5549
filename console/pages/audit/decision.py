"""The page of one decision: who asked, what was given and why, what became of it, what helps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from allocator.audit.record import AdmissionRecord, AdmissionVerdict, WorkloadRecord
from allocator.report.terminal_lines import Tone
from console.explain import why_text
from console.explain.fit import Fit
from console.explain.why import PodWhy
from console.get.listing import API_VERSION
from console.languages.messages import joined_text, message
from console.pages.audit.changes import changes_table
from console.pages.audit.decisions import shown_digest
from console.pages.fleet.fit import answer_lines
from console.pages.parts.blocks import (
    FactList,
    PageBlock,
    PageNote,
    PageQuestion,
    PageTable,
    PageView,
    TableColumn,
)
from console.pages.parts.cell import TableCell, at, code, plain, unknown, word
from console.pages.parts.life import life_line, started_after
from console.pages.parts.lines import facts_of
from console.pages.parts.links import address, node_address
from console.pages.parts.words import (
    NOBODY_KNOWN,
    PEOPLE_HIDDEN,
    asked_memory,
    asked_text,
    device_text,
    given_memory,
    reason_cell,
    state_cell,
    verdict_cell,
    verdict_heading,
)
from console.records.rows import DecisionRow, StoredRecord

_SOURCES: Final = {
    "named": message("the pod named this mode"),
    "only": message("no other mode could serve it"),
    "best": message("the best of those that can serve it"),
}
_HOW: Final = {
    "direct": message("created the pod"),
    "workload": message("created or changed the workload"),
}
TODAY: Final = "today"  # value of an address that asks for it
_UNRECORDED: Final = message("no record says so")
MOST_LIFE: Final = 500  # records that a store returns of one pod


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayView:
    """What deciding again on the stored inputs gives, made by whoever replays."""

    blocks: tuple[PageBlock, ...]
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFacts:
    """What a page of a decision is made from."""

    row: DecisionRow
    life: Sequence[StoredRecord]
    why: PodWhy | None = None  # of the pod, where it exists
    today: Fit | None = None  # the same request on the GPUs as they are now
    limited: bool = False  # the viewer may not see nodes
    postponed: int = 0  # nodes on which nothing was decided again, because that takes long
    replay: ReplayView | None = None


def decision_page(question: PageQuestion, facts: DecisionFacts) -> PageView:
    """Return the page of a decision."""
    row = facts.row
    name, verdict = f"{row.namespace}/{row.pod}", verdict_cell(row.verdict)
    digest = shown_digest(row.digest)
    return PageView(
        title=joined_text(" ", (verdict.text, name)),
        heading=message("Decision {digest}", digest=digest)
        if digest
        else message("Decision without a digest"),
        word=replace(verdict, text=verdict_heading(row.verdict)),
        blocks=tuple(_blocks(question, facts)),
        document=decision_document(question, facts),
        as_of=question.now,
    )


def decision_document(question: PageQuestion, facts: DecisionFacts) -> dict[str, Any]:
    """Return a decision with all its records as JSON; people are left out as on the page."""
    people = question.viewer.scope.people
    row = msgspec.to_builtins(facts.row)
    records = [public_record(stored, people=people) for stored in facts.life]
    if not people:
        row |= {"user": "", "requester": ""}
    return {
        "apiVersion": API_VERSION,
        "kind": "Decision",
        "decision": row,
        "records": records,
        "replay": None if facts.replay is None else facts.replay.document,
    }


_PERSONAL: Final = frozenset(("user", "groups", "author", "caller"))


def public_record(stored: StoredRecord, *, people: bool) -> dict[str, Any]:
    """Return a record and its sender as JSON; names of *people* are left out where need be."""
    record = msgspec.to_builtins(stored.record)
    if people:
        return {"record": record, "sender": stored.sender}
    kept = {key: value for key, value in record.items() if key not in _PERSONAL}
    return {"record": kept, "sender": None}


def _blocks(question: PageQuestion, facts: DecisionFacts) -> Iterator[PageBlock]:
    decided = admission_of(facts.life)
    yield _who(question, facts)
    yield _asked_given(question, facts.row, decided)
    if decided is not None and decided.findings:
        yield _refusals(decided)
    yield from _why(decided)
    if decided is not None and decided.changes:
        yield changes_table(decided.changes)
    yield from _what_it_takes(question, facts)
    yield life_line(facts.life, question.now, people=question.viewer.scope.people, most=MOST_LIFE)
    if facts.replay is not None:
        yield from facts.replay.blocks


def admission_of(life: Sequence[StoredRecord]) -> AdmissionRecord | None:
    """Return the record of the decision; that of the validating pass says less."""
    records = [stored.record for stored in life]
    admissions = [one for one in records if isinstance(one, AdmissionRecord)]
    telling = [one for one in admissions if one.findings or one.changes or one.costs_per_mille]
    choosing = [one for one in admissions if one.mode]
    return next(reversed(telling or choosing or admissions), None)


def _who(question: PageQuestion, facts: DecisionFacts) -> FactList:
    row, people = facts.row, question.viewer.scope.people
    owner = unknown(message("the pod has no owner, or no record names it"))
    if row.owner is not None:
        owner = plain(f"{row.owner.kind} {row.owner.name}")
    why_hidden = "" if people else PEOPLE_HIDDEN
    node = unknown(message("it is bound to no node, or no record says so"))
    if row.node:
        node = code(row.node, href="" if facts.limited else node_address(row.node))
    return FactList(
        title=message("Who and when"),
        rows=(
            (
                message("Pod"),
                (
                    code(
                        f"{row.namespace}/{row.pod}",
                        note=message("uid {pod_uid}", pod_uid=row.pod_uid) if row.pod_uid else "",
                    ),
                ),
            ),
            (message("Owner"), (owner,)),
            (message("Requested by"), (_requester(facts, people=people),)),
            (
                message("Submitted by"),
                (plain(row.user if people else "", why=why_hidden or NOBODY_KNOWN),),
            ),
            *_times(question, row),
            (message("Node"), (node,)),
            (message("Became"), (state_cell(row),)),
        ),
    )


def _times(
    question: PageQuestion, row: DecisionRow
) -> tuple[tuple[str, tuple[TableCell, ...]], ...]:
    """Return when it was decided, and how often where that is more than once."""
    first = at(row.first, question.now)
    if row.times <= 1:
        return ((message("Decided"), (first,)),)
    last = at(row.last, question.now)
    return (message("First decided"), (first,)), (
        message("Last of {times:,}", times=row.times),
        (last,),
    )


def _requester(facts: DecisionFacts, *, people: bool) -> TableCell:
    row = facts.row
    if not people:
        return unknown(PEOPLE_HIDDEN)
    how = ""
    workloads = [s.record for s in facts.life if isinstance(s.record, WorkloadRecord)]
    if row.requester_source == "workload" and workloads:
        last = workloads[-1]
        name = f"{last.object.kind} {last.object.name}"
        how = (
            message("created {object} at {at}", object=name, at=last.at)
            if last.operation == "CREATE"
            else message("changed {object} at {at}", object=name, at=last.at)
        )
    else:
        how = _HOW.get(row.requester_source, "")
    return plain(row.requester, note=how if row.requester else "", why=NOBODY_KNOWN)


def _asked_given(
    question: PageQuestion, row: DecisionRow, decided: AdmissionRecord | None
) -> FactList:
    asked = [
        plain(
            joined_text(": ", (part.name, asked_text((part,)))),
            note="" if part.stage in ("main", "app") else part.stage,
        )
        for part in row.asked
    ] or [unknown(message("it asks for no GPU, or in a way that could not be read"))]
    given = [
        TableCell(
            text=joined_text(": ", (part.name, device_text(device))),
            note=message("on {device}", device=device.instance or device.gpu),
        )
        for part in row.given
        for device in part.devices
    ] or [unknown(message("nothing was given, or no record says so"))]
    wishes = () if decided is None else tuple(filter(None, decided.constraints))
    mode = code(
        row.mode,
        note=_SOURCES.get(row.mode_source, row.mode_source) if row.mode else "",
        why=message("no mode was chosen"),
    )
    rows = [
        (message("Asked"), tuple(asked)),
        (message("Vocabulary"), (code(row.vocabulary, why=_UNRECORDED),)),
        (message("Given"), tuple(given)),
        (message("Mode"), (mode,)),
    ]
    if wishes:
        rows.insert(1, (message("Only on"), tuple(code(wish) for wish in wishes)))
    if difference := _difference(row):
        rows.append((message("Difference"), (plain(difference),)))
    if started := started_after(row.first, row.started_at):
        rows.append(
            (message("Started"), (plain(started, note=at(row.started_at, question.now).text),))
        )
    return FactList(title=message("Asked and given"), rows=tuple(rows))


def _difference(row: DecisionRow) -> str:
    """Return how much more memory was given than asked for; empty where that is unknown."""
    asked, given = asked_memory(row.asked), given_memory(row.given)
    if asked is None or given is None:
        return ""
    if given == asked:
        return message("as much memory as asked")
    if given > asked:
        return message("{mib:,} MiB more than asked", mib=given - asked)
    return message("{mib:,} MiB less than asked", mib=asked - given)


def _refusals(decided: AdmissionRecord) -> PageTable:
    return PageTable(
        name="refusals",
        caption=message("Why it was refused, and what it would take"),
        columns=(
            TableColumn(key="reason", title=message("Reason")),
            TableColumn(key="text", title=message("What is wrong"), wide=True),
            TableColumn(key="remedy", title=message("What it would take"), wide=True),
            TableColumn(key="field", title=message("Field"), wide=True),
        ),
        rows=tuple(
            (
                reason_cell(finding.reason, why=_UNRECORDED),
                plain(finding.text.rpartition("; ")[0] or finding.text),
                plain(finding.text.rpartition("; ")[2] if "; " in finding.text else ""),
                code(finding.field),
            )
            for finding in decided.findings
        ),
    )


def _why(decided: AdmissionRecord | None) -> Iterator[PageBlock]:
    if decided is None:
        yield PageNote(
            title=message("Why"), text=message("The record of the decision is not stored any more.")
        )
        return
    rows: list[tuple[str, tuple[TableCell, ...]]] = []
    if decided.mode:
        rows.append((message("Rule"), (plain(_rule(decided)),)))
    rows += [(mode, (_cost(decided, mode),)) for mode in decided.costs_per_mille]
    rows += [(message("Warned"), (word(warning, Tone.WARN),)) for warning in decided.warnings]
    settings = f"/settings#{decided.settings}" if decided.settings else ""
    rows += [
        (message("Settings"), (code(decided.settings, href=settings, why=_UNRECORDED),)),
        (message("Snapshot"), (code(decided.snapshot, why=_UNRECORDED),)),
        (message("Version"), (code(decided.version, why=_UNRECORDED),)),
    ]
    title = message("Why") if decided.mode else message("What it was decided with")
    yield FactList(title=title, name="why", rows=tuple(rows))
    if decided.mode_source == "best":
        yield PageNote(
            text=message(
                "No mode was named, so both were compared. The setting prefer, of the cluster "
                "or of a namespace, would decide otherwise."
            )
        )


def _cost(decided: AdmissionRecord, mode: str) -> TableCell:
    """Return what a mode would withhold, in words."""
    share = decided.costs_per_mille[mode] / 10
    text = message("would withhold {share:,.1f} % of a GPU from others", share=share)
    if mode == decided.mode:
        return word(text, Tone.GOOD, note=message("chosen"))
    return plain(text)


def _rule(decided: AdmissionRecord) -> str:
    source = _SOURCES.get(decided.mode_source, decided.mode_source)
    return joined_text(": ", filter(None, (source, decided.rule)))


def _what_it_takes(question: PageQuestion, facts: DecisionFacts) -> Iterator[PageBlock]:
    """Yield what a pod without a GPU would need, and what its request would get today."""
    row = facts.row
    if facts.postponed:
        yield PageNote(
            text=message(
                "What the {postponed:,} nodes of today would say takes some seconds.",
                postponed=facts.postponed,
            ),
            links=(
                (message("Decide on the nodes of today"), question.with_values(**{TODAY: "yes"})),
            ),
        )
    if facts.why is not None:
        yield facts_of(message("The pod now"), why_text.lines(facts.why), name="now")
    link = fit_address(row)
    if row.verdict == AdmissionVerdict.UNTOUCHED and not row.asked:
        return
    links = ((message("Fit with these values"), link),) if link else ()
    replayed = () if facts.replay is None else facts.replay.blocks
    if any(isinstance(block, FactList) and block.name == "today" for block in replayed):
        return  # the replay says it, with all filters
    if facts.today is not None:
        lines = answer_lines(facts.today, limited=facts.limited)
        yield facts_of(message("The same request on the GPUs of today"), lines, name="fit")
        yield PageNote(
            text=message("Nothing is reserved. Filters for models and GPUs are left out here.")
            if _has_filters(facts)
            else message("Nothing is reserved."),
            links=links,
        )
    elif links:
        yield PageNote(text=message("Whether such a pod would fit now:"), links=links)


def _has_filters(facts: DecisionFacts) -> bool:
    decided = admission_of(facts.life)
    return decided is not None and any(decided.constraints)


def fit_address(row: DecisionRow) -> str:
    """Return the address of Fit with the values of a request; empty where it has no such form."""
    if len(row.asked) != 1 or row.asked[0].memory_percent is not None:
        return ""
    part = row.asked[0]
    return address(
        "/fit",
        {
            "memory": "" if part.memory_mib is None else str(part.memory_mib),
            "cores": str(part.cores_percent or ""),
            "count": str(part.count),
            "ns": row.namespace,
        },
    )
