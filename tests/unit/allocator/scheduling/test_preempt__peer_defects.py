"""Defects of other schedulers that concern preemption and scores, as tests of ours.

The names are those of the projects: V is Volcano's deviceshare, H is HAMi.
"""

from dataclasses import replace

from msgspec import structs

from allocator.config.settings import ScoreWeights
from allocator.extender.score import MOST_SCORE, gpu_closeness, load_of, score
from allocator.model.request import FillPolicies, FillPolicy, Mode
from allocator.placement.choose import PlacementPolicy, choose
from allocator.placement.topology import idle_of
from allocator.scheduling.preempt import select_victims
from allocator.scheduling.victims import least_victims
from tests.builders.choices import gpus
from tests.builders.model import (
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
from tests.builders.preemption import args, cluster, named, offer, preemptor, resident

EVEN = ScoreWeights()
BINPACK, SPREAD = FillPolicy


def test_v_spread_is_not_nought_for_every_node() -> None:
    """Deviceshare looks at a GPU's use after its own increment, so that spread scores 0."""
    idle, busy = nodes_of(1, T4), node("n1", gpu(T4, grants=[soft_grant(15000, 100)]))

    assert score(load_of(idle), SPREAD, EVEN) == MOST_SCORE
    assert score(load_of(busy), SPREAD, EVEN) < MOST_SCORE


def test_v_a_score_does_not_grow_with_the_number_of_gpus() -> None:
    """Deviceshare adds up its GPUs, so that eight full ones outweigh every other plugin."""
    full = [gpu(T4, index=i, grants=[soft_grant(15360, 100)] * 10) for i in range(8)]

    assert score(load_of(node("n0", *full)), BINPACK, EVEN) == MOST_SCORE


def test_v_preemption_and_bind_look_for_the_same_gpus() -> None:
    """Deviceshare's dry run knows no policy, so that the bind may choose another GPU."""
    residents = [resident(f"p{i}", (i, soft_grant(30000))) for i in range(2)]
    index = cluster((nodes_of(2, name="n0"), residents))
    asked = pod(ask(20000), mode=Mode.HAMI_CORE)
    request = structs.replace(asked, fill_policies=FillPolicies(gpu=SPREAD))

    evicted = named(index, preemptor(request), args(n0=offer()))["n0"]
    after = index.node("n0", without=evicted)

    assert after is not None
    assert gpus(choose(snapshot(after), request, node="n0")) == [f"GPU-n0-{evicted[0][-1]}"]


def test_v1_two_containers_need_two_slots() -> None:
    """A slot that one eviction opens is not promised to both containers of the preemptor."""
    cut = nodes_of(1, A100_40, mode=Mode.MIG, name="n0")
    there = [
        resident("low", (0, mig_grant("3g.20gb", 0))),
        resident("strong", (0, mig_grant("3g.20gb", 4)), priority=200),
    ]
    index = cluster((cut, there))
    two = pod(ask(15000, name="a"), ask(15000, name="b"), mode=Mode.MIG)

    assert named(index, preemptor(two), args(n0=offer(["low"]))) == {}


def test_v6_a_failed_dry_run_leaves_nothing_behind() -> None:
    """Deviceshare's rollback gives back another amount than it took."""
    cut = nodes_of(1, A100_40, mode=Mode.MIG, name="n0")
    index = cluster((cut, [resident("s", (0, mig_grant("7g.40gb", 0)))]))
    sizes = [90000, 15000, 90000, 15000]

    found = [
        named(index, preemptor(pod(ask(size), mode=Mode.MIG)), args(n0=offer(["s"])))
        for size in sizes
    ]

    assert found == [{}, {"n0": ["s"]}] * 2


def test_h_equal_candidates_are_told_apart_the_same_way_each_time() -> None:
    """HAMi takes whichever its map yields first; replicas of ours agree."""
    there = [resident(f"p{i}", (i, soft_grant(40000))) for i in range(2)]
    one, other = (cluster((nodes_of(2, name="n0"), order)) for order in (there, there[::-1]))
    wanted = preemptor(pod(ask(30000), mode=Mode.HAMI_CORE))

    assert named(one, wanted, args(n0=offer())) == named(other, wanted, args(n0=offer()))


def test_h_spread_does_not_invert_closeness() -> None:
    """HAMi multiplies a topology score by the sign of the policy, so that spread scatters."""
    close = node("n0", *(replace(gpu(T4, index=i), numa=0) for i in range(2)))
    apart = node("n1", *(replace(gpu(T4, index=i), numa=i) for i in range(2)))
    two = pod(ask(1000, count=2))

    scores = [
        score(load_of(n), SPREAD, EVEN, closeness=gpu_closeness(idle_of(n.gpus), two))
        for n in (close, apart)
    ]

    assert scores[0] > scores[1]


def test_h_numa_comes_before_the_policy_for_several_gpus_only() -> None:
    """HAMi sorted single GPUs by NUMA node first, so that its policies looked wrong."""
    numas = (1, 0, 1)
    there = [
        replace(gpu(index=i, grants=[soft_grant(held)]), numa=numa)
        for i, (numa, held) in enumerate(zip(numas, (0, 20000, 10000), strict=True))
    ]
    found = choose(snapshot(node("n0", *there)), pod(ask(4000), mode=Mode.HAMI_CORE))

    assert gpus(found) == ["GPU-n0-1"]


def test_a_question_changes_nothing() -> None:
    """A preemption that is only asked about leaves the index as it was, for the next question."""
    there = [resident(f"p{i}", (i, soft_grant(40000)), deleting=i == 1) for i in range(2)]
    index = cluster((nodes_of(2, name="n0"), there))
    before = index.node_infos["n0"].node
    wanted = preemptor(pod(ask(30000), mode=Mode.HAMI_CORE))

    first, second = (
        select_victims(index, wanted, args(n0=offer(["p0"])), policy=PlacementPolicy())
        for _ in range(2)
    )

    assert first == second
    assert index.node_infos["n0"].node is before


def test_nobody_to_evict_is_not_enough_of_nobody() -> None:
    """The search itself says no, and yes to nobody at all, without a special case."""
    assert least_victims([], bool, same_gpu=True) is None
    assert least_victims([], lambda gone: not gone, same_gpu=True) == ()
