"""The first page: is anything wrong, does anybody wait, what is left."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from allocator.report.terminal_lines import Tone, counted
from console.cluster.snapshot import ClusterView
from console.pages.audit.decisions import decision_table
from console.pages.audit.waiting import waiting_counts
from console.pages.fleet.capacity import capacity_table
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
_VERDICTS: Final = ("rewritten", "refused", "error", "untouched")


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewFacts:
    """What the first page is made from; ``site`` is ``None`` where it cannot be read yet."""

    row: OverviewRow
    refused: RowPage[DecisionRow]  # the latest
    site: ClusterView | None


def overview_page(
    question: PageQuestion, facts: OverviewFacts, usage: Sequence[PageBlock]
) -> PageView:
    """Return the first page; *usage* is what Prometheus tells."""
    return PageView(
        title="Overview",
        heading="Overview",
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
    site = facts.site
    if site is None:
        yield PageNote(text="Nodes and pods have not been read yet.", tone=Tone.WARN)
    elif not site.blind:
        yield capacity_table(site)
    yield from usage
    if facts.refused.rows:
        caption = f"The latest refusals of the last {HOURS} hours"
        yield decision_table(question, facts.refused, caption=caption)


def _attention(facts: OverviewFacts) -> FactList:
    """Return what is wrong."""
    row, rows = facts.row, list[tuple[str, tuple[TableCell, ...]]]()
    waiting = sum(count.pods for count in row.waiting)
    if waiting:
        text = word(f"{counted(waiting, 'pod')} without a GPU", Tone.WARN)
        rows.append(("Waiting", (text, plain("who, and for what", href="/waiting"))))
    if row.violations:
        text = word(f"{counted(row.violations, 'violation')} of a limit", Tone.BAD)
        rows.append(("Isolation", (text, plain("records", href="/records?kind=violation"))))
    for gpu in row.unhealthy[:MOST_BROKEN]:
        node = gpu.partition(" ")[0]
        rows.append(("Unhealthy", (code(gpu, href=node_address(node)),)))
    site = facts.site
    if site is not None and not site.blind:
        broken = [
            code(f"{name} GPU {gpu.index}", href=node_address(name), note=reasons.get(gpu.uuid, ""))
            for name, ledger in site.ledgers.items()
            for reasons in [site.account(name).reasons]
            for gpu in ledger.node.gpus
            if not gpu.healthy and f"{name} {gpu.uuid}" not in row.unhealthy
        ]
        rows += [("Unhealthy", (cell,)) for cell in broken[:MOST_BROKEN]]
        closed = [name for name in site.ledgers if site.closed_reason(name)]
        cells = tuple(
            code(name, href=node_address(name), note=site.closed_reason(name))
            for name in closed[:10]
        )
        rows += [("Out of service", cells)] if cells else []
    if not rows:
        rows.append(("Now", (word("nothing is wrong, and nobody waits", Tone.GOOD),)))
    return FactList(title="Attention", rows=tuple(rows))


def _refusals(row: OverviewRow) -> FactList:
    rows = []
    for reason, count in row.refusals.items():
        href = address("/decisions", {"verdict": "refused", "reason": reason})
        rows.append((reason, (number(count, href=href),)))
    return FactList(title="Refused, by reason", rows=tuple(rows), short=True)


def _figures(question: PageQuestion, row: OverviewRow) -> FactList:
    verdicts = tuple(
        number(row.verdicts.get(verdict, 0), href=address("/decisions", {"verdict": verdict}))
        for verdict in _VERDICTS
    )
    rows = [
        (verdict.capitalize(), (cell,)) for verdict, cell in zip(_VERDICTS, verdicts, strict=True)
    ]
    rows.append(("Running now", (number(row.running),)))
    for component, last in row.last_record.items():
        rows.append((f"Last of {component}", (ago(last, question.now),)))
    return FactList(title=f"The last {HOURS} hours", rows=tuple(rows), short=True)
