"""The page of namespaces: what each asked for, was given, uses and leaves idle, by person."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from console.languages.messages import message
from console.pages.audit.search import PERIODS
from console.pages.fleet.usage import IDLE_HOURS, IdleSlice
from console.pages.parts.blocks import (
    FormField,
    PageBlock,
    PageForm,
    PageNote,
    PageQuestion,
    PageTable,
    PageView,
    TableColumn,
)
from console.pages.parts.cell import TableCell, code, hours, mib, number, percent, plain
from console.pages.parts.durations import duration
from console.pages.parts.links import address, decision_address
from console.pages.parts.words import NOBODY_KNOWN, PEOPLE_HIDDEN
from console.records.query import PAGE, BadCursorError
from console.records.rows import DecisionRow, UsageRow

COLUMNS: Final = (
    TableColumn(key="namespace", title=message("Namespace")),
    TableColumn(key="requester", title=message("Requested by")),
    TableColumn(key="admitted", title=message("Admitted"), numeric=True),
    TableColumn(key="refused", title=message("Refused"), numeric=True),
    TableColumn(key="running", title=message("Running now"), numeric=True),
    TableColumn(key="promised_mib", title=message("Promised now"), numeric=True),
    TableColumn(key="promised_cores_percent", title=message("Compute now"), numeric=True),
    TableColumn(key="gib_hours", title=message("GiB hours"), numeric=True),
    TableColumn(key="core_hours", title=message("Compute hours"), numeric=True),
)
TOTALS: Final = (
    TableColumn(key="namespace", title=message("Namespace")),
    TableColumn(key="admitted", title=message("Admitted"), numeric=True),
    TableColumn(key="refused", title=message("Refused"), numeric=True),
    TableColumn(key="promised_mib", title=message("Promised now"), numeric=True),
    TableColumn(key="used_mib", title=message("Used now"), numeric=True),
    TableColumn(key="used_percent", title=message("Used of promised"), numeric=True),
    TableColumn(key="idle", title=message("Idle containers"), numeric=True),
    TableColumn(key="gib_hours", title=message("GiB hours"), numeric=True),
)
IDLE: Final = (
    TableColumn(key="pod", title=message("Pod")),
    TableColumn(key="container", title=message("Container")),
    TableColumn(key="idle", title=message("Without a kernel for")),
    TableColumn(key="owner", title=message("Owner")),
    TableColumn(key="requester", title=message("Requested by")),
)
_EMPTY: Final = message(
    "Nobody asked for a GPU in this period. Pods are counted once their namespace is labelled:"
)
_COMMAND: Final = "kubectl label namespace team-a vgpu-admission.io/inject=enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceUsage:
    """What Prometheus tells: MiB in use by namespace, and idle containers with their decision."""

    used: Mapping[str, int]
    idle: Sequence[tuple[IdleSlice, DecisionRow | None]]


def namespaces_page(
    question: PageQuestion,
    period: str,
    rows: Sequence[UsageRow],
    *,
    usage: NamespaceUsage | None,
    missing: str = "",
) -> PageView:
    """Return the page; *missing* says why there is no *usage*."""
    return PageView(
        title=message("Namespaces"),
        heading=message("Namespaces"),
        blocks=tuple(_blocks(question, period, rows, usage=usage, missing=missing)),
        as_of=question.now,
    )


def _blocks(
    question: PageQuestion,
    period: str,
    rows: Sequence[UsageRow],
    *,
    usage: NamespaceUsage | None,
    missing: str,
) -> Iterator[PageBlock]:
    yield _form(period)
    if missing:
        yield PageNote(text=missing)
    yield _totals(rows, usage)
    yield _people(question, rows)
    if usage is not None:
        yield _idle(question, usage)


def _people(question: PageQuestion, rows: Sequence[UsageRow]) -> PageTable:
    """Return a part of *rows*, which are in order: thousands of people may have asked."""
    after = _cursor(question.value("after"))
    found = [row for row in rows if after is None or (row.namespace, row.requester) > after]
    shown = found[:PAGE]
    more = ""
    if len(found) > PAGE:
        more = question.with_values(after=f"{shown[-1].namespace}/{shown[-1].requester}")
    return PageTable(
        name="people",
        caption=message("By namespace and person"),
        columns=COLUMNS,
        rows=tuple(_cells(question, row) for row in shown),
        empty=_EMPTY,
        command=_COMMAND,
        more=more,
    )


def _cursor(text: str) -> tuple[str, str] | None:
    """Return the namespace and the person after whom a page begins.

    Raises :class:`BadCursorError`.
    """
    namespace, slash, person = text.partition("/")
    if text and not slash:
        raise BadCursorError(text)
    return (namespace, person) if text else None


def _form(period: str) -> PageForm:
    choices = tuple((name, text) for name, (text, _) in PERIODS.items() if name != "all")
    return PageForm(
        name="search",
        title=message("Which period"),
        action="/namespaces",
        fields=(FormField(name="since", label=message("Period"), value=period, choices=choices),),
        submit=message("Show"),
    )


def _totals(rows: Sequence[UsageRow], usage: NamespaceUsage | None) -> PageTable:
    names = sorted({row.namespace for row in rows})
    return PageTable(
        name="namespaces",
        caption=message("By namespace"),
        columns=TOTALS,
        rows=tuple(_total([row for row in rows if row.namespace == name], usage) for name in names),
        empty=_EMPTY,
        command=_COMMAND,
    )


def _total(rows: Sequence[UsageRow], usage: NamespaceUsage | None) -> tuple[TableCell, ...]:
    name = rows[0].namespace
    promised = sum(row.promised_mib for row in rows)
    used = None if usage is None else usage.used.get(name)
    idle = None
    if usage is not None:
        idle = sum(one.namespace == name for one, _ in usage.idle)
    unmeasured = message("not measured")
    return (
        code(name, href=address("/decisions", {"ns": name, "since": "7d"})),
        number(sum(row.admitted for row in rows)),
        number(sum(row.refused for row in rows)),
        mib(promised),
        mib(used, why=unmeasured),
        percent(used or 0, promised if used is not None else 0),
        number(idle, why=unmeasured),
        hours(sum(row.mib_hours for row in rows) / 1024),
    )


def _cells(question: PageQuestion, row: UsageRow) -> tuple[TableCell, ...]:
    people = question.viewer.scope.people
    by = address("/decisions", {"ns": row.namespace, "by": row.requester, "since": "7d"})
    return (
        code(row.namespace),
        plain(
            row.requester if people else "",
            href=by,
            why=NOBODY_KNOWN if people else PEOPLE_HIDDEN,
        ),
        number(row.admitted),
        number(row.refused),
        number(row.running),
        mib(row.promised_mib),
        TableCell(text=f"{row.promised_cores_percent:,} %", value=row.promised_cores_percent),
        hours(row.mib_hours / 1024),
        hours(row.core_hours),
    )


def _idle(question: PageQuestion, usage: NamespaceUsage) -> PageTable:
    return PageTable(
        name="idle",
        caption=message("Slices without a kernel for {idle_hours} hours", idle_hours=IDLE_HOURS),
        columns=IDLE,
        rows=tuple(_idle_cells(question, idle, row) for idle, row in usage.idle),
        empty=message(
            "Every slice that is measured was used in the last {idle_hours} hours.",
            idle_hours=IDLE_HOURS,
        ),
    )


def _idle_cells(
    question: PageQuestion, idle: IdleSlice, row: DecisionRow | None
) -> tuple[TableCell, ...]:
    people = question.viewer.scope.people
    owner = "" if row is None or row.owner is None else f"{row.owner.kind} {row.owner.name}"
    requester = row.requester if row is not None and people else ""
    href = "" if row is None else decision_address(row.digest, row.pod_uid)
    length = duration(timedelta(seconds=min(max(0.0, idle.idle_seconds), 1e9)))
    return (
        code(f"{idle.namespace}/{idle.pod}", href=href),
        code(idle.container),
        TableCell(text=length, value=int(idle.idle_seconds)),
        plain(owner, why=message("no record names one")),
        plain(requester, why=NOBODY_KNOWN if people else PEOPLE_HIDDEN),
    )
