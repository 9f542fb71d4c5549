"""Which GPUs and places a pod gets, and what it hears when it gets none."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from allocator.core.candidates import grouped
from allocator.core.choose import Choice, Terms, Verdict, choose
from allocator.core.geometry import Entry, Geometries, Group, Item
from allocator.core.settings import Prefer
from allocator.model.decision import Reason
from allocator.model.gpu import Grant, Snapshot
from allocator.model.request import ContainerRequest, Filters, Mode, PodRequest
from allocator.model.units import MiB
from tests.builders import (
    A30,
    A100_40,
    A100_80,
    T4,
    ask,
    gpu,
    init,
    mig_grant,
    node,
    nodes_of,
    placed,
    pod,
    sidecar,
    snapshot,
    soft_grant,
)

MIG, SOFT = Mode.MIG, Mode.HAMI_CORE


def grants(choice: Choice) -> dict[str, tuple[Grant, ...]]:
    assert choice.assignment is not None, choice.findings
    return {found.name: found.grants for found in choice.assignment.containers}


def gpus(choice: Choice, container: str = "main") -> list[str]:
    return [grant.gpu for grant in grants(choice)[container]]


def cuts(choice: Choice, container: str = "main") -> list[str]:
    return [
        f"{grant.placed.profile}@{grant.placed.start}"
        for grant in grants(choice)[container]
        if grant.placed is not None
    ]


def one_mig_gpu(
    *held: Grant, product: str = A100_40, instances: Iterable[tuple[str, int]] = ()
) -> Snapshot:
    there = [placed(name, start, product) for name, start in instances]
    return snapshot(node("n0", gpu(product, mode=MIG, grants=held, instances=there)))


def text(choice: Choice) -> str:
    assert choice.assignment is None
    (finding,) = choice.findings
    return f"{finding} [{finding.reason}]"


def only(*groups: str, product: str = "A100-SXM4-80GB") -> Terms:
    """Allow exactly *groups* on a model: ``mixed-1=3x2g.20gb+1x1g.10gb``."""
    return Terms(
        geometries=Geometries(
            (Entry(models=(product,), groups=tuple(group(text) for text in groups)),)
        )
    )


def group(spelled: str) -> Group:
    name, _, parts = spelled.partition("=")
    pairs = (part.split("x", 1) for part in parts.split("+"))
    items = tuple(Item(profile=p, memory=MiB(0), count=int(n)) for n, p in pairs)
    return Group(name=name, items=items)


def test_the_fullest_gpu_that_fits_is_taken() -> None:
    """Binpack keeps whole GPUs free for those who need one."""
    node_ = node(
        "n0",
        gpu(index=0),
        gpu(index=1, grants=[soft_grant(20000)]),
        gpu(index=2, grants=[soft_grant(39000)]),
    )

    found = choose(snapshot(node_), pod(ask(4000)))

    assert gpus(found) == ["GPU-n0-1"]


def test_the_fullest_node_that_fits_is_taken() -> None:
    """Binpack keeps whole nodes free too, though a GPU elsewhere is as full."""
    idle = node("a", *(gpu(index=i) for i in range(4)))
    busy = node("b", gpu(index=0, grants=[soft_grant(40000)]), gpu(index=1))

    found = choose(snapshot(idle, busy), pod(ask(4000)))

    assert gpus(found) == ["GPU-b-1"]


def test_containers_share_a_gpu_and_devices_of_one_do_not() -> None:
    """One container's GPUs are distinct; another container of the pod may sit beside it."""
    found = choose(
        snapshot(nodes_of(2)), pod(ask(4000, count=2, name="two"), ask(4000, name="one"))
    )

    assert sorted(gpus(found, "two")) == ["GPU-n0-0", "GPU-n0-1"]
    assert gpus(found, "one") == ["GPU-n0-0"]


def test_an_order_that_a_greedy_choice_misses_is_found() -> None:
    """The container with least choice does not come last, and a dead end is left again."""
    tight = node(
        "n0", gpu(index=0, grants=[soft_grant(20536)]), gpu(index=1, grants=[soft_grant(10536)])
    )

    found = choose(snapshot(tight), pod(ask(20000, name="small"), ask(30000, name="large")))

    assert gpus(found, "small") == ["GPU-n0-0"]
    assert gpus(found, "large") == ["GPU-n0-1"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        pytest.param(Filters(models=("a100",)), "GPU-n0-0", id="model"),
        pytest.param(Filters(not_models=("A100",)), "GPU-n0-1", id="model-denied"),
        pytest.param(Filters(uuids=("GPU-n0-1",)), "GPU-n0-1", id="uuid"),
        pytest.param(Filters(not_uuids=("GPU-n0-1",)), "GPU-n0-0", id="uuid-denied"),
    ],
)
def test_filters_by_model_and_uuid(filters: Filters, expected: str) -> None:
    """Models match by substring, UUIDs as a whole, and a denial beats a permission."""
    mixed = snapshot(node("n0", gpu(A100_40, index=0), gpu(T4, index=1)))

    found = choose(mixed, pod(ask(1000), filters=filters))

    assert gpus(found) == [expected]


