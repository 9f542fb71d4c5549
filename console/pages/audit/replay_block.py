"""The part of a decision's page that says what deciding again gives."""

from dataclasses import replace
from typing import Final

from allocator.report.terminal_lines import Tone
from console.languages.messages import message
from console.pages.audit.decision import ReplayView
from console.pages.parts.blocks import FactList, PageBlock
from console.pages.parts.candidates import candidate_blocks
from console.pages.parts.cell import TableCell, code, word
from console.pages.parts.lines import facts_of
from console.replay.life import ReplayedLife, ReplayLine, replay_document, replay_lines
from console.replay.what_if import WhatIf, what_if_lines


def replay_block(replayed: ReplayedLife) -> ReplayView | None:
    """Return what a page shows of *replayed*; ``None`` where there was nothing to decide again."""
    lines = tuple(replay_lines(replayed))
    if not lines:  # then nothing was weighed either
        return None
    rows = tuple((_label(line), (_cell(line),)) for line in lines)
    blocks: list[PageBlock] = [FactList(title=message("Decided again"), name="replay", rows=rows)]
    if isinstance(replayed.today, WhatIf):
        shown = what_if_lines(replayed.today)
        blocks.append(facts_of(message("The same request today"), shown, name="today"))
    blocks += candidate_blocks(replayed.candidates)
    return ReplayView(blocks=tuple(blocks), document=replay_document(replayed))


_LABELS: Final = {
    "Admission": message("Admission"),
    "Bind": message("Bind"),
    "Today": message("Today"),
}


def _label(line: ReplayLine) -> str:
    """Return what a line is about; that of a field that differs is its name."""
    return line.label if line.tone is Tone.PLAIN else _LABELS.get(line.label, line.label)


def _cell(line: ReplayLine) -> TableCell:
    """Return a verdict as a word, and the values of a field that differs as code."""
    if line.tone is Tone.PLAIN:
        return replace(code(line.text), title=message("recorded, and as it came out now"))
    return word(line.text, line.tone)
