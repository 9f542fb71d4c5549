"""GPUs in mode mps: who gets one, and who never does."""

from dataclasses import replace

import pytest

from allocator.model.allocation import Grant
from allocator.model.request import Mode
from allocator.model.units import CorePercent, MiB
from allocator.placement.choose import FitVerdict, choose
from tests.builders.choices import gpus
from tests.builders.model import ask, gpu, node, nodes_of, pod, snapshot

IN_MPS = nodes_of(2, mode=Mode.MPS, name="mps")
SOFT = nodes_of(2, name="soft")
ALL = gpu().memory
HARD = nodes_of(2, mode=Mode.MIG, name="hard")


def mps_grant(memory: int, cores: int = 0) -> Grant:
    return Grant(gpu="GPU-0", mode=Mode.MPS, memory=MiB(memory), cores=CorePercent(cores))


@pytest.mark.parametrize("mode", [None, Mode.HAMI_CORE, Mode.MEMORY_ONLY, Mode.MIG])
def test_a_gpu_in_mode_mps_takes_no_other_pod(mode: Mode | None) -> None:
    """Not even where nothing else is left; a program without our variables has no limit there."""
    found = choose(snapshot(IN_MPS), pod(ask(3000), mode=mode))

    assert found.verdict is not FitVerdict.FITS
    assert found.assignment is None


def test_a_pod_in_mode_mps_gets_such_a_gpu_only() -> None:
    """In the other modes nobody runs a daemon for it."""
    request = pod(ask(3000, cores=30), mode=Mode.MPS)

    assert choose(snapshot(SOFT, HARD), request).assignment is None
    assert gpus(choose(snapshot(SOFT, HARD, IN_MPS), request)) == ["GPU-mps-0"]


@pytest.mark.parametrize(
    ("held", "memory", "cores", "fits"),
    [
        (mps_grant(1000), ALL - 1000, 0, True),
        (mps_grant(1000), ALL - 999, 0, False),
        (mps_grant(1000, 70), 1000, 30, True),
        (mps_grant(1000, 71), 1000, 30, False),
    ],
)
def test_nothing_is_promised_twice(held: Grant, memory: int, cores: int, *, fits: bool) -> None:
    """Memory and cores of all pods in the mode are at most those of the GPU."""
    there = node("n0", gpu(mode=Mode.MPS, grants=[held]))
    found = choose(snapshot(there), pod(ask(memory, cores=cores), mode=Mode.MPS))

    assert (found.assignment is not None) is fits


@pytest.mark.parametrize(
    ("held", "cores", "fits"),
    [
        pytest.param([10] * 7, 10, True, id="the-eighth-of-2-chunks"),
        pytest.param([10] * 8, 10, False, id="the-ninth-of-2-chunks"),
        pytest.param([10] * 8, 0, False, id="no-chunk-left-for-one-without-cores"),
        pytest.param([0] * 15, 6, True, id="the-last-chunk"),
        pytest.param([0] * 15, 7, False, id="more-than-the-last-chunk"),
        pytest.param([50], 50, True, id="half-and-half"),
        pytest.param([51], 50, False, id="9-and-8-chunks"),
        pytest.param([], 100, True, id="all-of-them"),
        pytest.param([0], 100, False, id="all-but-one"),
    ],
)
def test_no_more_chunks_are_promised_than_there_are(
    held: list[int], cores: int, *, fits: bool
) -> None:
    """On a GPU whose compute is divided, each share counts as the chunks that it takes."""
    there = gpu(mode=Mode.MPS, grants=[mps_grant(10, each) for each in held])
    there = replace(there, chunks=16, slots=48)
    found = choose(snapshot(node("n0", there)), pod(ask(10, cores=cores), mode=Mode.MPS))

    assert (found.assignment is not None) is fits


def test_containers_of_one_pod_are_rounded_one_by_one() -> None:
    """Four of them at 10 % take eight chunks of sixteen, so a fifth at 51 % does not fit."""
    there = node("n0", replace(gpu(mode=Mode.MPS), chunks=16))
    small = [ask(10, cores=10, name=f"c{number}") for number in range(4)]

    for cores, fits in ((50, True), (51, False)):
        request = pod(*small, ask(10, cores=cores, name="large"), mode=Mode.MPS)
        assert (choose(snapshot(there), request).assignment is not None) is fits
