"""Candidates of a stored decision in words."""

import msgspec
import pytest

from allocator.report.terminal_lines import plain_text, printed_lines
from console.get.candidate_text import candidate_rows, candidates_document
from console.get.candidates import (
    MOST_CANDIDATES,
    CandidateList,
    CandidateRow,
    DecisionCandidates,
    candidate_list,
)
from tests.builders.hostile_text import HOSTILE_TEXTS

KIND = CandidateRow(
    container="main",
    model="Tesla T4",
    memory_mib=15360,
    mode="hami-core",
    fits=True,
    detail="15360 of 15360 MiB free",
    cost_per_mille=261,
    named=True,
    count=4,
)
SHORT = CandidateRow(
    container="main",
    model="Tesla T4",
    memory_mib=15360,
    mode="hami-core",
    fits=False,
    reason="GpuMemoryShort",
    detail="1360 of 15360 MiB free",
    node="gpu-b",
    gpu="GPU-1",
    index=1,
)


def printed(candidates: DecisionCandidates) -> list[str]:
    return [plain_text(line) for line in printed_lines(candidate_rows(candidates))]


def test_both_decisions_are_shown_at_80_columns() -> None:
    """The named row has a star, and a GPU that did not fit says why."""
    both = DecisionCandidates(
        admission=candidate_list([KIND], "version 1 decided then; version 2 computed these rows"),
        bind=candidate_list([SHORT]),
    )

    assert printed(both) == [
        "",
        "kinds of GPU that admission weighed, as if they were empty",
        "  * Tesla T4, hami-core, up to 4 on a node: fits, 15360 of 15360 MiB free;",
        "    withholds 26.1 %; decided the mode",
        "    version 1 decided then; version 2 computed these rows",
        "",
        "GPUs that the bind weighed, with what was taken on them then",
        "    gpu-b GPU 1, Tesla T4, hami-core: 1360 of 15360 MiB free [GpuMemoryShort]",
    ]


def test_what_is_unknown_is_a_dash_with_its_reason() -> None:
    """No row is invented."""
    lost = DecisionCandidates(bind=CandidateList(unknown="snapshot x is not stored"))

    assert printed(lost)[-1] == "  \N{EN DASH}: snapshot x is not stored"


def test_rows_that_are_left_out_are_counted() -> None:
    """A reader knows that there were more."""
    many = candidate_list([KIND] * (MOST_CANDIDATES + 3))

    assert printed(DecisionCandidates(admission=many))[-1] == "    and 3 more rows"


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_texts_reach_no_terminal(text: str) -> None:
    """Whatever a store holds: a console that was broken into commands no terminal."""
    row = msgspec.convert(
        msgspec.to_builtins(SHORT) | {"model": text, "node": text, "detail": text, "reason": text},
        CandidateRow,
    )
    lines = printed(
        DecisionCandidates(admission=CandidateList(rows=(row,), note=text), bind=candidate_list([]))
    )

    assert all(line.isprintable() for line in lines)


def test_whoever_may_not_see_nodes_gets_null() -> None:
    """A script can tell "hidden" from "there was no bind"."""
    assert candidates_document(None) is None
    assert candidates_document(DecisionCandidates()) == {"admission": None, "bind": None}
