"""Pictures that are edited in place: a reader learns of every change, and of nothing else."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster.picture import MOST_REMEMBERED, ChangeTracker, Picture

KEYS = st.sampled_from("abcd")
BATCH = st.dictionaries(KEYS, st.none() | st.integers(0, 3))
ONCE = st.lists(st.tuples(BATCH, st.booleans()))


class Thing:
    """An object that is only the same as itself."""


@given(ONCE)
def test_a_reader_learns_of_every_change(batches: list[tuple[dict[str, int | None], bool]]) -> None:
    """Of one picture by its journal, and of mappings that are replaced by what they hold."""
    things = [Thing() for _ in range(4)]
    picture, journal, compared = Picture[Thing](), ChangeTracker[Thing](), ChangeTracker[Thing]()
    assert (journal.take(picture), compared.take({})) == (None, None)
    seen: dict[str, Thing] = {}

    for batch, looks in batches:
        changes = {key: None if n is None else things[n] for key, n in batch.items()}
        picture.apply(changes)
        if looks:
            told, found = journal.take(picture), compared.take(dict(picture))
            differs = {
                key for key in seen.keys() | picture.keys() if seen.get(key) is not picture.get(key)
            }
            assert told is not None
            assert found is not None
            assert set(found) == differs
            assert differs <= set(told)
            seen = dict(picture)


def test_what_is_repeated_is_no_change() -> None:
    """A list repeats what is known, and an object that is not there cannot go."""
    picture, thing = Picture[Thing](), Thing()

    assert picture.apply({"a": thing, "b": None}) == ["a"]
    assert picture.apply({"a": thing}) == []
    assert picture.version == 1


@pytest.mark.parametrize("batches", [1, 7])
def test_a_reader_that_missed_too_much_looks_at_everything(batches: int) -> None:
    """The journal is bounded: a replica that does not lead reads nothing of it for weeks."""
    picture, tracker = Picture[Thing](), ChangeTracker[Thing]()
    tracker.take(picture)
    keys = [str(number) for number in range(MOST_REMEMBERED + batches)]
    random.Random(1).shuffle(keys)  # noqa: S311 -- any order will do

    for first in range(batches):
        picture.apply({key: Thing() for key in keys[first::batches]})
    late = tracker.take(picture)
    picture.apply({"a": Thing()})

    assert late is None
    assert tracker.take(picture) == ["a"]
    assert len(picture._changed) <= MOST_REMEMBERED  # noqa: SLF001 -- the bound


def test_another_picture_is_all_new() -> None:
    """Versions of one say nothing about the other."""
    tracker, one, other = ChangeTracker[Thing](), Picture[Thing](), Picture[Thing]()
    other.apply({"a": Thing()})
    tracker.take(one)

    assert tracker.take(other) is None
    assert tracker.take({}) is None
