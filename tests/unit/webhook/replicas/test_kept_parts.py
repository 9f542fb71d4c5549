"""What is kept for pods that are alike stays within its bounds."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from webhook.replicas.kept_parts import ENTRY, KeptParts, SeenNames

NAMES = st.sampled_from("abcdefgh")
STEPS = st.lists(st.tuples(NAMES, st.none() | st.integers(0, 4000)), max_size=40)
MOST, LARGEST = 8000, 3000


@given(STEPS)
def test_parts_are_kept_within_bounds(steps: list[tuple[str, int | None]]) -> None:
    """What was used last stays, and what is too large never comes in."""
    parts = KeptParts[int](most_bytes=MOST, largest=LARGEST)
    known: dict[str, int] = {}  # sizes, the last used at the end
    for name, size in steps:
        if size is None:
            found = parts.get(name)
            assert found == known.get(name)
            if name in known:
                known[name] = known.pop(name)
            continue
        parts.keep(name, size, size)
        known.pop(name, None)
        if size + ENTRY <= LARGEST:
            known[name] = size
        while sum(known.values()) + ENTRY * len(known) > MOST:
            del known[next(iter(known))]
        assert parts.size == sum(known.values()) + ENTRY * len(known) <= MOST
        assert len(parts) == len(known)


def test_what_was_asked_for_last_stays() -> None:
    """However long ago it was kept."""
    parts = KeptParts[str](most_bytes=MOST, largest=LARGEST)
    for name in "abc":
        parts.keep(name, name, 2000)
    assert parts.get("a") == "a"
    parts.keep("d", "d", 2000)

    assert [parts.get(name) for name in "abcd"] == ["a", None, "c", "d"]


def test_a_name_is_known_from_the_second_time_on() -> None:
    """Until 4,096 others were noted after it."""
    seen, names = SeenNames(), [f"u-{number}" for number in range(4096)]
    assert [seen.note("a"), seen.note("a"), seen.note("b"), seen.note("b")] == [
        False,
        True,
        False,
        True,
    ]

    for name in names[:2000]:
        seen.note(name)
    assert seen.note("a")
    for name in names[:4095]:
        seen.note(name)
    assert seen.note("a")
    for name in names:
        seen.note(name)
    assert not seen.note("a")


def test_names_take_little_however_long_they_are() -> None:
    """The uid of an owner is whatever a tenant writes."""
    seen = SeenNames()
    tracemalloc.start()
    try:
        for number in range(200):
            seen.note(f"{number}{'x' * 60_000}")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < 1_000_000
