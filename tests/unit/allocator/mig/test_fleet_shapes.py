"""Which shapes of boards a fleet is planned with."""

from collections.abc import Iterable
from itertools import count

from allocator.mig.fleet_shapes import CALM_SECONDS, MOST_AT_ONCE, MOST_SHAPES, FleetShapes
from allocator.mig.slot_policy import MOST_TABLES, board_facts
from allocator.model.board import Board, Profile
from allocator.model.gpu import Gpu
from allocator.model.request import Mode
from allocator.model.units import MiB
from tests.builders.model import A100_40, gpu

HONEST = [gpu(A100_40, mode=Mode.MIG)]


def shaped(number: int) -> Gpu:
    """Build a GPU whose board has the shape of this number."""
    starts = tuple(slot for slot in range(8) if number >> slot & 1)
    size = 1
    profile = Profile(name="1g.1gb", id=0, memory=MiB(1), sms=1, size=size, starts=starts or (0,))
    other = Profile(name="2g.1gb", id=1, memory=MiB(1), sms=1, size=size, starts=(number >> 8,))
    board = Board(name="B", slots=8, profiles=(profile, other))
    return Gpu(
        uuid=f"GPU-{number}",
        index=0,
        model="B",
        memory=MiB(1),
        mode=Mode.MIG,
        slots=7,
        board=board,
    )


def gpus(numbers: Iterable[int]) -> list[Gpu]:
    return [shaped(number) for number in numbers]


def test_a_node_that_writes_new_boards_again_and_again_waits() -> None:
    """Tables are built once a minute for it, however often it writes."""
    fleet, numbers = FleetShapes(), count(1)
    built_before = board_facts.cache_info().misses
    admitted = []
    for second in range(600):
        fleet.begin()
        new = gpus(next(numbers) for _ in range(2))
        admitted.append(fleet.admit("hostile", new, now=float(second)))

    assert sum(admitted) == 600 / CALM_SECONDS
    assert board_facts.cache_info().misses - built_before <= 2 * sum(admitted)


def test_a_hostile_node_delays_nobody_else() -> None:
    """Known boards are admitted at any time, and another node's new ones too."""
    fleet = FleetShapes()
    assert fleet.admit("a", HONEST, now=0.0)
    assert fleet.admit("hostile", gpus((1, 2)), now=0.0)
    assert not fleet.admit("hostile", gpus((3, 4)), now=1.0)

    assert fleet.admit("b", HONEST, now=1.0)
    assert fleet.admit("c", gpus((5,)), now=1.0)
    assert fleet.admit("hostile", HONEST, now=1.0)


def test_an_answer_builds_few_tables() -> None:
    """Many nodes with boards of their own are taken up one answer after the other."""
    fleet, names = FleetShapes(), [f"n{i}" for i in range(12)]
    waiting, rounds = set(names), 0
    while waiting:
        fleet.begin()
        built = board_facts.cache_info().misses
        waiting = {
            name
            for name in sorted(waiting)
            if not fleet.admit(
                name, gpus(range(4 * int(name[1:]) + 1, 4 * int(name[1:]) + 5)), now=0.0
            )
        }
        rounds += 1

        assert board_facts.cache_info().misses - built <= MOST_AT_ONCE
    assert rounds == 3


def test_a_fleet_has_room_for_so_many_shapes() -> None:
    """Beyond them a node waits until others are gone, and every known one keeps its table."""
    fleet, late = FleetShapes(), gpus((MOST_SHAPES + 1,))
    for number in range(1, MOST_SHAPES + 1):
        fleet.begin()
        assert fleet.admit(f"n{number}", gpus((number,)), now=0.0)
    fleet.begin()

    assert MOST_SHAPES < MOST_TABLES
    assert not fleet.admit("late", late, now=0.0)
    assert fleet.admit("n1", gpus((1,)), now=0.0)
    fleet.drop("n7")
    assert fleet.admit("late", late, now=0.0)
    assert not fleet.admit("n7", gpus((7,)), now=2 * CALM_SECONDS)


def test_a_node_whose_boards_come_back_is_known() -> None:
    """An agent that restarts reports none for a while."""
    fleet = FleetShapes()
    assert fleet.admit("a", gpus((1,)), now=0.0)
    assert fleet.admit("a", [], now=1.0)

    assert fleet.admit("a", gpus((1,)), now=2.0)


def test_gpus_that_are_not_cut_need_no_table() -> None:
    """However full the fleet is."""
    fleet = FleetShapes()

    assert all(fleet.admit(f"n{i}", [gpu()], now=0.0) for i in range(2 * MOST_SHAPES))
