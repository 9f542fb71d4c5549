"""The tables of a decision's page that say what every GPU answered then."""

from collections.abc import Iterator

from allocator.catalog.boards import bare_name
from allocator.report.terminal_lines import Tone
from console.get.candidate_text import ADMISSION_TITLE, BIND_TITLE, named_text
from console.get.candidates import CandidateList, CandidateRow, DecisionCandidates
from console.pages.parts.blocks import PageBlock, PageNote, PageTable, TableColumn
from console.pages.parts.cell import DASH, TableCell, code, number, plain, unknown, word

_NO_COST = "it does not fit, so it has no cost"
_NO_RANK = "it does not fit, so it has no rank"


def candidate_blocks(candidates: DecisionCandidates) -> Iterator[PageBlock]:
    """Yield a table for the admission and one for the bind, where there are such records."""
    if candidates.admission is not None:
        yield _block("kinds", ADMISSION_TITLE, candidates.admission, bind=False)
    if candidates.bind is not None:
        yield _block("gpus", BIND_TITLE, candidates.bind, bind=True)


def _block(name: str, title: str, found: CandidateList, *, bind: bool) -> PageBlock:
    caption = f"{title[0].upper()}{title[1:]}"
    if found.unknown:
        return PageNote(title=caption, text=f"{DASH}: {found.unknown}.")
    more = found.total - len(found.rows)
    notes = (f"{more:,} more" if more > 0 else "", found.note)
    fitting = f"{found.fitting:,} of {found.total:,} fitted"
    columns = (
        TableColumn(key="gpu", title="GPU" if bind else "Kind of GPU"),
        TableColumn(key="container", title="Container"),
        TableColumn(key="mode", title="Mode"),
        TableColumn(key="fits", title="Answer", wide=True),
        TableColumn(key="cost_per_mille", title="Cost, ‰ of a GPU", numeric=True),
        *((TableColumn(key="rank", title="Choice", numeric=True),) if bind else ()),
    )
    return PageTable(
        name=name,
        caption=caption,
        columns=columns,
        rows=tuple(_cells(row, bind=bind) for row in found.rows),
        empty="No GPU was known.",
        note="; ".join(filter(None, (fitting, *notes))) + ".",
    )


def _cells(row: CandidateRow, *, bind: bool) -> tuple[TableCell, ...]:
    model = bare_name(row.model)
    gpu = (
        code(f"{row.node} GPU {row.index}", note=model)
        if bind
        else code(model, note=f"up to {row.count} on a node", why="its model is unknown")
    )
    cost = number(row.cost_per_mille, why=_NO_COST)
    rank = (number(row.rank, why=_NO_RANK),) if bind else ()
    return gpu, code(row.container), code(row.mode), _answer(row), cost, *rank


def _answer(row: CandidateRow) -> TableCell:
    notes = [named_text(row)] if row.named else []
    notes += ["named by the scheduler"] if row.wished else []
    note = "; ".join(notes)
    if row.fits:
        return word(f"fits: {row.detail}" if row.detail else "fits", Tone.GOOD, note=note)
    if not row.detail:
        return unknown(row.reason)
    return plain(row.detail, note=row.reason)
