"""The tables of a decision's page that say what every GPU answered then."""

from collections.abc import Iterator
from typing import Final

from allocator.catalog.boards import bare_name
from allocator.report.terminal_lines import Tone
from console.get.candidates import CandidateList, CandidateRow, DecisionCandidates
from console.languages.messages import PageMessage, joined_text, message
from console.pages.parts.blocks import PageBlock, PageNote, PageTable, TableColumn
from console.pages.parts.cell import DASH, TableCell, code, number, plain, unknown, word

_KINDS: Final = message("Kinds of GPU that admission weighed, as if they were empty")
_GPUS: Final = message("GPUs that the bind weighed, with what was taken on them then")
_NO_COST: Final = message("it does not fit, so it has no cost")
_NO_RANK: Final = message("it does not fit, so it has no rank")
_NO_MODEL: Final = message("its model is unknown")
_PICKED: Final = message("named by the scheduler")
_NAMED: Final = {
    False: message("decided the mode"),
    True: message("given"),
}


def candidate_blocks(candidates: DecisionCandidates) -> Iterator[PageBlock]:
    """Yield a table for the admission and one for the bind, where there are such records."""
    if candidates.admission is not None:
        yield _block("kinds", _KINDS, candidates.admission, bind=False)
    if candidates.bind is not None:
        yield _block("gpus", _GPUS, candidates.bind, bind=True)


def _block(name: str, caption: PageMessage, found: CandidateList, *, bind: bool) -> PageBlock:
    if found.unknown:
        return PageNote(title=caption, text=message("{dash}: {why}.", dash=DASH, why=found.unknown))
    more = found.total - len(found.rows)
    fitting = message("{fitting:,} of {total:,} fitted", fitting=found.fitting, total=found.total)
    rest = message("{more:,} more", more=more) if more > 0 else ""
    columns = (
        TableColumn(key="gpu", title=message("Which GPU") if bind else message("Kind of GPU")),
        TableColumn(key="container", title=message("Container")),
        TableColumn(key="mode", title=message("Mode")),
        TableColumn(key="fits", title=message("Answer"), wide=True),
        TableColumn(key="cost_per_mille", title=message("Cost, ‰ of a GPU"), numeric=True),
        *((TableColumn(key="rank", title=message("Choice"), numeric=True),) if bind else ()),
    )
    return PageTable(
        name=name,
        caption=caption,
        columns=columns,
        rows=tuple(_cells(row, bind=bind) for row in found.rows),
        empty=message("No GPU was known."),
        note=joined_text("; ", filter(None, (fitting, rest, found.note))),
    )


def _cells(row: CandidateRow, *, bind: bool) -> tuple[TableCell, ...]:
    model = bare_name(row.model)
    gpu = (
        code(f"{row.node} GPU {row.index}", note=model)
        if bind
        else code(
            model,
            note=message("up to {count} on a node", count=row.count),
            why=message("its model is unknown"),
        )
    )
    cost = number(row.cost_per_mille, why=_NO_COST)
    rank = (number(row.rank, why=_NO_RANK),) if bind else ()
    return gpu, code(row.container), code(row.mode), _answer(row, bind=bind), cost, *rank


def _answer(row: CandidateRow, *, bind: bool) -> TableCell:
    notes = [_NAMED[bind]] if row.named else []
    notes += [_PICKED] if row.wished else []
    note = joined_text("; ", notes)
    if row.fits:
        text = message("fits: {detail}", detail=row.detail) if row.detail else message("fits")
        return word(text, Tone.GOOD, note=note)
    if not row.detail:
        return unknown(row.reason)
    return plain(row.detail, note=row.reason)