def test_the_grant_is_what_hardware_gives() -> None:
    """Memory is the profile's, not what was asked; cores are as asked."""
    found = choose(one_mig_gpu(), pod(ask(4000, cores=10)))

    (grant,) = grants(found)["main"]
    assert (grant.memory, grant.cores) == (4864, 10)


def test_an_idle_instance_breaks_a_tie() -> None:
    """Of two GPUs that lose as much, the one where the instance exists is taken."""
    empty = choose(one_mig_gpu(), pod(ask(4000)))
    (cut,) = cuts(empty)
    start = int(cut.partition("@")[2])
    there = gpu(mode=MIG, index=1, instances=[placed("1g.5gb", start)])

    found = choose(snapshot(node("n0", gpu(mode=MIG, index=0), there)), pod(ask(4000)))

    assert gpus(found) == ["GPU-n0-1"]


def test_gpus_of_all_nodes_are_ranked_together() -> None:
    """The GPU that loses least wins wherever it is: here the only one with a hole of that size."""
    holed = gpu(mode=MIG, grants=[mig_grant("4g.20gb", 0), mig_grant("2g.10gb", 4)])

    found = choose(snapshot(nodes_of(4, mode=MIG, name="a"), node("b", holed)), pod(ask(4000)))

    assert gpus(found) == ["GPU-b-0"]


def test_limits_of_the_driver_hold() -> None:
    """A profile with media engines exists once, although there is room for more."""
    request = pod(ask(), profile="1g.5gb+me")

    first = choose(one_mig_gpu(), request)
    second = choose(one_mig_gpu(mig_grant("1g.5gb+me", 6)), request)

    assert cuts(first)[0].startswith("1g.5gb+me@")
    assert second.verdict is Verdict.NOT_NOW


def test_a_container_may_need_a_place_that_is_not_the_best() -> None:
    """Three containers that only fit in one way are placed that way."""
    found = choose(
        one_mig_gpu(mig_grant("1g.5gb", 0)),
        pod(ask(9000, name="a"), ask(18000, name="b"), ask(4000, name="c")),
    )

    assert cuts(found, "b") == ["3g.20gb@4"]
    assert cuts(found, "a") == ["2g.10gb@2"]
    assert cuts(found, "c") == ["1g.5gb@1"]


def test_an_open_mode_follows_what_is_free() -> None:
    """What was the best as if empty may be revised when only the other mode has room."""
    full = gpu(mode=MIG, index=0, grants=[mig_grant("7g.40gb", 0)])

    both = choose(snapshot(node("n0", gpu(mode=MIG, index=0), gpu(index=1))), pod(ask(4000)))
    revised = choose(snapshot(node("n0", full, gpu(index=1))), pod(ask(4000)))

    assert gpus(both) == ["GPU-n0-0"]
    assert gpus(revised) == ["GPU-n0-1"]


def test_a_preference_overrides() -> None:
    """Density takes the software share where MIG would withhold a little more."""
    there = snapshot(node("n0", gpu(mode=MIG, index=0), gpu(index=1)))

    found = choose(there, pod(ask(4000)), terms=Terms(prefer=Prefer.DENSITY))

    assert gpus(found) == ["GPU-n0-1"]


def test_memory_only_is_accounted_beside_software_shares() -> None:
    """A GPU without isolation is still not promised twice."""
    there = snapshot(node("n0", gpu(T4, grants=[soft_grant(10000)])))

    fits = choose(there, pod(ask(5000), mode=Mode.MEMORY_ONLY))
    over = choose(there, pod(ask(6000), mode=Mode.MEMORY_ONLY))

    assert grants(fits)["main"][0].mode is Mode.MEMORY_ONLY
    assert over.verdict is Verdict.NOT_NOW


