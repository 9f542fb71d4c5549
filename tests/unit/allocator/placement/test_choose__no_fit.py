"""What a pod hears that gets nothing: what is short, what would fit, and whether to wait."""

from dataclasses import replace

import pytest

from allocator.model.decision import Reason
from allocator.model.gpu import Snapshot
from allocator.model.request import Filters, Mode, PodRequest
from allocator.placement.candidates import group_candidates
from allocator.placement.choose import FitVerdict, choose
from tests.builders.choices import one_mig_gpu, text
from tests.builders.model import (
    A30,
    A100_40,
    T4,
    ask,
    gpu,
    mig_grant,
    node,
    nodes_of,
    pod,
    snapshot,
    soft_grant,
)

MIG, SOFT = Mode.MIG, Mode.HAMI_CORE


@pytest.mark.parametrize(
    ("there", "request_", "verdict", "said"),
    [
        pytest.param(
            snapshot(node("n0", gpu(T4, grants=[soft_grant(10000)]), gpu(T4, index=1))),
            pod(ask(6000, count=2)),
            FitVerdict.NOT_NOW,
            'container "main": asks for 2 GPUs on one node; only 1 has room; '
            "ask for at most 5360 MiB now, or wait [TooManyDevices]",
            id="count",
        ),
        pytest.param(
            snapshot(node("n0", gpu(T4, grants=[soft_grant(10000)]))),
            pod(ask(6000)),
            FitVerdict.NOT_NOW,
            'container "main": asks for 6000 MiB on one GPU; the closest has 5360 free; '
            "ask for at most 5360 MiB now, or wait [GpuMemoryShort]",
            id="memory",
        ),
        pytest.param(
            snapshot(node("n0", gpu(T4, grants=[soft_grant(1000, 70)]))),
            pod(ask(6000, cores=50)),
            FitVerdict.NOT_NOW,
            'container "main": asks for 50 cores of one GPU; the closest has 30 free; '
            "ask for at most 30 cores now, or wait [GpuCoresShort]",
            id="cores",
        ),
        pytest.param(
            snapshot(node("n0", replace(gpu(T4, grants=[soft_grant(1)]), slots=1))),
            pod(ask(6000)),
            FitVerdict.NOT_NOW,
            'container "main": all 1 shares of the closest GPU are taken; '
            "wait until other pods end [GpuSharesShort]",
            id="shares",
        ),
        pytest.param(
            one_mig_gpu(mig_grant("4g.20gb", 0)),
            pod(ask(30000)),
            FitVerdict.NOT_NOW,
            'container "main": no GPU has free slots for a 7g.40gb instance; '
            "ask for at most 19968 MiB now, or wait [NoMatchingGeometry]",
            id="geometry",
        ),
        pytest.param(
            snapshot(nodes_of(1, T4)),
            pod(ask(9000, name="a"), ask(9000, name="b")),
            FitVerdict.NEVER,
            "pod: its containers together ask for more than the largest node has; "
            "ask for less per container, or split the pod [TooManyDevices]",
            id="together-never",
        ),
        pytest.param(
            snapshot(node("n0", gpu(T4, grants=[soft_grant(1000)]))),
            pod(ask(7500, name="a"), ask(7500, name="b")),
            FitVerdict.NOT_NOW,
            "pod: its containers fit one by one, but not together on one node; "
            'ask for at most 6860 MiB in container "a" now, or wait [GpuMemoryShort]',
            id="together-not-now",
        ),
        pytest.param(
            snapshot(nodes_of(1, A30, mode=MIG)),
            pod(ask(24400)),
            FitVerdict.NEVER,
            'container "main": no MIG profile here has 24400 MiB (largest: 4g.24gb on A30 with '
            "23344 MiB usable); ask for at most 23344 [NoMatchingGeometry]",
            id="geometry-never",
        ),
        pytest.param(
            snapshot(nodes_of(1, T4)),
            pod(ask(1000), filters=Filters(uuids=("GPU-none",))),
            FitVerdict.NEVER,
            "pod: volcano.sh/vgpu-use-gpuuuid names no GPU here; name the UUID of a GPU that "
            "exists, or remove volcano.sh/vgpu-use-gpuuuid [ModelUnavailable]",
            id="uuid-never",
        ),
        pytest.param(
            snapshot(nodes_of(1, T4)),
            pod(ask(1000), filters=Filters(not_uuids=("GPU-n0-0",))),
            FitVerdict.NEVER,
            "pod: volcano.sh/vgpu-nouse-gpuuuid excludes every GPU here; name fewer GPUs, "
            "or remove volcano.sh/vgpu-nouse-gpuuuid [ModelUnavailable]",
            id="not-uuid-never",
        ),
        pytest.param(
            snapshot(),
            pod(ask(1000)),
            FitVerdict.NEVER,
            "pod: no GPU is known here; "
            "wait until a node reports its GPUs, or choose another node [TooManyDevices]",
            id="no-gpu",
        ),
    ],
)
def test_what_stands_in_the_way(
    there: Snapshot, request_: PodRequest, *, verdict: FitVerdict, said: str
) -> None:
    """A number of the user's, a number of ours, and one that fits; never is not "not now"."""
    found = choose(there, request_)

    assert found.verdict is verdict
    assert text(found) == said


