"""Random arrivals on a fleet."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from allocator.model.board import Profile
from benchmarks.loss_system import AcceptedShare, Arrival, Setting, arrivals, offer_pods
from benchmarks.mig import A100, Ours, SlotPick
from benchmarks.mig_loss import GIVEN, GRID, HAMI, OURS, bars, main
from tests.builders.model import profile

CELL = Setting(mix="default", gpus=8, load=0.85)


def first_slot(masks: Sequence[int], wanted: Profile) -> SlotPick | None:
    """Place at slot 0 of the first GPU, and only there."""
    return None if masks[0] else SlotPick(0, wanted.mask(0))


def test_equal_seeds_bring_equal_pods() -> None:
    """All policies, today and tomorrow, meet the same arrivals."""
    assert list(arrivals(CELL, jobs=50, seed=3)) == list(arrivals(CELL, jobs=50, seed=3))
    assert list(arrivals(CELL, jobs=50, seed=3)) != list(arrivals(CELL, jobs=50, seed=4))


def test_load_is_slots_asked_for_per_slot_there_is() -> None:
    """Arrivals ask, over time, for the load times the slots of the fleet."""
    pods = list(arrivals(CELL, jobs=20_000, seed=0))

    asked = sum(pod.profile.size * (pod.until - pod.at) for pod in pods) / pods[-1].at

    assert asked / (8 * A100.slots) == pytest.approx(0.85, rel=0.03)


def test_a_place_is_free_again_when_its_pod_has_ended() -> None:
    """The second pod finds the GPU busy and is lost, the third finds it free."""
    times = [(0, 2), (1, 9), (3, 4)]
    pods = [Arrival(at, until, profile("1g.5gb")) for at, until in times]

    taken = offer_pods(first_slot, pods, gpus=1)

    assert taken.jobs == pytest.approx(200 / 3)


def test_the_filling_of_the_fleet_is_not_counted() -> None:
    """Of five pods the first is left out: nothing after it is served."""
    pods = [Arrival(i, 100, profile("1g.5gb")) for i in range(5)]

    assert offer_pods(first_slot, pods, gpus=1) == AcceptedShare(0, 0)


def test_a_policy_that_gives_a_slot_twice_is_caught() -> None:
    """A benchmark does not reward overlapping instances."""
    pods = [Arrival(i, 100, profile("1g.5gb")) for i in range(2)]

    with pytest.raises(ValueError, match="already taken"):
        offer_pods(lambda _masks, wanted: SlotPick(0, wanted.mask(0)), pods, gpus=1)


def test_ours_learns_from_each_arrival_once() -> None:
    """Served or not, a pod is one arrival; only those turned away count as failures."""
    policy = Ours(A100, A100.plain)

    policy([0], profile("7g.40gb"))
    policy([0b1], profile("7g.40gb"))

    learned = policy.demand.boards[A100.name]
    assert learned.arrivals == pytest.approx(2, abs=0.01)
    assert learned.failures == pytest.approx(1 / 500)


def test_bars_are_means_over_cells_and_the_worst_of_both_measures() -> None:
    """Two cells: the mean gain on one peer, the least gain on the other."""
    seed = {
        OURS: AcceptedShare(90, 80),
        HAMI: AcceptedShare(89, 79),
        GIVEN: AcceptedShare(90.1, 79),
    }
    better = seed | {OURS: AcceptedShare(91, 83)}
    results = {GRID[0]: [seed, seed], GRID[1]: [better, better]}

    values = {bar.name: bar.value for bar in bars(results)}

    assert values == pytest.approx(
        {
            "mean_jobs_vs_hami_2855": 1.5,
            "mean_slots_vs_hami_2855": 2.5,
            "worst_cell_vs_capacity_loss": -0.1,
        }
    )


def test_a_quick_run_goes_through_the_grid_and_judges_nothing(tmp_path: Path) -> None:
    """Sixteen cells are measured; so few arrivals prove nothing, so there are no bars."""
    file = tmp_path / "loss.json"

    code = main(["--quick", "--json", str(file)])

    written = json.loads(file.read_text())
    assert (code, written["bars"], len(written["cells"])) == (0, [], 16)
