"""Defects of peers in choosing, by their numbers V1 to V9, that must not be ours."""

from dataclasses import replace

from allocator.model.request import Filters, Mode
from allocator.placement.choose import FitVerdict, choose
from tests.builders.choices import cuts, gpus, one_mig_gpu, only, text
from tests.builders.model import (
    A100_80,
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


def test_v1_containers_of_one_pod_never_share_a_slot() -> None:
    """A place is reserved in the step that returns it."""
    names = [f"c{i}" for i in range(7)]

    found = choose(one_mig_gpu(), pod(*(ask(4000, name=name) for name in names)))

    assert sorted(cuts(found, name)[0] for name in names) == [f"1g.5gb@{i}" for i in range(7)]


def test_v2_a_group_in_use_still_offers_its_other_profiles() -> None:
    """With the 1g of {3x2g, 1x1g} in use, a 2g of that group can be had."""
    policy = only("group2=3x2g.20gb+1x1g.10gb")
    there = one_mig_gpu(mig_grant("1g.10gb", 6, product=A100_80), product=A100_80)

    found = choose(there, pod(ask(15000)), policy=policy)

    assert cuts(found)[0].startswith("2g.20gb")


def test_v3_the_smallest_of_a_group_is_taken_first() -> None:
    """With a 2g in use, a small request takes the free 1g, not another 2g."""
    policy = only("group2=3x2g.20gb+1x1g.10gb")
    there = one_mig_gpu(mig_grant("2g.20gb", 0, product=A100_80), product=A100_80)

    found = choose(there, pod(ask(8000)), policy=policy)

    assert cuts(found)[0].startswith("1g.10gb")


def test_v3_a_larger_one_serves_when_the_group_has_no_small_one_left() -> None:
    """Where the site's groups leave only a 2g, a small request is not refused."""
    policy = only("group2=3x2g.20gb+1x1g.10gb")
    there = one_mig_gpu(mig_grant("1g.10gb", 6, product=A100_80), product=A100_80)

    found = choose(there, pod(ask(8000)), policy=policy)

    assert cuts(found)[0].startswith("2g.20gb")


def test_v4_an_emptied_gpu_has_no_geometry() -> None:
    """Instances that nobody holds bind nobody to their group."""
    policy = only("group1=7x1g.10gb", "group3=2x3g.40gb")
    there = one_mig_gpu(product=A100_80, instances=[("1g.10gb", i) for i in range(7)])

    found = choose(there, pod(ask(30000)), policy=policy)

    assert cuts(found)[0].startswith("3g.40gb")


def test_v5_every_container_on_a_gpu_counts() -> None:
    """Two grants of one pod on one GPU are both in the way of the next."""
    there = snapshot(node("n0", gpu(T4, grants=[soft_grant(6000), soft_grant(6000)])))

    found = choose(there, pod(ask(4000)))

    assert found.verdict is FitVerdict.NOT_NOW


def test_v6_a_failed_attempt_leaves_nothing_behind() -> None:
    """A pod that fits only in part changes nothing for the next."""
    there = snapshot(nodes_of(1, mode=MIG))
    before = choose(there, pod(ask(30000)))

    failed = choose(there, pod(ask(18000, name="a"), ask(30000, name="b")))
    again = choose(there, pod(ask(30000)))

    assert failed.assignment is None
    assert again == before


def test_v7_an_unhealthy_gpu_is_never_given() -> None:
    """Health is tested, and said where it is what is missing."""
    there = snapshot(node("n0", replace(gpu(T4), healthy=False)))

    found = choose(there, pod(ask(1000)))

    assert found.verdict is FitVerdict.NOT_NOW
    assert text(found) == (
        "pod: every GPU that qualifies is unhealthy; wait until one recovers [GpuUnhealthy]"
    )


def test_v7_uuids_match_as_a_whole() -> None:
    """GPU-n0-1 is not GPU-n0-10."""
    there = snapshot(node("n0", *(gpu(T4, index=i) for i in (1, 10))))

    found = choose(there, pod(ask(1000), filters=Filters(uuids=("GPU-n0-10",))))

    assert gpus(found) == ["GPU-n0-10"]


def test_v8_each_gpu_has_its_own_mode() -> None:
    """One node serves both modes, and a MIG GPU of unknown shapes never serves in software."""
    unknown = replace(gpu(mode=MIG, index=0), board=None)
    there = snapshot(node("n0", unknown, gpu(index=1)))

    soft = choose(there, pod(ask(1000), mode=SOFT))
    hard = choose(there, pod(ask(1000), mode=MIG))

    assert gpus(soft) == ["GPU-n0-1"]
    assert [c.detail for c in hard.candidates] == [
        "no such MIG profile",
        "in mode hami-core",
    ]


def test_v9_group_names_may_contain_anything() -> None:
    """A dash in the name of a group is part of the name."""
    found = choose(one_mig_gpu(product=A100_80), pod(ask(8000)), policy=only("group-1-a=7x1g.10gb"))

    assert cuts(found)[0].startswith("1g.10gb")
