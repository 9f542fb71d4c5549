"""Candidates of a stored decision in words: for the terminal, and as a document."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from allocator.catalog.boards import bare_name
from allocator.model.untrusted import escaped
from allocator.report.terminal_lines import CutLine, Line, Tone, WrappedLine, counted
from console.get.candidates import CandidateList, CandidateRow, DecisionCandidates, in_english

_DASH: Final = "\N{EN DASH}"  # for what is unknown
ADMISSION_TITLE: Final = "kinds of GPU that admission weighed, as if they were empty"
BIND_TITLE: Final = "GPUs that the bind weighed, with what was taken on them then"


def candidate_rows(candidates: DecisionCandidates) -> Iterator[Line]:
    """Yield what every kind of GPU, and every GPU, answered then."""
    for title, found in (
        (ADMISSION_TITLE, candidates.admission),
        (BIND_TITLE, candidates.bind),
    ):
        if found is not None:
            yield ()
            yield CutLine("", title, Tone.STRONG)
            yield from _rows(found)


def _rows(found: CandidateList) -> Iterator[Line]:
    if found.unknown:
        yield WrappedLine("  ", f"{_DASH}: {escaped(found.unknown)}")
        return
    several = len({row.container for row in found.rows}) > 1
    for row in found.rows:
        whose = f"{escaped(row.container)}: " if several else ""
        head = f"  {'*' if row.named else ' '} "
        tone = Tone.GOOD if row.named else Tone.PLAIN
        yield WrappedLine(head, f"{whose}{gpu_text(row)}: {answer_text(row)}", tone)
    if more := found.total - len(found.rows):
        yield WrappedLine("    ", f"and {counted(more, 'more row')}")
    if found.note:
        yield WrappedLine("    ", escaped(found.note))


def gpu_text(row: CandidateRow) -> str:
    """Return which GPU, or which kind of GPU, answered."""
    model = escaped(bare_name(row.model)) or "a GPU"
    if row.index is None:
        return f"{model}, {row.mode}, up to {row.count} on a node"
    return f"{escaped(row.node)} GPU {row.index}, {model}, {row.mode}"


def answer_text(row: CandidateRow) -> str:
    """Return whether it fitted, why not, what it would cost, and how it ranked."""
    detail = escaped(row.detail)
    if not row.fits:
        return f"{detail or 'does not fit'} [{escaped(row.reason)}]"
    parts = [f"fits, {detail}" if detail else "fits"]
    if row.cost_per_mille is not None:
        parts.append(f"withholds {row.cost_per_mille / 10:g} %")
    if row.rank is not None:
        parts.append(f"choice {row.rank}")
    if row.wished:
        parts.append("named by the scheduler")
    if row.named:
        parts.append("decided the mode" if row.index is None else "given")
    return "; ".join(parts)


def candidates_document(candidates: DecisionCandidates | None) -> dict[str, Any] | None:
    """Return the candidates as JSON; ``None`` where nodes are not shown to whoever asks."""
    if candidates is None:
        return None
    candidates = in_english(candidates)
    return {
        "admission": _list_document(candidates.admission),
        "bind": _list_document(candidates.bind),
    }


def _list_document(found: CandidateList | None) -> dict[str, Any] | None:
    if found is None:
        return None
    document: dict[str, Any] = msgspec.to_builtins(found)
    return document
