"""When a certificate is renewed, and in which order an authority is replaced."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from certs.rotation_policy import (
    AddNextCA,
    Certificate,
    DropOldCA,
    Lifetimes,
    Nothing,
    ObservedTrust,
    RenewLeaf,
    Rotation,
    RotationState,
    Settling,
    Step,
    SwitchLeaf,
    is_expiring,
    next_step,
)
from tests.fakes.certificates import START as NOW

DAY = timedelta(days=1)
LIFETIMES = Lifetimes()
CA = Certificate(fingerprint="one", not_before=NOW - 10 * DAY, not_after=NOW + 355 * DAY)
NEXT = Certificate(fingerprint="two", not_before=NOW, not_after=NOW + 365 * DAY)
NOTICED = replace(NEXT, not_before=NOW - 30 * DAY - timedelta(hours=1))
ENDING = replace(CA, not_after=NOW + 30 * DAY)
OLD = Certificate(fingerprint="nil", not_before=NOW - 300 * DAY, not_after=NOW + 65 * DAY)
LEAF = Certificate(
    fingerprint="leaf", not_before=NOW - 10 * DAY, not_after=NOW + 20 * DAY, issuer="one"
)
GOOD = RotationState(signing=CA, leaf=LEAF)
LONG = timedelta(minutes=1)


def seen(*trusted: str, steady: timedelta = LONG) -> ObservedTrust:
    return ObservedTrust(
        trusts=(frozenset(trusted), frozenset({"one", "two", "nil"})), unchanged_for=steady
    )


def test_a_lost_secret_is_replaced_at_once_while_nobody_serves() -> None:
    """No replica has a leaf that an API server would rather have kept."""
    lost = RotationState(next=NEXT, old=(OLD,))
    just_published = seen("two", "nil", steady=timedelta(0))

    assert step(lost, just_published) == Settling()
    assert step(lost, replace(just_published, nobody_serves=True)) == SwitchLeaf()


def test_an_authority_that_is_not_trusted_signs_nothing_even_so() -> None:
    """The API server would reject its leaf for as long as it carries the old bundle."""
    lost = RotationState(next=NEXT, old=(OLD,))
    not_published = replace(seen("nil", steady=timedelta(0)), nobody_serves=True)

    assert step(lost, not_published) == Settling()


def step(state: RotationState, what: ObservedTrust) -> Step:
    return next_step(state, what, now=NOW, lifetimes=LIFETIMES)


@pytest.mark.parametrize(
    ("changes", "trusted", "expected"),
    [
        pytest.param({}, ["one"], Nothing(NOW + 10 * DAY), id="all-well"),
        pytest.param({"request": Rotation.LEAF}, ["one"], RenewLeaf(), id="leaf-requested"),
        pytest.param({"request": Rotation.CA}, ["one"], AddNextCA(), id="authority-requested"),
        pytest.param({"signing": None}, ["one"], AddNextCA(), id="signing-key-lost"),
        pytest.param({"next": NEXT}, ["one"], Settling(), id="next-not-published"),
        pytest.param({"next": NEXT}, ["one", "two"], Nothing(NOW + 10 * DAY), id="next-new"),
        pytest.param({"next": NOTICED}, ["one", "two"], SwitchLeaf(), id="next-published"),
        pytest.param({"next": NOTICED}, ["one"], Settling(), id="known-for-long-yet-not-trusted"),
        pytest.param({"next": NEXT}, ["two"], SwitchLeaf(), id="only-the-next-is-trusted"),
        pytest.param(
            {"next": NEXT, "request": Rotation.CA}, ["one", "two"], SwitchLeaf(), id="asked-for"
        ),
        pytest.param({"next": NEXT, "leaf": None}, ["one", "two"], RenewLeaf(), id="meanwhile"),
        pytest.param(
            {"next": NEXT, "signing": ENDING}, ["one", "two"], SwitchLeaf(), id="no-time-left"
        ),
        pytest.param({"leaf": None}, ["one"], RenewLeaf(), id="leaf-unusable"),
        pytest.param({"leaf": None}, ["nil"], Settling(), id="its-authority-not-trusted"),
        pytest.param({"old": (OLD,)}, ["one"], Nothing(NOW + 10 * DAY), id="overlap-by-old-ca"),
        pytest.param({"old": (OLD,), "old_until": NOW - DAY}, ["one"], DropOldCA(), id="over"),
    ],
)
def test_the_step_that_is_due(changes: dict[str, Any], trusted: list[str], expected: Step) -> None:
    """One fact about the Secret or the registrations decides the step."""
    chosen = step(replace(GOOD, **changes), seen(*trusted))

    assert chosen == expected


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        pytest.param(10 * DAY + timedelta(seconds=1), Nothing, id="before-two-thirds"),
        pytest.param(10 * DAY, RenewLeaf, id="at-two-thirds"),
        pytest.param(-DAY, RenewLeaf, id="expired"),
    ],
)
def test_a_leaf_is_renewed_at_two_thirds_of_its_life(left: timedelta, expected: type[Step]) -> None:
    """A third of thirty days before its end."""
    leaf = replace(LEAF, not_after=NOW + left)

    assert isinstance(step(replace(GOOD, leaf=leaf), seen("one")), expected)


@pytest.mark.parametrize("changes", [{"request": Rotation.LEAF}, {"next": NEXT}], ids=str)
def test_nothing_is_signed_before_registrations_stood_still(changes: dict[str, Any]) -> None:
    """Trust seen a moment ago may not have reached every API server."""
    recent = seen("one", "two", steady=LIFETIMES.settle - timedelta(seconds=1))

    assert step(replace(GOOD, **changes), recent) == Settling()


def test_a_first_installation_waits_for_nobody() -> None:
    """Where no leaf was ever served, none can be broken."""
    first = RotationState(next=NEXT)

    assert step(RotationState(), seen()) == AddNextCA()
    assert step(first, seen("two", steady=timedelta())) == SwitchLeaf()


def test_certificates_of_a_clock_that_ran_ahead_are_replaced() -> None:
    """What is not valid yet is as bad as what is valid no more."""
    leaf = replace(LEAF, not_before=NOW + DAY)
    authority = replace(CA, not_before=NOW + DAY)
    waiting = replace(NEXT, not_before=NOW + DAY)

    assert step(replace(GOOD, leaf=leaf), seen("one")) == RenewLeaf()
    assert step(replace(GOOD, signing=authority), seen("one")) == AddNextCA()
    assert step(replace(GOOD, next=waiting), seen("one")) == AddNextCA()


def test_a_leaf_that_cannot_last_longer_is_not_renewed_again() -> None:
    """At the end of its authority's life a new leaf would end on the same second."""
    end = NOW + 2 * DAY
    state = RotationState(
        signing=replace(CA, not_after=end), leaf=replace(LEAF, not_after=end), next=NEXT
    )

    assert step(state, seen("one")) == Settling()


