"""The page of records: everything that programs wrote, one line each."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, get_args

from allocator.audit.record import AnyRecord
from allocator.model.untrusted import quote
from console.get.listing import API_VERSION
from console.languages.messages import PageMessage, message
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
    TableColumn(key="pod", title=message("Pod")),
    TableColumn(key="at", title=message("When")),
    TableColumn(key="kind", title=message("Kind")),
    TableColumn(key="what", title=message("What")),
    TableColumn(key="text", title=message("In words"), wide=True),
    TableColumn(key="node", title=message("Node")),
    TableColumn(key="component", title=message("Written by")),
    TableColumn(key="sender", title=message("Sender"), wide=True),
    TableColumn(key="id", title=message("Record")),
)
_EMPTY: Final = message(
    "No record matches. Webhooks and agents send a record of each admission, bind "
    "and start; this creates the first:"
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
            problems.append(
                message(
                    "{key}: {value} is no time; accepted: such as {example}",
                    key=key,
                    value=text,
                    example="2026-11-21T12:00:00Z",
                )
            )
    kind = wanted.get("kind", "")
    if kind and kind not in KINDS:
        problems.append(
            message(
                "kind: {value} is not known; accepted: {kinds}",
                value=quote(kind),
                kinds=", ".join(KINDS),
            )
        )
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
        caption=message("Records, the latest first"),
        columns=COLUMNS,
        rows=tuple(_cells(question, stored) for stored in page.rows),
        empty=_EMPTY,
        command="kubectl apply -f manifests/example/pod.yaml",
        more=question.with_values(after=page.after) if page.after else "",
    )
    notes = tuple(PageNote(title=message("Not understood"), text=text) for text in search.problems)
    return PageView(
        title=message("Records"),
        heading=message("Records"),
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
    def field(name: str, label: PageMessage, hint: str = "") -> FormField:
        return FormField(name=name, label=label, value=question.value(name), hint=hint)

    kinds = (("", message("any")), *((kind, kind) for kind in KINDS))
    return PageForm(
        name="search",
        title=message("Search"),
        action="/records",
        fields=(
            FormField(
                name="kind", label=message("Kind"), value=question.value("kind"), choices=kinds
            ),
            field("ns", message("Namespace")),
            field("pod", message("Pod")),
            field("uid", message("Uid of the pod")),
            field("node", message("Node")),
            field("digest", message("Decision")),
            field("since", message("Since"), "2026-11-21T12:00:00Z"),
            field("until", message("Before"), "2026-11-22T12:00:00Z"),
        ),
        submit=message("Search"),
    )


def _cells(question: PageQuestion, stored: StoredRecord) -> tuple[TableCell, ...]:
    record, people = stored.record, question.viewer.scope.people
    what, text, tone = saying(record, people=people)
    pod = f"{record.namespace}/{record.pod}" if record.pod else record.namespace
    return (
        code(
            pod,
            href=decision_address(record.digest, record.pod_uid),
            why=message("it is about no pod"),
        ),
        ago(record.at, question.now),
        code(_kind(record)),
        TableCell(text=what, tone=tone, mark=MARKS.get(tone, "")),
        plain(text, why=message("there is nothing to add")),
        code(record.node, why=message("it is about no node")),
        plain(record.component, note=record.instance),
        plain(stored.sender if people else "", why=message("not known, or not yours to see")),
        code(record.id),
    )


def _kind(record: AnyRecord) -> str:
    return str(record.__struct_config__.tag)
