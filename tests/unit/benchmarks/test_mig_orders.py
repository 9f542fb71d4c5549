"""Arrival orders on one empty board."""

import json
from pathlib import Path

import pytest

from benchmarks.mig import A100
from benchmarks.mig_orders import Score, best_order_count, main, orders, scores
from tests.builders.model import profile

REV2 = (*A100.plain, profile("1g.10gb"))


def test_every_order_of_every_set_that_fits_is_offered() -> None:
    """An A100 takes 113 orders of its plain profiles, 424 with double memory."""
    plain, rev2 = list(orders(A100.plain)), list(orders(REV2))

    assert (len(plain), len(set(plain))) == (113, 113)
    assert (len(rev2), len(set(rev2))) == (424, 424)


def test_no_policy_can_place_more_than_the_bound() -> None:
    """Without foresight 99 and 393 orders are the most."""
    assert (best_order_count(A100.plain), best_order_count(REV2)) == (99, 393)


@pytest.mark.parametrize(
    ("policy", "plain", "rev2"),
    [
        pytest.param("ours", Score(99, 32), Score(393, 65), id="ours"),
        pytest.param("lowest start", Score(86, 24), Score(287, 45), id="lowest-start"),
        pytest.param("HAMi 2.10", Score(95, 32), Score(308, 62), id="hami-2.10"),
        pytest.param("HAMi #2855", Score(99, 30), Score(328, 56), id="hami-2855"),
        pytest.param("pure reach", Score(99, 32), Score(392, 67), id="reach"),
        pytest.param("pure capacity loss", Score(98, 34), Score(316, 66), id="capacity-loss"),
    ],
)
def test_what_each_policy_places(policy: str, plain: Score, rev2: Score) -> None:
    """Figures of an independent enumeration: orders in full, sets in every order."""
    assert scores(A100.plain)[policy] == plain
    assert scores(REV2)[policy] == rev2


def test_the_command_judges_ours(tmp_path: Path) -> None:
    """Both bars are in the file and the run succeeds only if they hold."""
    file = tmp_path / "orders.json"

    code = main(["--json", str(file)])

    bars = json.loads(file.read_text())["bars"]
    assert code == 0
    assert [(bar["name"], bar["holds"]) for bar in bars] == [
        ("a100_orders", True),
        ("a100_rev2_orders", True),
    ]
