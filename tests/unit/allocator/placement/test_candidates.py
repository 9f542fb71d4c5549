"""What keeps a GPU from serving a pod whatever is free on it, and what one NUMA node has left."""

from dataclasses import replace

import msgspec
import pytest

from allocator.extender.filter import FilterContext, filter_nodes
from allocator.extender.index import IndexBuilder
from allocator.extender.pod import SchedulingPod
from allocator.ledger.assign import PodClaim
from allocator.model.decision import Reason
from allocator.model.gpu import Gpu
from allocator.model.request import METAX, Filters, Mode, PodRequest
from allocator.placement.candidates import exclusion
from allocator.placement.choose import PlacementPolicy
from tests.builders.model import A100_40, T4, ask, gpu, node, pod, soft_grant

SOFT = (Mode.HAMI_CORE,)
SICK = replace(gpu(T4), healthy=False)
FOREIGN = replace(gpu(T4), family=METAX)


@pytest.mark.parametrize(
    ("there", "filters", "modes", "reason"),
    [
        pytest.param(gpu(T4), Filters(), SOFT, None, id="none"),
        pytest.param(gpu(T4), Filters(), (Mode.MIG, Mode.HAMI_CORE), None, id="either-mode"),
        pytest.param(gpu(T4), Filters(), (Mode.MEMORY_ONLY,), None, id="served-by-hami-core"),
        pytest.param(gpu(T4), Filters(), (Mode.MIG,), Reason.MODE_UNAVAILABLE, id="mode"),
        pytest.param(gpu(T4), Filters(), (Mode.MPS,), Reason.MODE_UNAVAILABLE, id="mps"),
        pytest.param(
            gpu(T4, mode=Mode.MPS), Filters(), SOFT, Reason.MODE_UNAVAILABLE, id="in-mode-mps"
        ),
        pytest.param(FOREIGN, Filters(), SOFT, Reason.MODEL_UNAVAILABLE, id="family"),
        pytest.param(
            gpu(T4), Filters(models=("A100",)), SOFT, Reason.MODEL_UNAVAILABLE, id="model"
        ),
        pytest.param(gpu(T4), Filters(uuids=("GPU-9",)), SOFT, Reason.MODEL_UNAVAILABLE, id="uuid"),
        pytest.param(SICK, Filters(), SOFT, Reason.UNHEALTHY, id="unhealthy"),
    ],
)
def test_a_gpu_is_out_of_the_question(
    there: Gpu, filters: Filters, *, modes: tuple[Mode, ...], reason: Reason | None
) -> None:
    """By its mode, make, model, UUID or health, whatever else fits; the reason is the first."""
    found = exclusion(there, pod(ask(1000), filters=filters), modes)

    assert (None if found is None else found[0]) is reason


TWO = msgspec.structs.replace(pod(ask(1000, count=2)), one_numa=True)


@pytest.mark.parametrize(
    ("second", "filters", "fits"),
    [
        pytest.param(gpu(T4, index=1), Filters(), True, id="two"),
        pytest.param(replace(SICK, index=1), Filters(), False, id="one-is-sick"),
        pytest.param(gpu(A100_40, index=1), Filters(models=("T4",)), False, id="another-model"),
        pytest.param(
            gpu(T4, index=1, grants=[soft_grant(15000)]), Filters(), False, id="one-is-full"
        ),
        pytest.param(gpu(T4, index=1, mode=Mode.MPS), Filters(), False, id="another-mode"),
    ],
)
def test_gpus_that_are_out_of_the_question_are_no_room_on_a_numa_node(
    second: Gpu, filters: Filters, *, fits: bool
) -> None:
    """Two others of the node, each on a NUMA node of its own, do not make up for it."""
    asked: PodRequest = msgspec.structs.replace(TWO, filters=filters)
    others = [replace(gpu(T4, index=at), numa=at) for at in (2, 3)]
    gpus = [replace(one, numa=0) for one in (gpu(T4), second)]
    builder = IndexBuilder()
    builder.put(node("n0", *gpus, *others))

    found = filter_nodes(
        builder.index(version="1", complete=True),
        SchedulingPod(uid="p", namespace="t", name="p", claim=PodClaim(uid="p", request=asked)),
        ("n0",),
        context=FilterContext(policy=PlacementPolicy()),
    )

    assert list(found.fitting) == (["n0"] if fits else [])
