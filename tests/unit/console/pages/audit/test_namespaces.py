"""The page of namespaces with more people than one page shows."""

from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest

from console.access.viewer import Viewer
from console.pages.audit.namespaces import namespaces_page
from console.pages.parts.blocks import PageQuestion, PageTable
from console.records.query import EVERYTHING, PAGE, BadCursorError
from console.records.rows import UsageRow

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
ROWS = tuple(
    UsageRow(namespace=f"team-{number // 100}", requester=f"ann/{number:03}", admitted=1)
    for number in range(2 * PAGE + 30)
)


def tables(after: str = "") -> dict[str, PageTable]:
    viewer = Viewer(user="ann", scope=EVERYTHING, csrf="")
    values = {"since": "7d", **({"after": after} if after else {})}
    question = PageQuestion(path="/namespaces", values=values, viewer=viewer, now=NOW)
    view = namespaces_page(question, "7d", ROWS, usage=None)
    return {table.name: table for table in view.tables}


def test_people_are_told_in_pages_and_nobody_twice() -> None:
    """Each page names the next; the totals stay those of everybody."""
    told, after, pages = [], "", 0
    while True:
        found = tables(after)
        assert len(found["people"].rows) <= PAGE
        assert [row[1].exact for row in found["namespaces"].rows] == [100, 100, 30]
        told += [(row[0].text, row[1].text) for row in found["people"].rows]
        pages += 1
        if not found["people"].more:
            break
        values = parse_qs(urlsplit(found["people"].more).query)
        assert values["since"] == ["7d"]
        [after] = values["after"]
    assert pages == 3
    assert told == [(row.namespace, row.requester) for row in ROWS]


@pytest.mark.parametrize("after", ["zzz/", "zzz/x", "team-2/\U0010ffff"])
def test_behind_the_last_person_there_is_nobody(after: str) -> None:
    """Whatever a cursor names, it only says where to begin."""
    people = tables(after)["people"]
    assert (people.rows, people.more) == ((), "")


@pytest.mark.parametrize("after", ["x", "team-1", "%00", "<script>", "' OR 1=1 --", "…", "0"])
def test_a_cursor_that_names_no_person_is_refused(after: str) -> None:
    """It is none of ours."""
    with pytest.raises(BadCursorError):
        tables(after)
