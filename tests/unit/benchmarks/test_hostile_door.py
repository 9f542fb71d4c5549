"""The benchmark of doors: one that could not be tried is not taken for closed."""

from collections.abc import Iterator
from types import FunctionType

import pytest

from benchmarks import hostile_doors
from benchmarks.hostile_door import DOORS, UntriedError, door, try_doors


def shut() -> Iterator[str]:
    yield from ()


def opened() -> Iterator[str]:
    yield "a"
    yield "b"


def out_of_reach() -> Iterator[str]:
    yield from ()
    raise UntriedError("no library")


def open_and_then_out_of_reach() -> Iterator[str]:
    yield "a"
    raise UntriedError("no library")


def test_what_got_through_is_told_by_door() -> None:
    """Also that nothing did."""
    tried = try_doors({"shut": shut, "opened": opened})

    assert tried.breaches == {"shut": [], "opened": ["a", "b"]}
    assert tried.untried == {}


def test_a_door_that_cannot_be_tried_says_why() -> None:
    """It is in no list of closed ones."""
    tried = try_doors({"out_of_reach": out_of_reach})

    assert (tried.breaches, tried.untried) == ({}, {"out_of_reach": "no library"})


def test_what_got_through_before_counts() -> None:
    """A second build that cannot be tried closes nothing."""
    tried = try_doors({"open": open_and_then_out_of_reach})

    assert (tried.breaches, tried.untried) == ({"open": ["a"]}, {"open": "no library"})


def test_no_door_takes_the_name_of_another() -> None:
    """The other would never be tried."""
    before = dict(DOORS)
    name = next(iter(before))
    again = FunctionType(shut.__code__, globals(), name)

    with pytest.raises(ValueError, match=name):
        door(again)
    assert before == DOORS


def test_every_group_has_doors() -> None:
    """A module whose doors nobody adds would be silent."""
    groups = {attack.__module__ for attack in DOORS.values()}

    assert {module.__name__ for module in hostile_doors.GROUPS} == groups
