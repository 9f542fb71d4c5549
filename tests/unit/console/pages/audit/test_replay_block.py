"""What a decision's page says of deciding again."""

import msgspec

from console.pages.audit.replay_block import replay_block
from console.pages.parts.blocks import FactList
from console.replay.life import ReplayedLife, replayed_life
from tests.builders.gpunodes import gpu_node
from tests.unit.console.replay.test_life import ADMITTED, BOUND, THERE, life, source
from tests.unit.console.sites import machine, site


def test_nothing_is_said_where_nothing_was_decided() -> None:
    """A page has no empty heading."""
    assert replay_block(ReplayedLife()) is None


def test_a_decision_that_comes_out_again_is_said_with_today() -> None:
    """A reader sees both verdicts, and where the pod would go now."""
    cluster = site([gpu_node(THERE)], [machine("gpu-b")])
    records = life(ADMITTED.admission, BOUND.bind)

    shown = replay_block(replayed_life(records, source(ADMITTED, BOUND), site=cluster))

    assert shown is not None
    again, today = shown.blocks
    assert isinstance(again, FactList)
    assert isinstance(today, FactList)
    assert [(label, cell.text, cell.mark) for label, (cell,) in again.rows] == [
        ("Admission", "decided again on its own snapshot: the same", "✓"),
        ("Bind", "decided again on its own snapshot: the same", "✓"),
        ("Today", "decided as then; fits now", "✓"),
    ]
    assert any("gpu-b GPU 0" in cell.text for _, cells in today.rows for cell in cells)
    assert shown.document["admission"]["result"] == "same"
    assert shown.document["today"]["verdict"] == "fits"


def test_a_difference_is_shown_by_field() -> None:
    """Values are code, which nobody translates."""
    assert ADMITTED.admission is not None
    other = msgspec.structs.replace(ADMITTED.admission, rule="so", version="1.0.0")

    shown = replay_block(replayed_life(life(other), source(ADMITTED)))

    assert shown is not None
    (block,) = shown.blocks
    assert isinstance(block, FactList)
    (_, (verdict,)), (field, (values,)) = block.rows
    assert verdict.mark == "✕"
    assert (field, values.code) == ("rule", True)
    assert shown.document["admission"] == {
        "result": "different",
        "changed": {"rule": {"recorded": "so", "replayed": "no other mode can serve it here"}},
        "recordedVersion": "1.0.0",
        "version": "1.2.3",
    }
