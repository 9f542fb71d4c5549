"""Who holds and who asked, and how the person behind a pod is known."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from console.get.listing import OutputFormat, listing_lines
from console.history.who import person_document, person_text, who_listing
from console.records.rows import DecisionRow
from tests.builders.history import REFUSED, TRAIN, USAGE, WAITING


def table(output: OutputFormat) -> str:
    return "".join(f"{line}\n" for line in listing_lines(who_listing(USAGE), output))


def test_usage_is_shown_as_reviewed(golden: Callable[[str, str], str]) -> None:
    """Who holds most stands first, and a person that is unknown has no name."""
    shown, wide, csv = map(table, (OutputFormat.TABLE, OutputFormat.WIDE, OutputFormat.CSV))

    assert shown == golden("kubectl-who.txt", shown)
    assert max(map(len, shown.splitlines())) <= 80
    assert wide == golden("kubectl-who-wide.txt", wide)
    assert csv == golden("kubectl-who.csv", csv)
    assert json.loads(table(OutputFormat.JSON))["items"][0]["gibHours"] == 1205.632


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (TRAIN, "amy, who created or last changed the template of replicaset/train-7f9c6d"),
        (WAITING, "bo, who created the pod"),
        (
            REFUSED,
            (
                "nobody is known; system:serviceaccount:kube-system:replicaset-controller created"
                " it for replicaset/big-5d8f7b"
            ),
        ),
        (replace(WAITING, requester="", user=""), "nobody is known"),
        (replace(WAITING, requester_source="oracle"), "bo"),
    ],
    ids=["workload", "direct", "unknown", "hidden", "later"],
)
def test_it_is_said_how_a_person_is_known(row: DecisionRow, text: str) -> None:
    """A controller is no person, and nobody is guessed."""
    assert person_text(row) == text
    assert person_document(row)["requester"] == row.requester
