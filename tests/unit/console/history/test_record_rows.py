"""Records in a terminal: each kind in words, and kinds that are not known yet."""

import json
from collections.abc import Callable, Mapping
from typing import Any, get_args

import pytest

from allocator.audit.record import AnyRecord
from console.get.listing import OutputFormat, listing_lines
from console.history.answers import RecordAnswer
from console.history.record_rows import record_item, record_listing
from console.history.record_text import known_record, record_text
from tests.builders.history import LATER, LIFE, RECORDS, SETTINGS
from tests.unit.console.sites import NOW

ANSWERS = [RecordAnswer(record=record, sender="agent of gpu-a01") for record in RECORDS]


def table(output: OutputFormat, *, spaces: bool = False, width: int | None = 80) -> str:
    listing = record_listing(ANSWERS, NOW, spaces=spaces, width=width)
    return "".join(f"{line}\n" for line in listing_lines(listing, output))


def test_records_are_shown_as_reviewed(golden: Callable[[str, str], str]) -> None:
    """The last column is a sentence; the others are words."""
    shown, wide = table(OutputFormat.TABLE), table(OutputFormat.WIDE, spaces=True, width=None)

    assert shown == golden("kubectl-records.txt", shown)
    assert max(map(len, shown.splitlines())) <= 80
    assert wide == golden("kubectl-records-wide.txt", wide)


def test_a_document_has_records_as_they_were_written() -> None:
    """Whatever their kind is, nothing is lost."""
    items = json.loads(table(OutputFormat.JSON))["items"]

    assert [item["record"] for item in items] == list(RECORDS)
    assert {item["sender"] for item in items} == {"agent of gpu-a01"}


def test_a_kind_of_a_later_version_is_listed_without_words() -> None:
    """A terminal that is older than the console shows that something happened."""
    item = record_item(RecordAnswer(record=LATER))

    assert (item.kind, item.text) == ("teleported", "")
    assert known_record(LATER) is None


def test_fields_of_a_wrong_type_are_left_out() -> None:
    """An answer is not trusted to be of the schema."""
    item = record_item(RecordAnswer(record={"kind": 7, "at": None, "pod": ["a"]}))

    assert (item.kind, item.at, item.pod, item.text) == ("", "", "", "")


MORE: list[Mapping[str, Any]] = [
    {"kind": "bind", "outcome": "refused", "text": "nothing fits"},
    {"kind": "bind", "outcome": "elsewhere"},
    {"kind": "late-commit", "outcome": "promised", "basis": "asked"},
    {"kind": "released", "why": "over"},
    {"kind": "started", "container": "main", "restarts": 2},
    {"kind": "start-refused", "container": "main", "text": "no entry"},
    {"kind": "reconfigured", "gpu": "GPU-1", "done": False, "text": "busy"},
    {"kind": "evicted", "text": "held more than promised"},
    {"kind": "health", "gpu": "GPU-1", "healthy": False, "text": "Xid 79"},
    {"kind": "health", "gpu": "GPU-1", "healthy": True},
    {"kind": "certificate", "text": "renewed"},
    {"kind": "snapshot", "content_digest": "sha256:2", "content": {}},
    {
        "kind": "workload",
        "operation": "CREATE",
        "object": {"kind": "Deployment", "name": "web"},
        "user": "amy",
    },
    {**SETTINGS, "accepted": False, "problems": ["prefer: no such mode"]},
    {"kind": "admission", "step": "mutate", "outcome": "untouched", "hidden": True},
    {"kind": "admission", "step": "mutate", "outcome": "untouched"},
    {"kind": "admission", "step": "mutate", "outcome": "error"},
]


@pytest.mark.parametrize("record", [*LIFE, *MORE], ids=lambda record: record["kind"])
def test_every_kind_has_words(record: Mapping[str, Any]) -> None:
    """A record without a sentence would be a line that says nothing."""
    base = {"id": "1", "at": "2026-11-21T07:00:00.000Z", "component": "agent"}
    known = known_record({**base, **record})

    assert known is not None
    assert len(record_text(known)) > 3


def test_no_kind_is_forgotten() -> None:
    """The records above are of every kind of the schema."""
    tags = {kind.__struct_config__.tag for kind in get_args(AnyRecord)}

    assert {str(record["kind"]) for record in (*LIFE, *MORE)} == tags
