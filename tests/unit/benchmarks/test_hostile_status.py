"""The benchmark of hostile nodes: what it asks about is the worst that is accepted."""

import tracemalloc
from collections.abc import Callable
from random import Random

import pytest

from allocator.ledger.schema import MOST_BOARDS, MOST_GPUS, MOST_INSTANCES
from allocator.mig.board_bounds import MOST_PLAIN, MOST_PLAIN_STARTS, MOST_PROFILES, excess_of
from allocator.mig.slot_policy import MOST_UNITS, board_facts, shape_of_board
from benchmarks.hostile_board import first_question, mode_of, requests
from benchmarks.hostile_status import (
    BEYOND,
    LARGEST,
    NAMED,
    STATUSES,
    Json,
    cut_gpus,
    gpu_node,
    linked_gpus,
)

MIB = 1 << 20


def written(status: Callable[[Random], Json], seed: int = 0) -> Json:
    return status(Random(seed))  # noqa: S311 -- repeatable boards


@pytest.mark.parametrize("status", [*STATUSES, *LARGEST.values()])
def test_each_status_is_accepted(status: Callable[[Random], Json]) -> None:
    """A closed node would cost nothing."""
    document = written(status)
    for request in requests(mode_of(document)):
        found = first_question(gpu_node(document), request)

        assert found.closed == ""
        assert len(found.node.gpus) == MOST_GPUS


@pytest.mark.parametrize("status", BEYOND.values(), ids=BEYOND)
def test_what_no_hardware_has_is_not_read(status: Callable[[Random], Json]) -> None:
    """So that nobody computes with it."""
    (request, *_) = requests(mode_of(written(status)))

    assert first_question(gpu_node(written(status)), request).node.gpus == ()


def test_boards_are_as_large_as_any_may_be() -> None:
    """Every bound is reached, by all boards of a node, and no two share a table."""
    status = written(cut_gpus)
    (request, *_) = requests(mode_of(status))
    found = first_question(gpu_node(status), request)
    boards = {gpu.board for gpu in found.node.gpus if gpu.board is not None}

    assert len(boards) == len(set(map(shape_of_board, boards))) == MOST_BOARDS
    assert len(status["instances"]) == MOST_INSTANCES
    for board in boards:
        assert excess_of(board) is None
        assert len(board.profiles) == MOST_PROFILES
        assert (len(board.plain), board.profile(NAMED) is None) == (MOST_PLAIN, False)
        assert sum(len(p.starts) for p in board.plain) == MOST_PLAIN_STARTS
        assert len(board_facts(shape_of_board(board)).orders) == 1 << MOST_UNITS


@pytest.mark.parametrize("status", [cut_gpus, linked_gpus])
def test_the_worst_status_takes_little_memory(status: Callable[[Random], Json]) -> None:
    """It took 445 MiB while a board could have 16 slots and 64 profiles."""
    raws = [gpu_node(written(status, seed)) for seed in range(4)]
    (request, *_) = requests(mode_of(written(status)))
    tracemalloc.start()
    try:
        for raw in raws:
            first_question(raw, request)
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < 8 * MIB
    assert most < 16 * MIB
