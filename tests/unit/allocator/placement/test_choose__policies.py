"""Policies in the choice itself: which GPU, and which node, a pod gets by binpack and spread."""

from collections.abc import Collection
from dataclasses import replace

import pytest
from msgspec import structs

from allocator.model.gpu import Gpu, Node, Snapshot
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


# The links of a DGX-1, whose GPUs each have four neighbours: three in their quad, one across.
QUADS = ({0, 1, 2, 3}, {4, 5, 6, 7})
ACROSS = ({0, 4}, {1, 5}, {2, 6}, {3, 7})


def dgx1(*busy: int) -> Node:
    """Build a DGX-1, with a quad on each NUMA node, whose *busy* GPUs are full."""
    there = (soft(i, 40960) if i in busy else gpu(index=i) for i in range(8))
    return linked(*(replace(one, numa=one.index // 4) for one in there), groups=(*QUADS, *ACROSS))


def linked(*there: Gpu, groups: Collection[set[int]]) -> Node:
    """Build a node where NVLink joins all GPUs of each group with one another."""
    return node(
        "n0",
        *(
            replace(
                one,
                links=tuple(
                    f"GPU-n0-{other}"
                    for other in range(len(there))
                    if other != one.index and any({one.index, other} <= group for group in groups)
                ),
            )
            for one in there
        ),
    )


def idle(count: int, mode: Mode = Mode.HAMI_CORE) -> list[Gpu]:
    return [gpu(A30, index=i, mode=mode) for i in range(count)]


# Of a DGX-1 with Volta, whose GPUs have six links each. The others of ACROSS and QUADS have one.
DOUBLE = ({0, 3}, {1, 2}, {2, 3}, {4, 7}, {5, 6}, {6, 7}, {0, 4}, {1, 5})


def dgx1_volta(*busy: int, counted: bool = True) -> Node:
    """Build a DGX-1 whose agent reports how many links join two GPUs, unless it is an older one."""
    there = dgx1(*busy)

    def count(one: Gpu, uuid: str) -> int:
        return 2 if {one.index, int(uuid[-1])} in DOUBLE else 1

    counts = {one.uuid: tuple(count(one, uuid) for uuid in one.links) for one in there.gpus}
    gpus_of = tuple(
        replace(one, link_counts=counts[one.uuid] if counted else ()) for one in there.gpus
    )
    return replace(there, gpus=gpus_of)


@pytest.mark.parametrize(
    ("there", "count", "expected"),
    [
        pytest.param(dgx1_volta(), 2, {0, 3}, id="two"),
        pytest.param(dgx1_volta(3), 2, {1, 2}, id="two-beside-a-busy-one"),
        pytest.param(dgx1_volta(3, 2, 4, 7), 2, {5, 6}, id="two-of-a-half-busy-machine"),
        pytest.param(dgx1_volta(2, 3, 4, 5, 7), 2, {0, 1}, id="no-double-link-is-left"),
        pytest.param(dgx1_volta(), 4, {0, 1, 2, 3}, id="a-quad"),
        pytest.param(dgx1_volta(counted=False), 2, {0, 1}, id="an-older-agent"),
        pytest.param(dgx1_volta(2), 1, {1}, id="one-breaks-fewest-links"),
    ],
)
def test_more_links_are_closer(there: Node, count: int, expected: set[int]) -> None:
    """Two links beat one, and any link beats none."""
    found = choose(snapshot(there), pod(ask(4000, count=count)))

    assert {int(uuid[-1]) for uuid in gpus(found)} == expected


def test_links_that_one_end_counts_alone_are_none() -> None:
    """GPU 0 claims three links to GPU 1, which knows of one; 2 and 3 are really joined by two."""
    there = linked(*idle(6), groups=[{0, 1}, {2, 3}, {4, 5}])
    counts = (3, 1, 2, 2, 1, 1)
    counted = tuple(
        replace(one, link_counts=(count,)) for one, count in zip(there.gpus, counts, strict=True)
    )

    found = choose(snapshot(replace(there, gpus=counted)), pod(ask(4000, count=2)))

    assert gpus(found) == ["GPU-n0-2", "GPU-n0-3"]


@pytest.mark.parametrize("counts", [(2,), (2, 1, 1, 1, 1), (0, 0, 0, 0)])
def test_counts_that_fit_no_list_are_unknown(counts: tuple[int, ...]) -> None:
    """A count of another length says nothing; no link at all is none."""
    plain = dgx1()
    odd = replace(plain, gpus=tuple(replace(one, link_counts=counts) for one in plain.gpus))
    none = replace(plain, gpus=tuple(replace(one, links=()) for one in plain.gpus))

    found = choose(snapshot(odd), pod(ask(4000, count=4)))

    same = plain if any(counts) else none
    assert gpus(found) == gpus(choose(snapshot(same), pod(ask(4000, count=4))))


@pytest.mark.parametrize("packing", [BINPACK, SPREAD])
@pytest.mark.parametrize(
    ("there", "expected"),
    [
        pytest.param(dgx1(6), 4, id="dgx-1-from-the-broken-quad"),
        pytest.param(dgx1(1, 4, 6), 5, id="dgx-1-the-one-with-fewest-left"),
        pytest.param(dgx1(), 0, id="dgx-1-idle-all-are-alike"),
        pytest.param(linked(*idle(5), groups=[{0, 1, 2, 3}]), 4, id="the-single-one"),
        pytest.param(linked(*idle(6), groups=[{0, 1, 2, 3}, {4, 5}]), 4, id="a-pair"),
        pytest.param(linked(*idle(8), groups=[set(range(8))]), 0, id="one-switch-for-all"),
        pytest.param(linked(*idle(4), groups=[]), 0, id="no-links"),
        pytest.param(
            linked(*idle(5, Mode.MIG), groups=[{0, 1, 2, 3}]), 0, id="instances-have-no-links"
        ),
    ],
)
def test_one_gpu_breaks_no_whole_group(there: Node, packing: FillPolicy, expected: int) -> None:
    """A pod of one GPU takes the one that has the fewest idle neighbours by NVLink."""
    policy = PlacementPolicy(fill_policies=FillPolicies(node=BINPACK, gpu=packing))
    mode = there.gpus[-1].mode

    found = choose(snapshot(there), pod(ask(4000), mode=mode), policy=policy)

    assert gpus(found) == [f"GPU-n0-{expected}"]


@pytest.mark.parametrize(("packing", "expected"), [(BINPACK, 0), (SPREAD, 1)])
def test_the_policy_goes_before_the_links(packing: FillPolicy, expected: int) -> None:
    """A slice packs onto the GPU in use; by spread it gets an idle one, which breaks a pair."""
    there = linked(soft(0, 10000), gpu(index=1), gpu(index=2), groups=[{0, 1, 2}])
    policy = PlacementPolicy(fill_policies=FillPolicies(node=BINPACK, gpu=packing))

    found = choose(snapshot(there), pod(ask(4000)), policy=policy)

    assert gpus(found) == [f"GPU-n0-{expected}"]


def test_two_containers_of_one_gpu_break_one_pair() -> None:
    """What the first container takes is no idle neighbour any more when the second chooses."""
    there = linked(*idle(4), groups=[{0, 1}, {2, 3}])
    request = pod(ask(cores=100), ask(cores=100, name="second"), mode=Mode.HAMI_CORE)

    found = choose(snapshot(there), request).assignment

    assert found is not None
    both = [grant.gpu for container in found.containers for grant in container.grants]
    assert sorted(both) == ["GPU-n0-0", "GPU-n0-1"]
