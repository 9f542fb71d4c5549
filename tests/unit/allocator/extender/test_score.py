"""Scores: how a node's load becomes a number that a scheduler adds to its own."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.config.settings import ScoreWeights, SettingsError, settings_of
from allocator.extender.score import IDLE, MOST_SCORE, NodeLoad, gpu_closeness, load_of, score
from allocator.model.gpu import Node
from allocator.model.request import BINPACK as DEFAULT
from allocator.model.request import FillPolicies, FillPolicy, Mode
from allocator.model.units import MiB
from allocator.placement.topology import idle_of
from tests.builders.model import T4, ask, gpu, mig_grant, node, nodes_of, pod, soft_grant

EVEN = ScoreWeights()
BINPACK, SPREAD = FillPolicy

LOADS = st.builds(NodeLoad, *[st.integers(0, 1000)] * 3)
WEIGHT = st.integers(0, 100)
WEIGHTS = st.builds(
    ScoreWeights, memory=st.integers(1, 100), cores=WEIGHT, shares=WEIGHT, topology=WEIGHT
)


@pytest.mark.parametrize(
    ("load", "binpack", "spread"),
    [
        pytest.param(IDLE, 0, 10, id="idle"),
        pytest.param(NodeLoad(1000, 1000, 1000), 10, 0, id="full"),
        pytest.param(NodeLoad(600, 300, 300), 4, 6, id="mean-of-the-parts"),
        pytest.param(NodeLoad(100, 100, 100), 1, 9, id="a-tenth"),
        pytest.param(NodeLoad(101, 101, 101), 2, 8, id="more-than-a-tenth"),
        pytest.param(NodeLoad(1, 0, 0), 1, 9, id="hardly-busy"),
    ],
)
def test_a_load_has_a_score_by_either_policy(load: NodeLoad, binpack: int, spread: int) -> None:
    """Binpack likes the busy node, spread the idle one."""
    assert (score(load, BINPACK, EVEN), score(load, SPREAD, EVEN)) == (binpack, spread)


@given(LOADS, LOADS, WEIGHTS)
def test_a_busier_node_never_scores_the_other_way_round(
    one: NodeLoad, other: NodeLoad, weights: ScoreWeights
) -> None:
    """Whatever the weights, scores are 0 to 10 and follow the load in one direction."""
    more = NodeLoad(*map(max, one, other))

    assert 0 <= score(one, BINPACK, weights) <= score(more, BINPACK, weights) <= MOST_SCORE
    assert MOST_SCORE >= score(one, SPREAD, weights) >= score(more, SPREAD, weights) >= 0


def test_weights_decide_which_part_counts() -> None:
    """A node full of memory and idle of compute is what the operator says it is."""
    load = NodeLoad(1000, 0, 0)

    assert score(load, BINPACK, ScoreWeights(memory=1, cores=0, shares=0)) == 10
    assert score(load, BINPACK, ScoreWeights(memory=0, cores=1, shares=0)) == 0
    assert score(load, BINPACK, ScoreWeights(memory=3, cores=1, shares=0)) == 8


@pytest.mark.parametrize("packing", [BINPACK, SPREAD])
def test_closeness_is_liked_by_either_policy(packing: FillPolicy) -> None:
    """GPUs that are close together count for a node whichever way it is filled."""
    load = NodeLoad(500, 500, 500)

    weights = ScoreWeights(topology=3)

    far, unknown, close, best = (
        score(load, packing, weights, closeness=n) for n in (0, None, 700, 1000)
    )

    assert far < unknown < close < best


def test_the_load_counts_all_gpus_and_what_is_foreign() -> None:
    """Memory by size, shares and compute by GPU; processes outside the ledger take memory too."""
    one = gpu(T4, index=0, grants=[soft_grant(7680, 50)])
    two = replace(gpu(T4, index=1), foreign=MiB(3840))

    assert load_of(node("n0", one, two)) == NodeLoad(375, 250, 50)


def test_an_instance_takes_slots_whatever_was_asked() -> None:
    """Half of a board is half of its memory and compute."""
    cut = gpu(mode=Mode.MIG, grants=[mig_grant("3g.20gb", 0)])

    assert load_of(node("n0", cut)) == NodeLoad(500, 500, 100)


def test_an_unhealthy_gpu_is_no_load() -> None:
    """What nobody may use makes a node neither busy nor idle."""
    broken = replace(gpu(T4, index=0, grants=[soft_grant(15000, 100)]), healthy=False)

    assert load_of(node("n0", broken, gpu(T4, index=1))) == IDLE
    assert load_of(node("n0", broken)) == IDLE


def in_numa(*numas: int | None, busy: int = 0) -> Node:
    """Build a node with one GPU per item, in that NUMA node; the first *busy* are in use."""
    gpus = [
        replace(gpu(T4, index=i, grants=[soft_grant(1)] * (i < busy)), numa=numa)
        for i, numa in enumerate(numas)
    ]
    return node("n0", *gpus)


def on_switches(*switches: str, numa: int | None = None) -> Node:
    """Build a node with one GPU per item, on that PCIe switch."""
    gpus = [replace(gpu(T4, index=i), numa=numa, switch=name) for i, name in enumerate(switches)]
    return node("n0", *gpus)


def joined(there: Node, *pairs: tuple[int, int]) -> Node:
    """Return *there* with NVLinks between pairs of GPUs by index."""
    links = {i: tuple(there.gpus[b].uuid for a, b in pairs if a == i) for i in range(9)}
    return replace(there, gpus=tuple(replace(g, links=links[g.index]) for g in there.gpus))


BOTH_WAYS = ((0, 1), (1, 0))


@pytest.mark.parametrize(
    ("there", "count", "expected"),
    [
        pytest.param(in_numa(0, 0, 1, 1), 1, None, id="one-gpu-is-close-to-itself"),
        pytest.param(in_numa(None, None), 2, None, id="not-known"),
        pytest.param(in_numa(0, 0, 1, 1), 2, 500, id="two-of-two"),
        pytest.param(in_numa(0, 0, 1, 1), 3, 0, id="three-of-two"),
        pytest.param(in_numa(0, 0, 1, busy=1), 2, 0, id="one-is-busy"),
        pytest.param(in_numa(0), 2, 0, id="too-few"),
        pytest.param(on_switches("a", "a", "b"), 2, 700, id="one-switch"),
        pytest.param(on_switches("a", "b", numa=0), 2, 500, id="two-switches"),
        pytest.param(on_switches("a", "b"), 2, 0, id="two-switches-somewhere"),
        pytest.param(joined(in_numa(0, 1), *BOTH_WAYS), 2, 900, id="linked"),
        pytest.param(joined(in_numa(0, 0), *BOTH_WAYS), 2, 1000, id="linked-on-one-numa-node"),
        pytest.param(joined(in_numa(0, 0, 0), *BOTH_WAYS), 3, 500, id="the-farthest-pair-counts"),
        pytest.param(joined(in_numa(0, 0), (0, 1)), 2, 500, id="a-link-that-one-end-denies"),
    ],
)
def test_a_node_is_near_by_its_idle_gpus(there: Node, count: int, expected: int | None) -> None:
    """As many idle GPUs as are wanted are on one NUMA node or PCIe switch, or linked."""
    assert gpu_closeness(idle_of(there.gpus), pod(ask(1000, count=count))) == expected


def test_instances_are_on_no_link() -> None:
    """What is cut speaks to no other GPU, so links and switches bring nothing together."""
    cut = [replace(gpu(mode=Mode.MIG, index=i), numa=0, switch="a") for i in range(2)]
    there = joined(node("n0", *cut), *BOTH_WAYS)

    assert gpu_closeness(idle_of(there.gpus), pod(ask(1000, count=2))) == 500


def test_a_node_without_gpus_is_idle() -> None:
    """It is not offered, but a score must not fail on it."""
    assert load_of(nodes_of(0)) == IDLE


def test_the_cluster_s_policies_are_settings() -> None:
    """Both levels and all weights can be set; what is left out is as it was."""
    found = settings_of("nodePolicy: spread\nscoreWeights: {cores: 5}")

    assert found.fill_policies == FillPolicies(node=SPREAD, gpu=BINPACK)
    assert found.score_weights == ScoreWeights(cores=5)
    assert settings_of("").fill_policies == DEFAULT


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("nodePolicy: pack", "accepted: binpack, spread", id="no-policy"),
        pytest.param("scoreWeights: {memory: 101}", "scoreWeights.memory", id="too-heavy"),
        pytest.param("scoreWeights: {links: 1}", "links", id="unknown-part"),
        pytest.param(
            "scoreWeights: {memory: 0, cores: 0, shares: 0}", "give one a weight", id="all-nought"
        ),
    ],
)
def test_policies_that_mean_nothing_are_refused(text: str, told: str) -> None:
    """The last good settings stay, and the log says what would do."""
    with pytest.raises(SettingsError, match=told):
        settings_of(text)
