"""Which XIDs take a GPU out of service is data, and an operator may change it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.health.xid import XIDS, Verdict, XidPolicy, title_of, xid_policy
from allocator.model.problem import Problem

NUMBERS = st.frozensets(st.integers(0, 200), max_size=8)


@pytest.mark.parametrize("number", [13, 31, 43, 45, 68, 109, 94])
def test_what_a_tenant_can_cause_takes_no_gpu_out_of_service(number: int) -> None:
    """Otherwise any tenant could stop the others' pods from being placed."""
    assert XidPolicy().verdict(number) is Verdict.HARMLESS


@pytest.mark.parametrize("number", [48, 62, 64, 79, 95, 119, 120, 140])
def test_what_only_a_reset_ends_is_unhealthy_until_then(number: int) -> None:
    """Hardware that is broken does not heal by waiting."""
    assert XidPolicy().verdict(number) is Verdict.UNTIL_RESET


def test_an_unknown_error_is_taken_seriously_for_a_while() -> None:
    """A driver newer than the table may report what it does not know."""
    assert 9_999 not in XIDS
    assert XidPolicy().verdict(9_999) is Verdict.UNTIL_QUIET


def test_every_row_says_where_it_is_from() -> None:
    """A verdict without a source could not be argued with; numbers are rows once."""
    assert all(xid.source and xid.title for xid in XIDS.values())
    assert all(number == xid.number for number, xid in XIDS.items())


@pytest.mark.parametrize(
    ("number", "verdict"),
    [(13, Verdict.UNTIL_QUIET), (79, Verdict.UNTIL_RESET), (9_999, Verdict.UNTIL_QUIET)],
)
def test_what_is_heeded_is_never_harmless(number: int, verdict: Verdict) -> None:
    """An error of applications is over when it is quiet, others mean what they meant."""
    policy = XidPolicy(ignored=frozenset({number}), heeded=frozenset({number}), all_ignored=True)

    assert policy.verdict(number) is verdict


@given(NUMBERS, NUMBERS, st.integers(0, 200))
def test_an_operators_lists_override_the_table(
    ignored: frozenset[int], heeded: frozenset[int], number: int
) -> None:
    """A heeded number is never harmless, an ignored one is unless it is heeded too."""
    verdict = XidPolicy(ignored=ignored, heeded=heeded).verdict(number)

    if number in heeded:
        assert verdict is not Verdict.HARMLESS
    elif number in ignored:
        assert verdict is Verdict.HARMLESS
    else:
        assert verdict is XidPolicy().verdict(number)


@given(NUMBERS, NUMBERS)
def test_lists_are_read_as_they_are_written(
    ignored: frozenset[int], heeded: frozenset[int]
) -> None:
    """Any spacing of numbers and commas means the numbers."""
    read = xid_policy(" , ".join(map(str, ignored)) + ",", ",".join(map(str, heeded)))

    assert read == XidPolicy(ignored=ignored, heeded=heeded)


@pytest.mark.parametrize("word", ["all", "xids", "ALL"])
def test_all_leaves_only_what_is_heeded(word: str) -> None:
    """The words are those of the plugins' DP_DISABLE_HEALTHCHECKS."""
    read = xid_policy(f"{word},13", "79")

    assert isinstance(read, XidPolicy)
    assert read.verdict(48) is Verdict.HARMLESS
    assert read.verdict(79) is Verdict.UNTIL_RESET


@pytest.mark.parametrize("word", ["all", "xids", " ALL ", "13,all"])
@pytest.mark.parametrize("ignored", ["", "13,79", "all"])
def test_all_heeded_leaves_nothing_ignored(ignored: str, word: str) -> None:
    """DP_ENABLE_HEALTHCHECKS=all of NVIDIA's plugin, which also beats DP_DISABLE_HEALTHCHECKS."""
    read = xid_policy(ignored, word)

    assert isinstance(read, XidPolicy)
    assert read.verdict(13) is Verdict.UNTIL_QUIET
    assert read.verdict(9_999) is Verdict.UNTIL_QUIET
    assert read.verdict(79) is Verdict.UNTIL_RESET


@pytest.mark.parametrize(
    ("ignored", "heeded", "path"),
    [("13,x", "", "xids.ignored"), ("", "-1", "xids.heeded"), ("", "all,x", "xids.heeded")],
)
def test_a_word_that_is_no_number_is_refused(ignored: str, heeded: str, path: str) -> None:
    """A typing error must not silently leave a broken GPU in service."""
    read = xid_policy(ignored, heeded)

    assert isinstance(read, Problem)
    assert read.path == path


def test_titles_name_the_number() -> None:
    """People look up the number, and know the name."""
    assert title_of(79) == "Xid 79 (GPU has fallen off the bus)"
    assert title_of(9_999) == "Xid 9999"
