"""Content of snapshots."""

import pytest

from allocator.replay.content import (
    LARGEST_CONTENT,
    ReplayContentError,
    canonical_json,
    check_size,
    content_digest,
    typed,
)


def test_the_order_of_keys_does_not_matter() -> None:
    """Equal content has equal bytes and one digest, in whatever order it was made."""
    one, other = {"a": 1, "b": {"x": 1, "y": 2}}, {"b": {"y": 2, "x": 1}, "a": 1}

    assert canonical_json(one) == canonical_json(other) == b'{"a":1,"b":{"x":1,"y":2}}'
    assert content_digest(one) == content_digest(other)
    assert len(content_digest(one)) == 32


def test_other_content_has_another_digest() -> None:
    """A digest names its content."""
    assert content_digest({"a": 1}) != content_digest({"a": 2})


def test_large_content_is_refused_with_its_size() -> None:
    """What is too large is not read at all."""
    with pytest.raises(ReplayContentError, match=f"has 524300 bytes; at most {LARGEST_CONTENT}"):
        check_size({"a": "x" * (LARGEST_CONTENT + 4)})


def test_a_wrong_type_is_named_with_its_field() -> None:
    """An error says where it is and what is accepted there."""
    with pytest.raises(ReplayContentError, match=r"Expected `int`, got `str` - at `\$\[0\]`"):
        typed(["x"], list[int])


def test_half_characters_are_no_content() -> None:
    """What a stranger wrote into a record is an error with words, not a bug."""
    with pytest.raises(ReplayContentError, match="content is no JSON"):
        canonical_json({"a": "\ud800"})
    with pytest.raises(ReplayContentError):
        typed({"a": "\ud800"}, dict[str, int])


def test_what_is_too_deep_is_no_content() -> None:
    """Nesting costs no stack."""
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]

    with pytest.raises(ReplayContentError):
        canonical_json({"a": deep})
