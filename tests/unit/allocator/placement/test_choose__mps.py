"""GPUs in mode mps: who gets one, and who never does."""

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
