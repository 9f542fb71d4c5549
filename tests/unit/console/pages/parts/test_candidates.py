"""The tables of candidates on a decision's page."""

from console.get.candidates import MOST_CANDIDATES, CandidateList, DecisionCandidates
from console.get.candidates import candidate_list as listed
from console.pages.audit.replay_block import replay_block
from console.pages.parts.blocks import PageNote, PageTable
from console.pages.parts.candidates import candidate_blocks
from console.replay.life import ReplayedLife, life_candidates, replayed_life
from tests.unit.console.get.test_candidate_text import KIND, SHORT
from tests.unit.console.replay.test_life import ADMITTED, BOUND, life, source

RECORDS = life(ADMITTED.admission, BOUND.bind)
SOURCE = source(ADMITTED, BOUND)


def test_a_page_has_a_table_for_each_decision_and_the_same_in_its_document() -> None:
    """What a person reads, a script reads too."""
    replayed = replayed_life(RECORDS, SOURCE)
    seen = ReplayedLife(
        admission=replayed.admission,
        bind=replayed.bind,
        candidates=life_candidates(RECORDS, SOURCE),
    )

    shown, hidden = replay_block(seen), replay_block(replayed)

    assert shown is not None
    assert hidden is not None
    kinds, gpus = shown.blocks[-2:]
    assert isinstance(kinds, PageTable)
    assert isinstance(gpus, PageTable)
    assert [cell.text for cell in gpus.rows[0]] == [
        "gpu-b GPU 0",
        "main",
        "hami-core",
        "fits: 15360 of 15360 MiB free",
        "261",
        "1",
    ]
    assert shown.document["candidates"]["bind"]["rows"][0]["gpu"] == "GPU-gpu-b-0"
    assert hidden.document["candidates"] == {"admission": None, "bind": None}


def test_a_gpu_that_does_not_fit_has_no_cost_and_no_rank() -> None:
    """Unknown is a dash, never 0."""
    (table,) = candidate_blocks(DecisionCandidates(bind=listed([SHORT])))

    assert isinstance(table, PageTable)
    (row,) = table.rows
    assert [cell.exact for cell in row[3:]] == ["1360 of 15360 MiB free", None, None]
    assert row[3].note == "GpuMemoryShort"


def test_rows_beyond_a_hundred_are_counted_in_the_note() -> None:
    """The page is short, and says what it leaves out."""
    (table,) = candidate_blocks(DecisionCandidates(admission=listed([KIND] * 1100)))

    assert isinstance(table, PageTable)
    assert len(table.rows) == MOST_CANDIDATES
    assert table.note == "1,100 of 1,100 fitted; 1,000 more"


def test_what_cannot_be_known_is_said() -> None:
    """A page without a snapshot says why it has no table."""
    (note,) = candidate_blocks(DecisionCandidates(bind=CandidateList(unknown="it is gone")))

    assert isinstance(note, PageNote)
    assert note.text == "\N{EN DASH}: it is gone."
