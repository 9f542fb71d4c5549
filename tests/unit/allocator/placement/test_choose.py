"""Which GPUs and places a pod gets."""

import msgspec
import pytest

from allocator.config.settings import Prefer
from allocator.model.request import ContainerRequest, Filters, Mode
from allocator.placement.choose import FitVerdict, PlacementPolicy, choose
from tests.builders.choices import cuts, gpus, grants, one_mig_gpu
from tests.builders.model import (
    A100_40,
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
    assert second.verdict is FitVerdict.NOT_NOW


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

    found = choose(there, pod(ask(4000)), policy=PlacementPolicy(prefer=Prefer.DENSITY))

    assert gpus(found) == ["GPU-n0-1"]


def test_several_gpus_are_not_instances_where_software_shares_fit() -> None:
    """Instances cannot exchange data, though they cost less and idle GPUs are in MIG mode."""
    cut = [gpu(mode=MIG, index=index) for index in (0, 1)]
    busy = [gpu(index=index, grants=[soft_grant(8000)]) for index in (2, 3)]
    request = pod(ask(4864, count=2))

    for prefer in Prefer:
        policy = PlacementPolicy(prefer=prefer)
        both = choose(snapshot(node("n0", *cut, *busy)), request, policy=policy)
        assert gpus(both) == ["GPU-n0-2", "GPU-n0-3"]
    alone = choose(snapshot(node("n0", *cut)), request)
    assert gpus(alone) == ["GPU-n0-0", "GPU-n0-1"]


def test_memory_only_is_accounted_beside_software_shares() -> None:
    """A GPU without isolation is still not promised twice."""
    there = snapshot(node("n0", gpu(T4, grants=[soft_grant(10000)])))

    fits = choose(there, pod(ask(5000), mode=Mode.MEMORY_ONLY))
    over = choose(there, pod(ask(6000), mode=Mode.MEMORY_ONLY))

    assert grants(fits)["main"][0].mode is Mode.MEMORY_ONLY
    assert over.verdict is FitVerdict.NOT_NOW


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
    named = [
        msgspec.structs.replace(container, name=f"c{i}") for i, container in enumerate(containers)
    ]

    found = choose(snapshot(nodes_of(1, T4)), pod(*named))

    assert (found.verdict is FitVerdict.FITS) is fits


def test_an_init_container_has_what_the_app_will_have() -> None:
    """No instance is cut for it where the app's suffices, even if a smaller one would do."""
    found = choose(
        snapshot(nodes_of(2, mode=MIG)), pod(init(ask(4000, name="prepare")), ask(18000))
    )

    assert grants(found)["prepare"][0].placed == grants(found)["main"][0].placed
    assert gpus(found, "prepare") == gpus(found)
