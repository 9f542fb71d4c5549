"""Decisions about pods of one template, told apart by their order."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.audit.record import AdmissionRecord, ChangePart, OwnerPart
from console.records.own_reviews import own_reviews
from tests.builders.records import mutated, uid, validated

PATCH = (ChangePart(op="add", path="/metadata/annotations"),)


def own(reviews: Sequence[AdmissionRecord], pod: int) -> set[int]:
    """Return which of *reviews* are those of a pod, by their places."""
    ids = own_reviews(reviews, uid(pod))
    return {place for place, one in enumerate(reviews) if one.id in ids}


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        pytest.param("m1m2", [{0}, {2}], id="one-after-another"),
        pytest.param("mm12", [{0}, {1}], id="at-once"),
        pytest.param("mm1m2m3", [{1}, {3}, {5}], id="one-of-many-was-refused-by-others"),
        pytest.param("mma1a2", [{0, 2}, {1, 4}], id="invoked-again"),
        pytest.param("ma1ma2", [{0, 1}, {3, 4}], id="invoked-again-in-turn"),
        pytest.param("ma1m2", [{0, 1}, {3}], id="invoked-again-once"),
        pytest.param("mm1m2", [{1}, {3}], id="one-was-refused-by-others"),
        pytest.param("m12", [set(), {0}], id="one-is-missing"),
        pytest.param("1m2", [set(), {1}], id="too-early"),
        pytest.param("12", [set(), set()], id="none"),
    ],
)
def test_each_pod_has_its_own(kinds: str, expected: list[set[int]]) -> None:
    """``m`` is decided, ``a`` decided again, and a number is confirmed."""
    made = {"m": lambda at: mutated(at, changes=PATCH), "a": mutated}
    reviews = [
        made[kind](at * 10) if kind in made else validated(at * 10, pod=int(kind))
        for at, kind in enumerate(kinds)
    ]

    assert [own(reviews, pod + 1) for pod in range(len(expected))] == expected


def test_what_cannot_be_of_the_pod_is_not() -> None:
    """Another owner, person, namespace or name; and a pod that was never confirmed has none."""
    others = (
        mutated(0, changes=PATCH, user="bo"),
        mutated(1, changes=PATCH, owners=(OwnerPart(kind="Job", name="x", uid="o"),)),
        mutated(2, changes=PATCH, namespace="elsewhere"),
        mutated(3, changes=PATCH, generate_name="other-"),
    )

    assert own((*others, validated(9)), 1) == set()
    assert own((mutated(0, changes=PATCH), validated(9)), 2) == set()


def test_a_name_that_is_known_decides() -> None:
    """Pods of a StatefulSet have one before they are decided on."""
    named = [
        mutated(at, changes=PATCH, generate_name="", pod=f"train-{pod}")
        for at, pod in ((0, 2), (1, 1))
    ]
    confirmed = [validated(at, pod=pod, generate_name="") for at, pod in ((5, 1), (6, 2))]

    assert own((*named, *confirmed), 1) == {1}
    assert own((*named, *confirmed), 2) == {0}


@given(st.permutations("mmmaa1234"), st.integers(0, 3))
def test_no_review_is_of_two_pods(kinds: Sequence[str], gap: int) -> None:
    """Nor of one that was confirmed before, whatever the order and the clock."""
    made = {"m": lambda at: mutated(at, changes=PATCH), "a": mutated}
    reviews = [
        made[kind](at * gap) if kind in made else validated(at * gap, pod=int(kind))
        for at, kind in enumerate(kinds)
    ]
    taken = [own_reviews(reviews, uid(pod)) for pod in range(1, 5)]

    assert sum(map(len, taken)) == len(frozenset().union(*taken))
    by_id = {one.id: one for one in reviews}
    confirmed = {one.pod_uid: one.at for one in reviews if one.pod_uid}
    for pod, ids in enumerate(taken, 1):
        assert len(ids) <= 2
        assert all(by_id[one].at <= confirmed[uid(pod)] for one in ids)