def test_the_issuer_of_the_leaf_is_never_dropped() -> None:
    """An old authority whose date has passed stays while the leaf in the Secret needs it."""
    leaf = replace(LEAF, issuer="nil")
    state = replace(GOOD, leaf=leaf, old=(OLD,), old_until=NOW - DAY)

    assert step(state, seen("one")) == RenewLeaf()


def test_a_person_is_told_seven_days_before_the_end() -> None:
    """By then renewal has been failing for three days."""
    assert not is_expiring(NOW + 7 * DAY, NOW, LIFETIMES)
    assert is_expiring(NOW + 7 * DAY - timedelta(seconds=1), NOW, LIFETIMES)


@pytest.mark.parametrize(
    "changes",
    [{"settle": 10 * DAY}, {"poll": 5 * DAY}, {"leaf": 365 * DAY}],
    ids=["settle", "poll", "leaf"],
)
def test_lifetimes_that_cannot_work_are_refused(changes: dict[str, timedelta]) -> None:
    """Renewal has to be able to finish before the leaf ends."""
    with pytest.raises(ValueError, match="must be shorter than leaf / 3"):
        replace(LIFETIMES, **changes)


def test_an_authority_can_be_known_for_weeks_before_it_signs() -> None:
    """It is made early enough for that, and for a leaf of the old one to end in peace."""
    assert LIFETIMES.notice + LIFETIMES.leaf < LIFETIMES.ca / 3
    with pytest.raises(ValueError, match=r"notice \+ leaf must not be longer than ca / 3"):
        replace(LIFETIMES, notice=92 * DAY)
