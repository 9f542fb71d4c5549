"""The page of decisions: what admission did, with facets and a search box."""

from collections.abc import Iterator, Mapping
from typing import Final

from console.languages.messages import PageMessage, message
from console.pages.audit.search import FIELDS, PERIODS, DecisionSearch
from console.pages.parts.blocks import (
    FacetList,
    FormField,
    PageBlock,
    PageFacet,
    PageForm,
    PageNote,
    PageQuestion,
    PageTable,
    PageView,
    TableColumn,
)
from console.pages.parts.cell import TableCell, ago, code, number, plain
from console.pages.parts.links import address, decision_address
from console.pages.parts.words import (
    asked_text,
    facet_text,
    given_text,
    reason_cell,
    requester_cell,
    state_cell,
    verdict_cell,
)
from console.records.rows import DecisionRow, RowPage

COLUMNS: Final = (
    TableColumn(key="pod", title=message("Pod")),
    TableColumn(key="decided", title=message("Decided")),
    TableColumn(key="times", title=message("Times"), numeric=True),
    TableColumn(key="verdict", title=message("Verdict")),
    TableColumn(key="requester", title=message("Requested by")),
    TableColumn(key="asked", title=message("Asked"), wide=True),
    TableColumn(key="given", title=message("Given"), wide=True),
    TableColumn(key="mode", title=message("Mode")),
    TableColumn(key="reason", title=message("Reason")),
    TableColumn(key="outcome", title=message("Became")),
    TableColumn(key="node", title=message("Node")),
    TableColumn(key="digest", title=message("Decision")),
)
_FACETS: Final[Mapping[str, tuple[str, PageMessage]]] = {
    "verdict": ("verdict", message("Verdict")),
    "reason": ("reason", message("Reason")),
    "mode": ("mode", message("Mode")),
    "namespace": ("ns", message("Namespace")),
    "requester": ("by", message("Requested by")),
}
_KEY: Final = "~"  # begins what a store uses where a request has no digest
CAPTION: Final = message("Decisions, the latest first")
_EMPTY: Final = message(
    "No decision matches. A decision is made when a pod is created in a namespace "
    "that the webhook serves; label one, and create a pod that asks for a GPU."
)
_COMMAND: Final = "kubectl label namespace team-a vgpu-admission.io/inject=enabled"


def decisions_page(
    question: PageQuestion,
    search: DecisionSearch,
    page: RowPage[DecisionRow],
    *,
    facets: Mapping[str, Mapping[str, int]],
) -> PageView:
    """Return the page of decisions."""
    return PageView(
        title=message("Decisions"),
        heading=message("Decisions"),
        blocks=tuple(_blocks(question, search, page, facets=facets)),
        as_of=question.now,
    )


def _blocks(
    question: PageQuestion,
    search: DecisionSearch,
    page: RowPage[DecisionRow],
    *,
    facets: Mapping[str, Mapping[str, int]],
) -> Iterator[PageBlock]:
    yield _form(search)
    for problem in search.problems:
        yield PageNote(text=problem, title=message("Not understood"))
    yield _facets(search, facets, people=question.viewer.scope.people)
    yield decision_table(question, page, more=_address(search, after=page.after))


def decision_table(
    question: PageQuestion,
    page: RowPage[DecisionRow],
    *,
    more: str = "",
    caption: PageMessage = CAPTION,
) -> PageTable:
    """Return decisions as a table; *more* is the address of the next page, if there is one."""
    return PageTable(
        name="decisions",
        caption=caption,
        columns=COLUMNS,
        rows=tuple(decision_cells(question, row) for row in page.rows),
        empty=_EMPTY,
        command=_COMMAND,
        more=more if page.after else "",
    )


def decision_cells(question: PageQuestion, row: DecisionRow) -> tuple[TableCell, ...]:
    """Return one decision as the cells of a table."""
    owner = "" if row.owner is None else f"{row.owner.kind} {row.owner.name}"
    return (
        code(
            f"{row.namespace}/{row.pod}",
            href=decision_address(row.digest, row.pod_uid),
            note=owner,
        ),
        ago(row.last, question.now),
        number(row.times),
        verdict_cell(row.verdict),
        requester_cell(row, people=question.viewer.scope.people),
        plain(asked_text(row.asked), why=message("it asks for no GPU")),
        plain(given_text(row.given), why=message("nothing was given, or no record says so")),
        code(row.mode, why=message("no mode was chosen")),
        reason_cell(row.reason, why=message("it was not refused")),
        state_cell(row),
        code(row.node, why=message("it is bound to no node")),
        code(shown_digest(row.digest), why=message("the request has no digest")),
    )


def shown_digest(digest: str) -> str:
    """Return the digest of a request; the key of one without a digest is no use to people."""
    return "" if digest.startswith(_KEY) else digest


def _form(search: DecisionSearch) -> PageForm:
    known = search.period in PERIODS
    periods: list[tuple[str, str]] = [(name, text) for name, (text, _) in PERIODS.items()]
    if not known:
        periods.append((search.period, message("since {time}", time=search.period)))
    names = " ".join(f"{name}:" for name in FIELDS)
    return PageForm(
        name="search",
        title=message("Search"),
        action="/decisions",
        submit=message("Search"),
        fields=(
            FormField(
                name="q",
                label=message("Find"),
                value=search.text,
                hint=message("{names} or a name", names=names),
                wide=True,
            ),
            FormField(
                name="since", label=message("Period"), value=search.period, choices=tuple(periods)
            ),
        ),
    )


def _facets(
    search: DecisionSearch, facets: Mapping[str, Mapping[str, int]], *, people: bool
) -> FacetList:
    """Return the facets; names of people are left out where they may not be seen."""
    shown = {field: facets.get(field, {}) for field in _FACETS if people or field != "requester"}
    return FacetList(
        facets=tuple(_facet(search, field, counts) for field, counts in shown.items() if counts),
        chosen=tuple(
            (f"{key}:{value}", _address(search, **{key: ""}))
            for key, value in search.values.items()
        ),
    )


def _facet(search: DecisionSearch, field: str, counts: Mapping[str, int]) -> PageFacet:
    key, title = _FACETS[field]
    return PageFacet(
        title=title,
        choices=tuple(
            (
                facet_text(field, value),
                count,
                _address(search, **{key: value}),
                search.values.get(key) == value,
            )
            for value, count in counts.items()
            if value
        ),
    )


def _address(search: DecisionSearch, **changes: str) -> str:
    """Return the address of this search with other values."""
    values = {**search.values, "since": search.period, "until": search.filter.until}
    return address("/decisions", {**values, **changes})
