"""The page of records: everything that programs wrote, one line each."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, get_args

from allocator.audit.record import AnyRecord
from allocator.model.untrusted import quote
from console.get.listing import API_VERSION
from console.pages.audit.decision import public_record
from console.pages.parts.blocks import (
    FormField,
    PageForm,
    PageNote,
    PageQuestion,
    PageTable,
    PageView,
    TableColumn,
)
from console.pages.parts.cell import MARKS, TableCell, ago, code, plain, stamp, time_of
from console.pages.parts.life import saying
from console.pages.parts.links import decision_address
from console.records.query import RecordFilter
from console.records.rows import RowPage, StoredRecord

KINDS: Final = tuple(
    str(kind.__struct_config__.tag) for kind in get_args(AnyRecord)
)  # in the order of their definition
COLUMNS: Final = (
    TableColumn(key="pod", title="Pod"),
    TableColumn(key="at", title="When"),
    TableColumn(key="kind", title="Kind"),
    TableColumn(key="what", title="What"),
    TableColumn(key="text", title="In words", wide=True),
    TableColumn(key="node", title="Node"),
    TableColumn(key="component", title="Written by"),
    TableColumn(key="sender", title="Sender", wide=True),
    TableColumn(key="id", title="Record"),
)
_EMPTY: Final = (
    "No record matches. Webhooks and agents send a record of each admission, bind and start; this"
    " creates the first:"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSearch:
    """Which records are asked for, and what is wrong with the question."""

    filter: RecordFilter
    problems: tuple[str, ...] = ()


def record_search(values: Mapping[str, str]) -> RecordSearch:
    """Read the values of an address."""
    wanted = {key: value.strip() for key, value in values.items()}
    problems: list[str] = []
    times: dict[str, str] = {}
    for key in ("since", "until"):
        moment: datetime | None = time_of(wanted.get(key, ""))
        times[key] = "" if moment is None else stamp(moment)
        if wanted.get(key) and moment is None:
            text = quote(wanted[key])
            problems.append(f"{key}: {text} is no time; accepted: such as 2026-11-21T12:00:00Z")
    kind = wanted.get("kind", "")
    if kind and kind not in KINDS:
        problems.append(f"kind: {quote(kind)} is not known; accepted: {', '.join(KINDS)}")
    return RecordSearch(
        filter=RecordFilter(
            kinds=frozenset([kind] if kind in KINDS else []),
            namespace=wanted.get("ns", ""),
            pod=wanted.get("pod", ""),
            pod_uid=wanted.get("uid", ""),
            node=wanted.get("node", ""),
            digest=wanted.get("digest", ""),
            since=times["since"],
            until=times["until"],
        ),
        problems=tuple(problems),
    )


def records_page(
    question: PageQuestion, search: RecordSearch, page: RowPage[StoredRecord]
) -> PageView:
    """Return the page of records."""
    people = question.viewer.scope.people
    table = PageTable(
        name="records",
        caption="Records, the latest first",
        columns=COLUMNS,
        rows=tuple(_cells(question, stored) for stored in page.rows),
        empty=_EMPTY,
        command="kubectl apply -f manifests/example/pod.yaml",
        more=question.with_values(after=page.after) if page.after else "",
    )
    notes = tuple(PageNote(title="Not understood", text=text) for text in search.problems)
    return PageView(
        title="Records",
        heading="Records",
        blocks=(_form(question), *notes, table),
        document={
            "apiVersion": API_VERSION,
            "kind": "RecordList",
            "items": [public_record(stored, people=people) for stored in page.rows],
            "next": f"{table.more}&format=json" if table.more else None,
        },
        as_of=question.now,
    )


def _form(question: PageQuestion) -> PageForm:
    def field(name: str, label: str, hint: str = "") -> FormField:
        return FormField(name=name, label=label, value=question.value(name), hint=hint)

    kinds = (("", "any"), *((kind, kind) for kind in KINDS))
    return PageForm(
        name="search",
        title="Search",
        action="/records",
        fields=(
            FormField(name="kind", label="Kind", value=question.value("kind"), choices=kinds),
            field("ns", "Namespace"),
            field("pod", "Pod"),
            field("uid", "Uid of the pod"),
            field("node", "Node"),
            field("digest", "Decision"),
            field("since", "Since", "2026-11-21T12:00:00Z"),
            field("until", "Before", "2026-11-22T12:00:00Z"),
        ),
        submit="Search",
    )


def _cells(question: PageQuestion, stored: StoredRecord) -> tuple[TableCell, ...]:
    record, people = stored.record, question.viewer.scope.people
    what, text, tone = saying(record, people=people)
    pod = f"{record.namespace}/{record.pod}" if record.pod else record.namespace
    return (
        code(pod, href=decision_address(record.digest, record.pod_uid), why="it is about no pod"),
        ago(record.at, question.now),
        code(_kind(record)),
        TableCell(text=what, tone=tone, mark=MARKS.get(tone, "")),
        plain(text, why="there is nothing to add"),
        code(record.node, why="it is about no node"),
        plain(record.component, note=record.instance),
        plain(stored.sender if people else "", why="not known, or not yours to see"),
        code(record.id),
    )


def _kind(record: AnyRecord) -> str:
    return str(record.__struct_config__.tag)
