"""What a bound pod is promised: what it had, else what its scheduler wished, else the best."""

from dataclasses import replace

import msgspec
import pytest

from allocator.ledger.assign import NoFit, PodClaim, assign
from allocator.model.allocation import Assignment, Grant
from allocator.model.gpu import Gpu, Node
from allocator.model.request import Filters, Mode
from allocator.model.units import MiB
from allocator.placement.choose import PlacementPolicy
from tests.builders.gpunodes import entry, ledger
from tests.builders.model import ask, gpu, mig_grant, node, nodes_of, pod, soft_grant

THREE_GIG = pod(ask(3000))
CUT = nodes_of(2, mode=Mode.MIG)
SOFT = nodes_of(2)


def wanted(uid: str = "a", **more: object) -> PodClaim:
    return replace(PodClaim(uid=uid, request=THREE_GIG), **more)  # type: ignore[arg-type]  # fields


def grants(assignment: Assignment | NoFit) -> tuple[Grant, ...]:
    assert isinstance(assignment, Assignment), assignment
    return assignment.containers[0].grants


def test_two_pods_get_disjoint_slices() -> None:
    """The second pod on one board is placed beside the first."""
    one = grants(assign(ledger(CUT), wanted("a"), policy=PlacementPolicy()))

    other = grants(assign(ledger(CUT, (entry("a", *one),)), wanted("b"), policy=PlacementPolicy()))

    first, second = one[0], other[0]
    assert first.placed is not None
    assert second.placed is not None
    assert first.gpu != second.gpu or not first.placed.mask & second.placed.mask


@pytest.mark.parametrize(
    ("on", "had"),
    [
        pytest.param(CUT, mig_grant("1g.5gb", 3, gpu="GPU-n0-1"), id="mig"),
        pytest.param(SOFT, soft_grant(3000, gpu="GPU-n0-1"), id="soft"),
    ],
)
def test_a_promise_is_kept(on: Node, had: Grant) -> None:
    """A pod that comes again gets the very device it was promised, however good others are."""
    result = assign(
        ledger(on, (entry("a", had),)), wanted(gpus=("GPU-n0-0",)), policy=PlacementPolicy()
    )

    assert grants(result) == (had,)


def ill(healthy: Gpu) -> Gpu:
    return replace(healthy, healthy=False)


def crowded(before: Gpu) -> Gpu:
    return replace(before, foreign=MiB(before.memory - 1000))


@pytest.mark.parametrize("change", [pytest.param(ill, id="ill"), pytest.param(crowded, id="full")])
def test_a_promise_that_cannot_be_kept_is_made_anew(change: object) -> None:
    """Where the GPU has failed or is in foreign hands since, another one is chosen."""
    assert callable(change)
    now = node("n0", gpu(), change(gpu(index=1)))
    had = entry("a", soft_grant(3000, gpu="GPU-n0-1"))

    assert (
        grants(assign(ledger(now, (had,)), wanted(), policy=PlacementPolicy()))[0].gpu == "GPU-n0-0"
    )


@pytest.mark.parametrize("change", [pytest.param(ill, id="ill"), pytest.param(crowded, id="full")])
def test_a_promise_that_is_held_is_never_exchanged(change: object) -> None:
    """Containers run on it, so a bind that comes late or twice is refused, and nothing is freed."""
    assert callable(change)
    now = node("n0", gpu(), change(gpu(index=1)))
    had = entry("a", soft_grant(3000, gpu="GPU-n0-1"))

    result = assign(ledger(now, (had,), held=["a"]), wanted(), policy=PlacementPolicy())

    assert isinstance(result, NoFit)
    assert result.later


@pytest.mark.parametrize("picked", ["GPU-n0-0", "GPU-n0-1"])
def test_a_wish_is_granted(picked: str) -> None:
    """The GPU that a scheduler picked is taken if it fits."""
    assert (
        grants(assign(ledger(SOFT), wanted(gpus=(picked,)), policy=PlacementPolicy()))[0].gpu
        == picked
    )


@pytest.mark.parametrize(
    "picked",
    [
        pytest.param("GPU-none", id="unknown"),
        pytest.param("GPU-n0-1", id="full"),
    ],
)
def test_a_wish_that_does_not_fit_is_replaced(picked: str) -> None:
    """A stale or impossible wish denies nothing."""
    taken = entry("z", soft_grant(40000, gpu="GPU-n0-1"))

    result = assign(ledger(SOFT, (taken,)), wanted(gpus=(picked,)), policy=PlacementPolicy())

    assert grants(result)[0].gpu == "GPU-n0-0"


POLICY = "deviceshare.GPUExclusiveRules"  # of the scheduler


