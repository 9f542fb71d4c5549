"""Policies in the choice itself: which GPU, and which node, a pod gets by binpack and spread."""

from dataclasses import replace

import pytest
from msgspec import structs

from allocator.model.gpu import Gpu, Snapshot
from allocator.model.request import FillPolicies, FillPolicy, Mode
from allocator.placement.choose import PlacementPolicy, choose
from tests.builders.choices import gpus
from tests.builders.model import A30, ask, gpu, mig_grant, node, pod, snapshot, soft_grant

BINPACK, SPREAD = FillPolicy


def soft(index: int, memory: int) -> Gpu:
    return gpu(index=index, grants=[soft_grant(memory)])


def cut(index: int, slices: int) -> Gpu:
    held = [mig_grant("1g.6gb", start, product=A30) for start in range(slices)]
    return gpu(A30, index=index, mode=Mode.MIG, grants=held)


SHARED = snapshot(node("n0", soft(0, 10000), soft(1, 30000), soft(2, 0)))
CUT = snapshot(node("n0", cut(0, 1), cut(1, 2), cut(2, 0)))


@pytest.mark.parametrize(
    ("there", "mode"), [(SHARED, Mode.HAMI_CORE), (CUT, Mode.MIG)], ids=["shared", "cut"]
)
@pytest.mark.parametrize(
    ("packing", "expected"),
    [(BINPACK, "GPU-n0-1"), (SPREAD, "GPU-n0-2")],
    ids=["binpack", "spread"],
)
def test_the_gpu_follows_the_policy(
    there: Snapshot, mode: Mode, *, packing: FillPolicy, expected: str
) -> None:
    """Binpack takes the busiest GPU that has room, spread the idle one, in either mode."""
    policy = PlacementPolicy(fill_policies=FillPolicies(node=BINPACK, gpu=packing))

    assert gpus(choose(there, pod(ask(4000), mode=mode), policy=policy)) == [expected]


@pytest.mark.parametrize("mode", [Mode.HAMI_CORE, Mode.MIG])
@pytest.mark.parametrize(("packing", "expected"), [(BINPACK, "busy"), (SPREAD, "idle")])
def test_the_node_follows_the_policy(mode: Mode, *, packing: FillPolicy, expected: str) -> None:
    """The same for nodes, where the choice between them is ours."""
    make = soft if mode is Mode.HAMI_CORE else lambda index, held: cut(index, held // 10000)
    there = snapshot(node("busy", make(0, 20000)), node("idle", make(0, 0)))
    policy = PlacementPolicy(fill_policies=FillPolicies(node=packing, gpu=BINPACK))

    found = choose(there, pod(ask(4000), mode=mode), policy=policy)

    assert found.assignment is not None
    assert found.assignment.node == expected


def test_the_pod_goes_before_the_cluster() -> None:
    """An annotation overrides the setting at the level it names."""
    wish = structs.replace(pod(ask(4000)), fill_policies=FillPolicies(gpu=SPREAD))

    assert gpus(choose(SHARED, wish)) == ["GPU-n0-2"]


@pytest.mark.parametrize("mode", [Mode.HAMI_CORE, Mode.MIG])
def test_several_gpus_come_from_one_numa_node(mode: Mode) -> None:
    """Being close beats being full where a container wants several GPUs."""
    make = soft if mode is Mode.HAMI_CORE else lambda index, held: cut(index, held // 10000)
    numas = {0: (0, 20000), 1: (1, 10000), 2: (0, 0), 3: (1, 10000)}
    there = [replace(make(i, held), numa=numa) for i, (numa, held) in numas.items()]

    found = choose(snapshot(node("n0", *there)), pod(ask(4000, count=2), mode=mode))

    assert {uuid[-1] for uuid in gpus(found)} in ({"0", "2"}, {"1", "3"})


def test_closeness_is_no_condition() -> None:
    """Where no NUMA node has enough GPUs the pod gets those that there are."""
    there = [replace(soft(i, 0), numa=i) for i in range(2)]

    found = choose(snapshot(node("n0", *there)), pod(ask(4000, count=2), mode=Mode.HAMI_CORE))

    assert set(gpus(found)) == {"GPU-n0-0", "GPU-n0-1"}


@pytest.mark.parametrize(
    ("mode", "expected"), [(Mode.HAMI_CORE, {"1", "2"}), (Mode.MIG, {"0", "1"})]
)
def test_a_link_beats_a_numa_node_unless_gpus_are_cut(mode: Mode, expected: set[str]) -> None:
    """GPUs that speak to each other come first, and instances speak to none."""
    make = soft if mode is Mode.HAMI_CORE else cut
    links = {1: ("GPU-n0-2",), 2: ("GPU-n0-1",)}
    there = [replace(make(i, 0), numa=i // 2, links=links.get(i, ())) for i in range(4)]

    found = choose(snapshot(node("n0", *there)), pod(ask(4000, count=2), mode=mode))

    assert {uuid[-1] for uuid in gpus(found)} == expected
