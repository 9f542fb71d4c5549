"""The page of settings: each version that came into force, and what it changed."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import Final

from allocator.audit.record import SettingsRecord
from allocator.report.terminal_lines import Tone
from console.languages.messages import message
from console.pages.parts.blocks import (
    PageBlock,
    PageQuestion,
    PageTable,
    PageView,
    TableColumn,
    TextBlock,
)
from console.pages.parts.cell import TableCell, ago, code, plain, word
from console.records.rows import RowPage, StoredRecord

MOST_LINES: Final = 400  # of one comparison
MOST_DIFFS: Final = 20  # on one page
COLUMNS: Final = (
    TableColumn(key="digest", title=message("Digest")),
    TableColumn(key="at", title=message("In force since")),
    TableColumn(key="configmap", title=message("ConfigMap")),
    TableColumn(key="accepted", title=message("Accepted")),
    TableColumn(key="author", title=message("Changed by")),
    TableColumn(key="problems", title=message("Problems")),
)
CONFIGMAP: Final = "vgpu-admission-settings"
_EMPTY: Final = message(
    "No settings are recorded yet. A webhook records them when it starts, and whenever they change:"
)


def settings_page(question: PageQuestion, page: RowPage[StoredRecord]) -> PageView:
    """Return the page; the records of *page* are the latest first."""
    records = [s.record for s in page.rows if isinstance(s.record, SettingsRecord)]
    table = PageTable(
        name="settings",
        caption=message("Settings, the latest first"),
        columns=COLUMNS,
        rows=tuple(_cells(question, record) for record in records),
        empty=_EMPTY,
        command=f"kubectl -n vgpu-admission-system get configmap {CONFIGMAP} -o yaml",
        more=question.with_values(after=page.after) if page.after else "",
    )
    return PageView(
        title=message("Settings"),
        heading=message("History of settings"),
        blocks=(table, *_changes(records)),
        as_of=question.now,
    )


def _cells(question: PageQuestion, record: SettingsRecord) -> tuple[TableCell, ...]:
    accepted = word(message("yes"), Tone.GOOD) if record.accepted else word(message("no"), Tone.BAD)
    author = record.author if question.viewer.scope.people else ""
    return (
        code(record.content_digest, href=f"#{record.content_digest}"),
        ago(record.changed_at or record.at, question.now),
        code(record.configmap),
        accepted,
        plain(author, why=message("no record says so, or it is not yours to see")),
        plain("; ".join(record.problems), why=message("there are none")),
    )


def _changes(records: Sequence[SettingsRecord]) -> Iterator[PageBlock]:
    """Yield each version compared with the one before it, of the same ConfigMap."""
    shown: set[str] = set()
    for number, record in enumerate(records):
        if record.content_digest in shown or len(shown) >= MOST_DIFFS:
            continue
        shown.add(record.content_digest)
        same = (
            one for one in islice(records, number + 1, None) if one.configmap == record.configmap
        )
        earlier = next(same, None)
        digest = record.content_digest
        lines = compared_lines("" if earlier is None else earlier.text, record.text)
        yield TextBlock(
            title=message("All of {digest}", digest=digest)
            if earlier is None
            else message("What {digest} changed", digest=digest),
            lines=lines[: 2 * MOST_LINES],
            name=digest,
        )


def compared_lines(earlier: str, later: str) -> tuple[tuple[str, str], ...]:
    """Return two texts line by line: what is in both, and what is only in the one or the other."""
    if not earlier:
        return tuple(("", line) for line in later.splitlines())
    old, new = earlier.splitlines()[:MOST_LINES], later.splitlines()[:MOST_LINES]
    lines: list[tuple[str, str]] = []
    for kind, begin, end, new_begin, new_end in SequenceMatcher(None, old, new).get_opcodes():
        if kind == "equal":
            lines += [("", line) for line in old[begin:end]]
        else:
            lines += [("old", line) for line in old[begin:end]]
            lines += [("new", line) for line in new[new_begin:new_end]]
    return tuple(lines)