@pytest.mark.parametrize(
    "picked",
    [
        pytest.param(("GPU-none",), id="unknown"),
        pytest.param(("GPU-n0-1",), id="full"),
        pytest.param(("GPU-none", "GPU-n0-1"), id="both"),
    ],
)
def test_a_binding_wish_that_does_not_fit_denies(picked: tuple[str, ...]) -> None:
    """Under a hard policy no GPU is taken that the scheduler did not pick, free as it may be."""
    taken = entry("z", soft_grant(40000, gpu="GPU-n0-1"))

    result = assign(
        ledger(SOFT, (taken,)), wanted(gpus=picked, hard_policy=POLICY), policy=PlacementPolicy()
    )

    assert isinstance(result, NoFit)
    assert result.later
    assert picked[0] in str(result.finding)
    assert f"{POLICY} allows no other GPU" in str(result.finding)


def test_a_binding_wish_is_granted() -> None:
    """Under a hard policy the scheduler's GPU is taken where it has room."""
    claim = wanted(gpus=("GPU-n0-1",), hard_policy=POLICY)

    assert grants(assign(ledger(SOFT), claim, policy=PlacementPolicy()))[0].gpu == "GPU-n0-1"


def test_a_binding_wish_does_not_beat_the_user() -> None:
    """Where the pod's own annotations rule out what the scheduler picked, nothing is left."""
    request = msgspec.structs.replace(THREE_GIG, filters=Filters(not_uuids=("GPU-n0-1",)))
    claim = wanted(request=request, gpus=("GPU-n0-1",), hard_policy=POLICY)

    assert isinstance(assign(ledger(SOFT), claim, policy=PlacementPolicy()), NoFit)


def test_without_a_list_a_hard_policy_binds_nobody() -> None:
    """A scheduler that picks no GPU leaves the choice to us."""
    result = assign(ledger(SOFT), wanted(hard_policy=POLICY), policy=PlacementPolicy())

    assert grants(result)


@pytest.mark.parametrize("held", [False, True])
def test_a_promise_outside_a_binding_wish_is_kept_only_where_it_is_held(held: bool) -> None:
    """A pod that was promised another GPU waits; one whose containers run there stays."""
    had = soft_grant(3000, gpu="GPU-n0-1")
    at = ledger(SOFT, (entry("a", had),), held=["a"] if held else [])

    result = assign(at, wanted(gpus=("GPU-n0-0",), hard_policy=POLICY), policy=PlacementPolicy())

    if held:
        assert grants(result) == (had,)
    else:
        assert isinstance(result, NoFit)
        assert result.later
        assert f"{POLICY} may forbid" in str(result.finding)


def test_a_promise_within_a_binding_wish_is_kept() -> None:
    """The earlier GPU is among those that the scheduler picked again."""
    had = soft_grant(3000, gpu="GPU-n0-1")
    claim = wanted(gpus=("GPU-n0-0", "GPU-n0-1"), hard_policy=POLICY)

    result = assign(ledger(SOFT, (entry("a", had),)), claim, policy=PlacementPolicy())

    assert grants(result) == (had,)


def test_a_wish_does_not_beat_the_user() -> None:
    """A GPU that the pod's own annotations rule out is not taken for a scheduler's sake."""
    request = msgspec.structs.replace(THREE_GIG, filters=Filters(not_uuids=("GPU-n0-1",)))

    result = assign(
        ledger(SOFT), wanted(request=request, gpus=("GPU-n0-1",)), policy=PlacementPolicy()
    )

    assert grants(result)[0].gpu == "GPU-n0-0"


def test_a_final_mode_is_kept() -> None:
    """A mode that admission named is not revised, whatever is free."""
    mixed = node("n0", gpu(mode=Mode.MIG), gpu(index=1))

    result = assign(ledger(mixed), wanted(mode=Mode.HAMI_CORE), policy=PlacementPolicy())

    assert isinstance(result, Assignment)
    assert result.mode is Mode.HAMI_CORE


def test_devices_are_in_the_order_of_the_driver() -> None:
    """Limit number k is that of the k-th GPU, so a container's grants follow the index."""
    two = wanted(request=pod(ask(3000, count=2)))

    result = grants(assign(ledger(nodes_of(4)), two, policy=PlacementPolicy()))

    assert [grant.gpu for grant in result] == sorted(grant.gpu for grant in result)


@pytest.mark.parametrize(
    ("request_", "later"),
    [
        pytest.param(pod(ask(30000)), True, id="full"),
        pytest.param(pod(ask(90000)), False, id="never"),
    ],
)
def test_what_does_not_fit_is_refused(request_: object, *, later: bool) -> None:
    """A full node may have room later; one without such a GPU never."""
    full = tuple(entry(f"z{i}", soft_grant(20000, gpu=f"GPU-n0-{i}")) for i in range(2))

    result = assign(ledger(SOFT, full), wanted(request=request_), policy=PlacementPolicy())

    assert isinstance(result, NoFit)
    assert result.later is later


