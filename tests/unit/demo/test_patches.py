"""JSON Patch as the demo's API server applies it."""

from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.patches import PatchError, patched

DOCUMENT = {"a/b": {"c~d": [1, 2]}, "e": {}}


def test_an_independent_implementation_agrees() -> None:
    """Each kind of operation that our programs send does the same."""
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": "/a~1b/c~0d/0", "value": 1},
        {"op": "add", "path": "/a~1b/c~0d/-", "value": {"x": 1}},
        {"op": "add", "path": "/a~1b/c~0d/0", "value": 0},
        {"op": "replace", "path": "/a~1b/c~0d/1", "value": 9},
        {"op": "remove", "path": "/a~1b/c~0d/2"},
        {"op": "add", "path": "/e/new", "value": None},
    ]

    assert patched(DOCUMENT, operations) == jsonpatch.apply_patch(DOCUMENT, operations)
    assert DOCUMENT == {"a/b": {"c~d": [1, 2]}, "e": {}}


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "op": st.sampled_from(["add", "remove", "replace", "test"]),
                "path": st.sampled_from(["/e", "/e/x", "/a~1b/c~0d/1", "/a~1b/c~0d/-", "/none/x"]),
                "value": st.integers(0, 2),
            }
        ),
        max_size=4,
    )
)
def test_any_patch_is_applied_or_refused_alike(operations: list[dict[str, object]]) -> None:
    """Where one implementation refuses, so does the other."""
    try:
        expected = jsonpatch.apply_patch(DOCUMENT, operations)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        with pytest.raises(PatchError):
            patched(DOCUMENT, operations)
    else:
        assert patched(DOCUMENT, operations) == expected


def test_an_unknown_operation_is_named() -> None:
    """What the API server would do is not guessed."""
    with pytest.raises(PatchError, match="move /e: accepted: add, replace, remove and test"):
        patched(DOCUMENT, [{"op": "move", "path": "/e"}])
