"""Records as rows: what happened when, to which pod or node, and who said so."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from allocator.model.untrusted import zoned_time
from allocator.report.terminal_lines import cut
from console.get.listing import LAST, Listing
from console.get.table import GAP, NONE, UNKNOWN, age, word
from console.history.answers import RecordAnswer
from console.history.record_text import known_record, record_text

SPACE: Final = "NAMESPACE"
COLUMNS: Final = (LAST, "KIND", "POD", "NODE")
WIDE: Final = ("AT", "COMPONENT", "DIGEST", "SENDER")
WHAT: Final = "WHAT"  # the last column, because it is a sentence
NARROWEST_TEXT: Final = 24  # columns


class RecordItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One record in a document; ``record`` is as it was written."""

    at: str
    kind: str
    namespace: str
    pod: str
    node: str
    text: str
    sender: str
    record: dict[str, Any]


def record_item(answer: RecordAnswer) -> RecordItem:
    """Return *answer* as documents have it."""
    record = answer.record
    known = known_record(record)
    return RecordItem(
        at=_field(record, "at"),
        kind=_field(record, "kind"),
        namespace=_field(record, "namespace"),
        pod=_field(record, "pod"),
        node=_field(record, "node"),
        text="" if known is None else record_text(known),
        sender=answer.sender,
        record=record,
    )


def _field(record: dict[str, Any], name: str) -> str:
    value = record.get(name, "")
    return value if isinstance(value, str) else ""


def record_listing(
    answers: Iterable[RecordAnswer], now: datetime, *, spaces: bool, width: int | None
) -> Listing:
    """Return records in their order; *spaces* says whether the table names namespaces.

    Sentences are cut so that a table of *width* columns is not exceeded; with ``None`` they are
    whole, and all columns stand before them.
    """
    items = [record_item(answer) for answer in answers]
    columns = (LAST, *((SPACE,) if spaces else ()), *COLUMNS[1:])
    if width is None:
        columns += WIDE
    words = [_words(item, now, spaces=spaces)[: len(columns)] for item in items]
    room = None if width is None else _room(columns, words, width)
    return Listing(
        kind="RecordList",
        row=RecordItem,
        columns=(*columns, WHAT),
        wide=(),
        rows=items,
        cells=[(*before, _sentence(item, room)) for item, before in zip(items, words, strict=True)],
        created=[zoned_time(item.at) for item in items],
    )


def _room(columns: Sequence[str], words: Sequence[Sequence[str]], width: int) -> int:
    """Return how many of *width* columns the words of a table leave."""
    widths = (max(map(len, column)) + len(GAP) for column in zip(columns, *words, strict=True))
    return max(NARROWEST_TEXT, width - sum(widths))


def _words(item: RecordItem, now: datetime, *, spaces: bool) -> tuple[str, ...]:
    return (
        age(zoned_time(item.at), now),
        *((word(item.namespace),) if spaces else ()),
        word(item.kind),
        word(item.pod),
        word(item.node),
        word(item.at),
        word(_field(item.record, "component")),
        word(_field(item.record, "digest")),
        word(item.sender),
    )


def _sentence(item: RecordItem, room: int | None) -> str:
    text = " ".join(item.text.split())
    if not text:
        return NONE if known_record(item.record) else UNKNOWN
    return text if room is None else cut(text, room)