@pytest.mark.parametrize(
    ("containers", "fits"),
    [
        pytest.param([init(ask(15000)), ask(15000)], True, id="init-is-over-before-apps"),
        pytest.param([init(ask(15000)), init(ask(15000)), ask(1)], True, id="inits-one-by-one"),
        pytest.param([sidecar(ask(9000)), ask(9000)], False, id="sidecar-runs-beside-apps"),
        pytest.param([sidecar(ask(9000)), init(ask(9000)), ask(1)], False, id="and-beside-inits"),
        pytest.param([init(ask(9000)), sidecar(ask(9000)), ask(1)], True, id="not-yet-started"),
    ],
)
def test_what_runs_at_one_time_adds_up(containers: list[ContainerRequest], fits: bool) -> None:
    """Init containers are over when the apps start; sidecars are not."""
    named = [replace(container, name=f"c{i}") for i, container in enumerate(containers)]

    found = choose(snapshot(nodes_of(1, T4)), pod(*named))

    assert (found.verdict is Verdict.FITS) is fits


def test_an_init_container_has_what_the_app_will_have() -> None:
    """No instance is cut for it where the app's suffices, even if a smaller one would do."""
    found = choose(
        snapshot(nodes_of(2, mode=MIG)), pod(init(ask(4000, name="prepare")), ask(18000))
    )

    assert grants(found)["prepare"][0].placed == grants(found)["main"][0].placed
    assert gpus(found, "prepare") == gpus(found)


def test_v1_containers_of_one_pod_never_share_a_slot() -> None:
    """A place is reserved in the step that returns it."""
    names = [f"c{i}" for i in range(7)]

    found = choose(one_mig_gpu(), pod(*(ask(4000, name=name) for name in names)))

    assert sorted(cuts(found, name)[0] for name in names) == [f"1g.5gb@{i}" for i in range(7)]


def test_v2_a_group_in_use_still_offers_its_other_profiles() -> None:
    """With the 1g of {3x2g, 1x1g} in use, a 2g of that group can be had."""
    terms = only("group2=3x2g.20gb+1x1g.10gb")
    there = one_mig_gpu(mig_grant("1g.10gb", 6, product=A100_80), product=A100_80)

    found = choose(there, pod(ask(15000)), terms=terms)

    assert cuts(found)[0].startswith("2g.20gb")


def test_v3_the_smallest_of_a_group_is_taken_first() -> None:
    """With a 2g in use, a small request takes the free 1g, not another 2g."""
    terms = only("group2=3x2g.20gb+1x1g.10gb")
    there = one_mig_gpu(mig_grant("2g.20gb", 0, product=A100_80), product=A100_80)

    found = choose(there, pod(ask(8000)), terms=terms)

    assert cuts(found)[0].startswith("1g.10gb")


def test_v3_a_larger_one_serves_when_the_group_has_no_small_one_left() -> None:
    """Where the site's groups leave only a 2g, a small request is not refused."""
    terms = only("group2=3x2g.20gb+1x1g.10gb")
    there = one_mig_gpu(mig_grant("1g.10gb", 6, product=A100_80), product=A100_80)

    found = choose(there, pod(ask(8000)), terms=terms)

    assert cuts(found)[0].startswith("2g.20gb")


def test_v4_an_emptied_gpu_has_no_geometry() -> None:
    """Instances that nobody holds bind nobody to their group."""
    terms = only("group1=7x1g.10gb", "group3=2x3g.40gb")
    there = one_mig_gpu(product=A100_80, instances=[("1g.10gb", i) for i in range(7)])

    found = choose(there, pod(ask(30000)), terms=terms)

    assert cuts(found)[0].startswith("3g.40gb")


def test_v5_every_container_on_a_gpu_counts() -> None:
    """Two grants of one pod on one GPU are both in the way of the next."""
    there = snapshot(node("n0", gpu(T4, grants=[soft_grant(6000), soft_grant(6000)])))

    found = choose(there, pod(ask(4000)))

    assert found.verdict is Verdict.NOT_NOW


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

    assert found.verdict is Verdict.NOT_NOW
    assert text(found) == (
        "pod: every GPU that may serve it is unhealthy; wait until one recovers [GpuUnhealthy]"
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
        "no such MIG profile is known",
        "in mode hami-core",
    ]


def test_v9_group_names_may_contain_anything() -> None:
    """A dash in the name of a group is part of the name."""
    found = choose(one_mig_gpu(product=A100_80), pod(ask(8000)), terms=only("group-1-a=7x1g.10gb"))

    assert cuts(found)[0].startswith("1g.10gb")


