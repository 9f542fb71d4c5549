"""GPUs whose compute is divided into chunks: what a share takes, in chunks and in percent."""

from dataclasses import replace

import msgspec
import pytest

from allocator.model.allocation import Grant
from allocator.model.gpu import MOST_CHUNKS, Gpu
from allocator.model.request import Mode
from allocator.model.units import WHOLE_GPU, CorePercent, MiB
from allocator.placement.fit import headroom, with_grant
from tests.builders.model import gpu

SHARE = Grant(gpu="GPU-0", mode=Mode.MPS, memory=MiB(100), cores=CorePercent(0))


def divided(chunks: int, *cores: int) -> Gpu:
    """Return a GPU of *chunks* chunks with a grant for each of *cores*."""
    grants = [msgspec.structs.replace(SHARE, cores=CorePercent(each)) for each in cores]
    return replace(gpu(mode=Mode.MPS, grants=grants), chunks=chunks)


@pytest.mark.parametrize(
    ("chunks", "cores", "taken"),
    [
        *((16, 10, 2), (16, 1, 1), (16, 6, 1), (16, 7, 2), (16, 50, 8), (16, 100, 16), (16, 0, 1)),
        *((7, 14, 1), (7, 15, 2), (100, 37, 37), (1, 1, 1), (0, 10, 0)),
    ],
)
def test_a_share_takes_whole_chunks(chunks: int, cores: int, taken: int) -> None:
    """Rounded up, and at least one: without a chunk a program does not start there."""
    assert divided(chunks).chunks_for(CorePercent(cores)) == taken


@pytest.mark.parametrize("chunks", range(1, MOST_CHUNKS + 1))
def test_percents_say_the_same_as_chunks(chunks: int) -> None:
    """A request fits by its percent exactly where the chunks that it takes are left."""
    there = divided(chunks)
    for taken in range(chunks + 1):
        left = WHOLE_GPU - there.percent_of(taken)
        for cores in range(1, WHOLE_GPU + 1):
            needed = there.chunks_for(CorePercent(cores))
            assert (cores <= left) is (taken + needed <= chunks)


@pytest.mark.parametrize("chunks", range(MOST_CHUNKS + 1))
def test_grants_add_up_one_by_one(chunks: int) -> None:
    """It makes no difference whether a grant is on the GPU already or is promised just now."""
    cores = [0, 1, 7, 10, 13, 25]
    step_by_step = headroom(divided(chunks))
    for each in cores:
        grant = msgspec.structs.replace(SHARE, cores=CorePercent(each))
        step_by_step = with_grant(step_by_step, grant)

    assert step_by_step.cores == headroom(divided(chunks, *cores)).cores


def test_a_gpu_without_chunks_counts_percents() -> None:
    """Ten shares of 10 % fill it, and one without cores takes none."""
    assert divided(0, *[10] * 10).cores_promised == WHOLE_GPU
    assert divided(0, 0, 30).cores_promised == 30
