"""Choosing agrees with exhaustive search, promises nothing twice, and advises what works."""

from dataclasses import replace

from hypothesis import strategies as st

from allocator.model.gpu import Gpu
from allocator.model.units import MiB
from tests.builders import (
    A30,
    T4,
    board,
    gpu,
    init,
    sidecar,
    soft_grant,
)

PLAIN = board(A30).plain

STAGES = st.sampled_from([lambda a: a, lambda a: a, init, sidecar])


@st.composite
def soft_gpus(draw: st.DrawFn, index: int) -> Gpu:
    held = draw(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0, 30, 100])), max_size=2))
    grants = [soft_grant(1000 * memory, cores) for memory, cores in held]
    foreign = MiB(1000 * draw(st.integers(0, 2)))
    return replace(gpu(T4, index=index, grants=grants), slots=3, foreign=foreign)