def test_a_closed_ledger_takes_nothing() -> None:
    """Without a digest of the inventory there is nothing that a commit could test."""
    result = assign(ledger(SOFT, inventory=""), wanted(), policy=PlacementPolicy())

    assert isinstance(result, NoFit)
    assert "its agent is starting, stopping or being replaced" in result.finding.what
    assert result.later


@pytest.mark.parametrize(
    ("cores", "kept"),
    [pytest.param(50, True, id="all-of-it"), pytest.param(51, False, id="one-percent-more")],
)
def test_a_promise_is_kept_within_all_cores(cores: int, kept: bool) -> None:
    """Two promises that came to more than a GPU by a lost update do not both stand."""
    had = soft_grant(3000, cores=50, gpu="GPU-n0-1")
    other = entry("b", soft_grant(3000, cores=cores, gpu="GPU-n0-1"))
    claim = wanted(request=pod(ask(3000, cores=50)))

    result = assign(ledger(SOFT, (entry("a", had), other)), claim, policy=PlacementPolicy())

    assert (grants(result) == (had,)) is kept


@pytest.mark.parametrize(
    ("memory", "kept"),
    [
        pytest.param(40536 - 3000, True, id="all-of-it"),
        pytest.param(40536 - 2999, False, id="more"),
    ],
)
def test_a_promise_is_kept_within_all_memory(memory: int, kept: bool) -> None:
    """The same for memory."""
    had = soft_grant(3000, gpu="GPU-n0-1")
    other = entry("b", soft_grant(memory, gpu="GPU-n0-1"))

    result = assign(ledger(SOFT, (entry("a", had), other)), wanted(), policy=PlacementPolicy())

    assert (grants(result) == (had,)) is kept


TWO_GPUS = pod(ask(3000, count=2))
BOTH = (soft_grant(3000, gpu="GPU-n0-0"), soft_grant(3000, gpu="GPU-n0-1"))


@pytest.mark.parametrize(
    ("picked", "kept"),
    [
        (("GPU-n0-0", "GPU-n0-1"), True),
        (("GPU-n0-0", "GPU-n0-2"), False),
        (("GPU-n0-1",), False),
        (("GPU-n0-2",), False),
    ],
)
def test_a_promise_is_within_a_binding_wish_with_all_its_gpus(
    picked: tuple[str, ...], *, kept: bool
) -> None:
    """One GPU that the scheduler did not pick may be forbidden to the pod."""
    at = ledger(nodes_of(3), (entry("a", *BOTH),))
    claim = wanted(request=TWO_GPUS, gpus=picked, hard_policy=POLICY)

    result = assign(at, claim, policy=PlacementPolicy())

    assert isinstance(result, Assignment) is kept


def test_a_promise_on_a_gpu_that_is_gone_is_made_anew() -> None:
    """The others of its GPUs being there helps nobody."""
    at = ledger(node("n0", gpu(), gpu(index=2)), (entry("a", *BOTH),))

    result = assign(at, wanted(request=TWO_GPUS), policy=PlacementPolicy())

    assert [grant.gpu for grant in grants(result)] == ["GPU-n0-0", "GPU-n0-2"]


@pytest.mark.parametrize(("slots", "kept"), [(1, False), (2, True)])
def test_a_promise_is_kept_within_all_shares(slots: int, *, kept: bool) -> None:
    """A GPU may have been given fewer of them since."""
    small = replace(gpu(index=1), slots=slots)
    others = entry("z", soft_grant(1000, gpu="GPU-n0-1"))
    had = entry("a", soft_grant(3000, gpu="GPU-n0-1"))

    result = assign(
        ledger(node("n0", gpu(), small), (others, had)), wanted(), policy=PlacementPolicy()
    )

    assert grants(result)[0].gpu == ("GPU-n0-1" if kept else "GPU-n0-0")


@pytest.mark.parametrize(
    ("other", "kept"),
    [
        (mig_grant("1g.5gb", 2, gpu="GPU-n0-1"), True),
        (mig_grant("2g.10gb", 2, gpu="GPU-n0-1"), False),
    ],
)
def test_a_promised_instance_is_kept_where_nobody_else_has_its_slots(
    other: Grant, *, kept: bool
) -> None:
    """Two promises of one slot by a lost update do not both stand."""
    had = mig_grant("1g.5gb", 3, gpu="GPU-n0-1")
    at = ledger(CUT, (entry("z", other), entry("a", had)))

    result = assign(at, wanted(), policy=PlacementPolicy())

    assert (grants(result) == (had,)) is kept