@pytest.mark.parametrize(
    ("there", "request_", "verdict", "said"),
    [
        pytest.param(
            snapshot(node("n0", gpu(T4, grants=[soft_grant(10000)]), gpu(T4, index=1))),
            pod(ask(6000, count=2)),
            Verdict.NOT_NOW,
            'container "main": 2 GPUs on one node, but only 1 there have room; '
            "ask for at most 5360 MiB now, or wait [TooManyDevices]",
            id="count",
        ),
        pytest.param(
            snapshot(node("n0", gpu(T4, grants=[soft_grant(10000)]))),
            pod(ask(6000)),
            Verdict.NOT_NOW,
            'container "main": 6000 MiB on one GPU, but the closest GPU has 5360 free; '
            "ask for at most 5360 MiB now, or wait [GpuMemoryShort]",
            id="memory",
        ),
        pytest.param(
            snapshot(node("n0", gpu(T4, grants=[soft_grant(1000, 70)]))),
            pod(ask(6000, cores=50)),
            Verdict.NOT_NOW,
            'container "main": 50 cores of one GPU, but the closest GPU has 30 free; '
            "ask for at most 30 cores now, or wait [GpuCoresShort]",
            id="cores",
        ),
        pytest.param(
            snapshot(node("n0", replace(gpu(T4, grants=[soft_grant(1)]), slots=1))),
            pod(ask(6000)),
            Verdict.NOT_NOW,
            'container "main": the closest GPU has its 1 shares taken already; '
            "wait until other pods end [GpuSharesShort]",
            id="shares",
        ),
        pytest.param(
            one_mig_gpu(mig_grant("4g.20gb", 0)),
            pod(ask(30000)),
            Verdict.NOT_NOW,
            'container "main": no place for 7g.40gb on any GPU here; '
            "ask for at most 19968 MiB now, or wait [NoMatchingGeometry]",
            id="geometry",
        ),
        pytest.param(
            snapshot(nodes_of(1, T4)),
            pod(ask(9000, name="a"), ask(9000, name="b")),
            Verdict.NEVER,
            "pod: its containers together ask for more than the largest node has; "
            "ask for less per container, or split the pod [TooManyDevices]",
            id="together-never",
        ),
        pytest.param(
            snapshot(node("n0", gpu(T4, grants=[soft_grant(1000)]))),
            pod(ask(7500, name="a"), ask(7500, name="b")),
            Verdict.NOT_NOW,
            "pod: its containers fit one by one, but not together on one node; "
            'ask for at most 6860 MiB in container "a" now, or wait [GpuMemoryShort]',
            id="together-not-now",
        ),
        pytest.param(
            snapshot(nodes_of(1, A30, mode=MIG)),
            pod(ask(24400)),
            Verdict.NEVER,
            'container "main": no MIG profile here has 24400 MiB (largest: 4g.24gb on A30 with '
            "23344 usable); ask for at most 23344 [NoMatchingGeometry]",
            id="geometry-never",
        ),
        pytest.param(
            snapshot(nodes_of(1, T4)),
            pod(ask(1000), filters=Filters(uuids=("GPU-none",))),
            Verdict.NEVER,
            "pod: no GPU here has a UUID accepted; "
            "name the UUID of a GPU that exists [ModelUnavailable]",
            id="uuid-never",
        ),
        pytest.param(
            snapshot(),
            pod(ask(1000)),
            Verdict.NEVER,
            "pod: no GPU is known here; "
            "wait until a node reports its GPUs, or choose another node [TooManyDevices]",
            id="no-gpu",
        ),
    ],
)
def test_what_stands_in_the_way(
    there: Snapshot, request_: PodRequest, *, verdict: Verdict, said: str
) -> None:
    """A number of the user's, a number of ours, and one that fits; never is not "not now"."""
    found = choose(there, request_)

    assert found.verdict is verdict
    assert text(found) == said


def test_a_stale_node_never_says_never() -> None:
    """An inventory that is too old to refuse on makes it "not now"."""
    stale = replace(nodes_of(1, T4), fresh=False)

    found = choose(snapshot(stale), pod(ask(90000)))

    assert found.verdict is Verdict.NOT_NOW


def test_one_node_is_judged_alone() -> None:
    """What fits elsewhere does not fit here, and other nodes are not candidates."""
    there = snapshot(nodes_of(1, T4, name="a"), nodes_of(1, A100_40, name="b"))

    found = choose(there, pod(ask(30000)), node="a")

    assert found.verdict is Verdict.NEVER
    assert {c.node for c in found.candidates} == {"a"}


def test_every_candidate_answers_and_equal_answers_fold() -> None:
    """Each GPU's verdict is kept; a thousand equal ones are one line."""
    there = snapshot(nodes_of(4, T4, name="a"), nodes_of(4, T4, name="b"), nodes_of(2, name="c"))

    found = choose(there, pod(ask(20000)))
    folded = [(c.model, c.reason, c.detail, n) for c, n in grouped(found.candidates)]

    assert len(found.candidates) == 10
    assert folded == [
        (T4, Reason.MEMORY_SHORT, "15360 of 15360 MiB free", 8),
        (A100_40, None, "40536 of 40536 MiB free", 2),
    ]
