"""Who may do what, by our roles and policies: the table, judged without an API server."""

import pytest

from tests.authorization.answers import answer, given
from tests.authorization.policies import Finding
from tests.authorization.requests import attributes
from tests.authorization.rows import RBAC, Row, Rule
from tests.authorization.table import TABLE


def is_said(rule: Rule, finding: Finding) -> bool:
    return rule.policy == finding.policy and rule.words in finding.words


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.id)
def test_the_table(row: Row) -> None:
    """Each request is refused by the rules of its row and no other, or passes."""
    found = answer(row)

    assert found.allowed is (RBAC not in row.by)
    for refuses, rules in ((True, set(row.by) - {RBAC}), (False, set(row.warned))):
        findings = [each for each in found.findings if ("Deny" in each.actions) is refuses]
        unexpected = [each for each in findings if not any(is_said(r, each) for r in rules)]
        missing = [rule for rule in rules if not any(is_said(rule, each) for each in findings)]
        assert (unexpected, missing) == ([], [])


def test_no_row_is_there_twice() -> None:
    """A name tells one row; two rows that ask the same would hide a contradiction."""
    asked = [(row.installed, row.who, row.verb, row.what, str(row.change)) for row in TABLE]

    assert len({row.id for row in TABLE}) == len(TABLE)
    assert [each for each in asked if asked.count(each) > 1] == []


def test_no_right_is_given_without_a_row() -> None:
    """Whoever adds a right says in the table who is to use it."""
    passing = [attributes(row) for row in TABLE if RBAC not in row.by]

    unused = {words for words, right in given() if not any(map(right.allow, passing))}
    assert unused == set()
