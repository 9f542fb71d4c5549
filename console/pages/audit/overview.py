"""The first page: is anything wrong, does anybody wait, what is left."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from allocator.report.terminal_lines import Tone
from console.languages.messages import PageMessage, message
from console.pages.audit.decisions import decision_table
from console.pages.audit.waiting import waiting_counts
from console.pages.fleet.capacity import FleetSummary, capacity_table
from console.pages.parts.blocks import (
    FactList,
    PageBlock,
    PageNote,
    PageQuestion,
    PageView,
)
from console.pages.parts.cell import TableCell, ago, code, number, plain, word
from console.pages.parts.links import address, node_address
from console.records.rows import DecisionRow, OverviewRow, RowPage

HOURS: Final = 24  # that verdicts are counted of
MOST_BROKEN: Final = 20  # GPUs that are named
_VERDICTS: Final = {
    "rewritten": message("Rewritten"),
    "refused": message("Refused"),
    "error": message("Error"),
    "untouched": message("Untouched"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewFacts:
    """What the first page is made from; ``fleet`` is ``None`` for who may not see nodes."""

    row: OverviewRow
    refused: RowPage[DecisionRow]  # the latest
    fleet: FleetSummary | None
    is_read: bool  # nodes have been listed


def overview_page(
    question: PageQuestion, facts: OverviewFacts, usage: Sequence[PageBlock]
) -> PageView:
    """Return the first page; *usage* is what Prometheus tells."""
    return PageView(
        title=message("Overview"),
        heading=message("Overview"),
        blocks=tuple(_blocks(question, facts, usage)),
        as_of=question.now,
    )


def _blocks(
    question: PageQuestion, facts: OverviewFacts, usage: Sequence[PageBlock]
) -> Iterator[PageBlock]:
    yield _attention(facts)
    yield _figures(question, facts.row)
    if facts.row.refusals:
        yield _refusals(facts.row)
    if facts.row.waiting:
        yield waiting_counts(question, facts.row.waiting)
    if not facts.is_read:
        yield PageNote(text=message("Nodes and pods have not been read yet."), tone=Tone.WARN)
    elif facts.fleet is not None:
        yield capacity_table(facts.fleet)
    yield from usage
    if facts.refused.rows:
        caption = message("The latest refusals of the last {hours} hours", hours=HOURS)
        yield decision_table(question, facts.refused, caption=caption)


def _attention(facts: OverviewFacts) -> FactList:
    """Return what is wrong."""
    row, rows = facts.row, list[tuple[str, tuple[TableCell, ...]]]()
    waiting = sum(count.pods for count in row.waiting)
    if waiting:
        text = word(_waiting_text(waiting), Tone.WARN)
        rows.append(
            (message("Waiting"), (text, plain(message("who, and for what"), href="/waiting")))
        )
    if row.violations:
        text = word(_violations_text(row.violations), Tone.BAD)
        rows.append(
            (
                message("Isolation"),
                (text, plain(message("records"), href="/records?kind=violation")),
            )
        )
    for gpu in row.unhealthy[:MOST_BROKEN]:
        node = gpu.partition(" ")[0]
        rows.append((message("Unhealthy"), (code(gpu, href=node_address(node)),)))
    if facts.fleet is not None:
        rows += _fleet_rows(row, facts.fleet)
    if not rows:
        rows.append(
            (message("Now"), (word(message("nothing is wrong, and nobody waits"), Tone.GOOD),))
        )
    return FactList(title=message("Attention"), rows=tuple(rows))


def _waiting_text(pods: int) -> PageMessage:
    if pods == 1:
        return message("1 pod without a GPU")
    return message("{pods} pods without a GPU", pods=pods)


def _violations_text(violations: int) -> PageMessage:
    if violations == 1:
        return message("1 violation of a limit")
    return message("{violations} violations of a limit", violations=violations)


def _fleet_rows(
    row: OverviewRow, fleet: FleetSummary
) -> Iterator[tuple[str, tuple[TableCell, ...]]]:
    """Yield GPUs that are broken without a record of it, and nodes that take no pods."""
    broken = (
        code(f"{name} GPU {index}", href=node_address(name), note=reason)
        for name, node in fleet.nodes.items()
        for uuid, index, reason in node.broken
        if f"{name} {uuid}" not in row.unhealthy
    )
    for cell in islice(broken, MOST_BROKEN):
        yield message("Unhealthy"), (cell,)
    closed = (
        code(name, href=node_address(name), note=node.closed_reason)
        for name, node in fleet.nodes.items()
        if node.closed_reason
    )
    for cell in islice(closed, MOST_BROKEN):
        yield message("Out of service"), (cell,)


def _refusals(row: OverviewRow) -> FactList:
    rows = []
    for reason, count in row.refusals.items():
        href = address("/decisions", {"verdict": "refused", "reason": reason})
        rows.append((reason, (number(count, href=href),)))
    return FactList(title=message("Refused, by reason"), rows=tuple(rows), short=True)


def _figures(question: PageQuestion, row: OverviewRow) -> FactList:
    verdicts = tuple(
        number(row.verdicts.get(verdict, 0), href=address("/decisions", {"verdict": verdict}))
        for verdict in _VERDICTS
    )
    rows: list[tuple[str, tuple[TableCell, ...]]] = [
        (title, (cell,)) for title, cell in zip(_VERDICTS.values(), verdicts, strict=True)
    ]
    rows.append((message("Running now"), (number(row.running),)))
    for component, last in row.last_record.items():
        rows.append(
            (message("Last of {component}", component=component), (ago(last, question.now),))
        )
    return FactList(
        title=message("The last {hours} hours", hours=HOURS), rows=tuple(rows), short=True
    )
