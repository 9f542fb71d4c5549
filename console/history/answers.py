"""Answers of the console's JSON API: pages of rows, and one decision with its records."""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from console.get.candidates import DecisionCandidates
from console.records.rows import DecisionRow, RowPage, UsageRow
from console.use.figures import UseAnswer

LONGEST_REFUSAL: Final = 500  # characters of a refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordAnswer:
    """A record of any kind, also of one that this version does not know, and who delivered it."""

    record: dict[str, Any]
    sender: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionAnswer:
    """One decision, and the records of its pod, the earliest first."""

    decision: DecisionRow
    records: tuple[RecordAnswer, ...] = ()
    candidates: DecisionCandidates | None = None  # None: nodes are not shown to whoever asks


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageAnswer:
    """What was asked for and promised, by namespace and requester."""

    rows: tuple[UsageRow, ...] = ()


DECISIONS: Final = msgspec.json.Decoder(RowPage[DecisionRow])
DECISION: Final = msgspec.json.Decoder(DecisionAnswer)
RECORDS: Final = msgspec.json.Decoder(RowPage[RecordAnswer])
USAGE: Final = msgspec.json.Decoder(UsageAnswer)
USE: Final = msgspec.json.Decoder(UseAnswer)


class _Refusal(msgspec.Struct):
    error: str


def refusal_text(body: bytes) -> str:
    """Return why the console refused; empty where it does not say (a proxy's page)."""
    try:
        return msgspec.json.decode(body, type=_Refusal).error[:LONGEST_REFUSAL]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
