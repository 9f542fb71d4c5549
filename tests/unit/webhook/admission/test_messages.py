"""Warnings: whole sentences, as many as the API server hands on uncut."""

import pytest

from webhook.admission.messages import ALL_WARNINGS, LONGEST_WARNING, MOST_WARNINGS, warnings

REMEDY = (
    "remove volcano.sh/vgpu-cores, or set volcano.sh/vgpu-mode to hami-core in the pod template"
)


@pytest.mark.parametrize("length", [10, 100, 200, 255, 400, 900, 5000])
def test_a_remedy_is_never_cut(length: int) -> None:
    """Half a command is worse than none."""
    (shown,) = warnings([f"container: {'x' * length}; {REMEDY}"])

    assert shown.endswith(f"; {REMEDY}")
    assert len(shown) <= LONGEST_WARNING


def test_so_many_are_shown_that_the_server_cuts_none() -> None:
    """It would cut each to 256 characters; characters beyond ASCII count as their bytes."""
    for text in ("x", "模"):
        shown = warnings([f"{number}: {text * 900}; {REMEDY}" for number in range(40)])

        assert shown
        assert sum(len(line.encode()) for line in shown) <= ALL_WARNINGS
        assert all(line.endswith(REMEDY) for line in shown)
    assert len(warnings(map(str, range(100)))) == MOST_WARNINGS


def test_a_warning_is_said_once_and_is_one_line() -> None:
    """A terminal obeys none of it."""
    assert warnings(["a\nb", "a b", "\x1b[31mred"]) == ["vgpu: a b", "vgpu:  [31mred"]
    assert warnings([]) == []
