"""The page of waiting pods: why they wait, since when, and what would help."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from allocator.audit.record import WaitingRecord
from console.languages.messages import message
from console.pages.audit.decision import fit_address
from console.pages.parts.blocks import (
    PageBlock,
    PageQuestion,
    PageTable,
    PageView,
    TableColumn,
)
from console.pages.parts.cell import TableCell, ago, code, number, plain
from console.pages.parts.links import decision_address
from console.pages.parts.words import asked_text, reason_cell, requester_cell
from console.records.rows import DecisionRow, RowPage, StoredRecord, WaitingCount

COUNTS: Final = (
    TableColumn(key="reason", title=message("Reason")),
    TableColumn(key="pods", title=message("Pods"), numeric=True),
    TableColumn(key="oldest", title=message("The oldest waits since")),
)
PODS: Final = (
    TableColumn(key="pod", title=message("Pod")),
    TableColumn(key="since", title=message("Waits since")),
    TableColumn(key="reason", title=message("Reason")),
    TableColumn(key="text", title=message("What is missing"), wide=True),
    TableColumn(key="asked", title=message("Asked"), wide=True),
    TableColumn(key="requester", title=message("Requested by")),
    TableColumn(key="fit", title=message("What would help")),
)
_UNNAMED: Final = message("no reason is recorded")
_EMPTY: Final = message(
    "No pod waits for a GPU. One that no node takes is listed here within a "
    "minute; to see it from a terminal:"
)


def waiting_page(
    question: PageQuestion,
    counts: Sequence[WaitingCount],
    page: RowPage[DecisionRow],
    *,
    records: Sequence[StoredRecord],
) -> PageView:
    """Return the page; *records* are the latest about waiting pods."""
    texts = waiting_texts(records)
    return PageView(
        title=message("Waiting"),
        heading=message("Waiting pods"),
        blocks=tuple(_blocks(question, counts, page, texts=texts)),
        as_of=question.now,
    )


def waiting_texts(records: Sequence[StoredRecord]) -> dict[str, str]:
    """Return what each pod lacks by its uid, of *records* that are the latest first."""
    texts: dict[str, str] = {}
    for stored in records:
        record = stored.record
        if isinstance(record, WaitingRecord) and record.state != "over":
            texts.setdefault(record.pod_uid, record.text)
    return texts


def _blocks(
    question: PageQuestion,
    counts: Sequence[WaitingCount],
    page: RowPage[DecisionRow],
    *,
    texts: Mapping[str, str],
) -> Iterator[PageBlock]:
    if counts:
        yield waiting_counts(question, counts)
    yield PageTable(
        name="waiting",
        caption=message("Pods that wait, the latest decision first"),
        columns=PODS,
        rows=tuple(_cells(question, row, texts) for row in page.rows),
        empty=_EMPTY,
        command="kubectl vgpu get pods -A",
        more=question.with_values(after=page.after) if page.after else "",
    )


def waiting_counts(question: PageQuestion, counts: Sequence[WaitingCount]) -> PageTable:
    """Return how many pods wait for what."""
    return PageTable(
        name="reasons",
        caption=message("Why pods wait"),
        columns=COUNTS,
        rows=tuple(
            (
                reason_cell(count.reason, why=_UNNAMED),
                number(count.pods),
                ago(count.oldest, question.now, why=message("no record says since when")),
            )
            for count in counts
        ),
        empty=message("No pod waits."),
    )


def _cells(
    question: PageQuestion, row: DecisionRow, texts: Mapping[str, str]
) -> tuple[TableCell, ...]:
    fit = fit_address(row)
    return (
        code(f"{row.namespace}/{row.pod}", href=decision_address(row.digest, row.pod_uid)),
        ago(row.waiting_since, question.now, why=message("no record says since when")),
        reason_cell(row.waiting_reason, why=_UNNAMED),
        plain(texts.get(row.pod_uid, ""), why=message("no record says more")),
        plain(asked_text(row.asked), why=message("it asks for no GPU")),
        requester_cell(row, people=question.viewer.scope.people),
        plain(
            message("Fit with its values") if fit else "",
            href=fit,
            why=message("see the page of the pod"),
        ),
    )