def test_a_stale_node_never_says_never() -> None:
    """An inventory that is too old to refuse on makes it "not now"."""
    stale = replace(nodes_of(1, T4), fresh=False)

    found = choose(snapshot(stale), pod(ask(90000)))

    assert found.verdict is FitVerdict.NOT_NOW


def test_one_node_is_judged_alone() -> None:
    """What fits elsewhere does not fit here, and other nodes are not candidates."""
    there = snapshot(nodes_of(1, T4, name="a"), nodes_of(1, A100_40, name="b"))

    found = choose(there, pod(ask(30000)), node="a")

    assert found.verdict is FitVerdict.NEVER
    assert {c.node for c in found.candidates} == {"a"}


def test_every_candidate_answers_and_equal_answers_fold() -> None:
    """Each GPU's verdict is kept; a thousand equal ones are one line."""
    there = snapshot(nodes_of(4, T4, name="a"), nodes_of(4, T4, name="b"), nodes_of(2, name="c"))

    found = choose(there, pod(ask(20000)))
    folded = [(c.model, c.reason, c.detail, n) for c, n in group_candidates(found.candidates)]

    assert len(found.candidates) == 10
    assert folded == [
        (T4, Reason.MEMORY_SHORT, "15360 of 15360 MiB free", 8),
        (A100_40, None, "40536 of 40536 MiB free", 2),
    ]


@pytest.mark.parametrize(
    ("fresh", "complete", "verdict"),
    [
        pytest.param(True, True, FitVerdict.NEVER, id="known"),
        pytest.param(False, True, FitVerdict.NOT_NOW, id="stale"),
        pytest.param(True, False, FitVerdict.NOT_NOW, id="incomplete"),
    ],
)
def test_only_what_is_known_refuses_for_ever(
    fresh: bool, complete: bool, verdict: FitVerdict
) -> None:
    """A node that has not reported for a while may have been given other GPUs."""
    there = snapshot(
        node("n0", gpu(T4)), node("n1", gpu(T4, index=1), fresh=fresh), complete=complete
    )

    assert choose(there, pod(ask(90000))).verdict is verdict


def test_on_one_node_only_that_node_must_be_known() -> None:
    """A bind asks about its own node, whatever is known of others."""
    there = snapshot(node("n0", gpu(T4)), node("n1", gpu(T4, index=1), fresh=False), complete=False)

    assert choose(there, pod(ask(90000)), node="n0").verdict is FitVerdict.NEVER
    assert choose(there, pod(ask(90000)), node="n1").verdict is FitVerdict.NOT_NOW
