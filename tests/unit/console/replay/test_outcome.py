"""Outcomes of replays."""

from console.replay.outcome import ChangedField, DifferentDecision, SameDecision, compared

VERSIONS = ("1", "2")


def test_equal_fields_are_the_same_whatever_their_order() -> None:
    """Bytes are compared in canonical form."""
    one, other = {"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}

    assert compared(one, other, versions=VERSIONS) == SameDecision(fields=other)


def test_a_field_of_one_side_is_a_difference() -> None:
    """A field that is missing is shown as null, not left out."""
    found = compared({"a": 1, "b": 2}, {"b": 2, "c": "x"}, versions=VERSIONS)

    assert isinstance(found, DifferentDecision)
    assert found.by_version
    assert found.changed == (
        ChangedField(name="a", recorded="1", replayed="null"),
        ChangedField(name="c", recorded="null", replayed='"x"'),
    )


def test_numbers_and_texts_are_told_apart() -> None:
    """One that looks like the other is another value."""
    assert isinstance(compared({"a": 1}, {"a": "1"}, versions=("1", "1")), DifferentDecision)


def test_half_characters_are_told_apart_and_shown() -> None:
    """A record may hold what no encoding has; it is escaped, not an error."""
    found = compared({"a": "x\ud800"}, {"a": "x"}, versions=VERSIONS)

    assert isinstance(found, DifferentDecision)
    assert found.changed[0].recorded == r'"x\ud800"'
