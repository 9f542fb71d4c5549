"""What a busy GPU lacks for a container, and what an empty kind of GPU takes."""

from dataclasses import replace

import pytest

from allocator.mig.profiles import smallest_sufficient, sufficient_profiles
from allocator.model.decision import Reason
from allocator.model.gpu import Gpu
from allocator.model.request import ContainerRequest, Mode
from allocator.model.units import CorePercent, MiB
from allocator.placement.fit import Shortfall, headroom, holds, serves, shortfall, with_grant
from tests.builders.model import (
    A30,
    A100_40,
    H100,
    T4,
    ask,
    board,
    gpu,
    mig_grant,
    offer,
    pod,
    soft_grant,
)

IDLE = gpu(T4)
BUSY = gpu(T4, grants=[soft_grant(10000, 40)])
ALL_CORES = gpu(T4, grants=[soft_grant(1000, 100)])
NO_SHARES = replace(BUSY, slots=1)
FOREIGN = replace(IDLE, foreign=MiB(15000))


@pytest.mark.parametrize(
    ("container", "on", "expected"),
    [
        pytest.param(ask(15360), IDLE, Shortfall(), id="all-of-it"),
        pytest.param(ask(), IDLE, Shortfall(), id="a-whole-gpu"),
        pytest.param(ask(6000), BUSY, Shortfall(memory=MiB(640)), id="memory"),
        pytest.param(ask(percent=50), BUSY, Shortfall(memory=MiB(2320)), id="percentage"),
        pytest.param(ask(1000), FOREIGN, Shortfall(memory=MiB(640)), id="foreign-memory"),
        pytest.param(ask(1000, cores=70), BUSY, Shortfall(cores=CorePercent(10)), id="cores"),
        pytest.param(ask(1000, cores=100), BUSY, Shortfall(cores=CorePercent(40)), id="exclusive"),
        pytest.param(ask(1), ALL_CORES, Shortfall(cores=CorePercent(1)), id="exclusively-taken"),
        pytest.param(ask(1000, cores=100), IDLE, Shortfall(), id="exclusive-on-idle"),
        pytest.param(ask(1000), NO_SHARES, Shortfall(shares=1), id="shares"),
    ],
)
def test_what_a_gpu_shared_in_software_lacks(
    container: ContainerRequest, on: Gpu, expected: Shortfall
) -> None:
    """Memory, cores and shares are each measured; 100 cores share with nobody."""
    found = shortfall(container, headroom(on))

    assert found == expected


def test_an_exclusive_container_minds_one_that_asks_for_no_cores() -> None:
    """Cores of nothing promised are no sign of nobody there."""
    on = gpu(T4, grants=[soft_grant(1000)])

    found = shortfall(ask(1000, cores=100), headroom(on))

    assert found.reason is Reason.CORES_SHORT


def test_fewer_obstacles_are_closer() -> None:
    """A GPU that only lacks a little memory is closer than one that lacks two things."""
    near, far = Shortfall(memory=MiB(5000)), Shortfall(memory=MiB(1), cores=CorePercent(1))

    assert near.rank < far.rank
    assert not Shortfall()


def test_a_tentative_grant_changes_a_copy() -> None:
    """What was measured before stays as it was."""
    before = headroom(gpu(T4))

    left = with_grant(before, soft_grant(1000, 10))

    assert (left.memory, left.cores, left.tenants) == (14360, 10, 1)
    assert (before.memory, before.cores, before.tenants) == (15360, 0, 0)


def test_idle_instances_take_nothing() -> None:
    """Only what is granted is in the way; an idle instance may be recut."""
    grant = mig_grant("2g.10gb", 2)
    assert grant.placed is not None
    busy = gpu(mode=Mode.MIG, grants=[grant], instances=[grant.placed])
    idle = gpu(mode=Mode.MIG, instances=[grant.placed])

    assert headroom(busy).taken == 0b1100
    assert headroom(idle).taken == 0


@pytest.mark.parametrize(
    ("container", "product", "expected"),
    [
        pytest.param(ask(4864), A100_40, "1g.5gb", id="to-the-last-mib"),
        pytest.param(ask(4865), A100_40, "2g.10gb", id="one-mib-more"),
        pytest.param(ask(1000, cores=14), A100_40, "1g.5gb", id="a-seventh-of-the-cores"),
        pytest.param(ask(1000, cores=15), A100_40, "2g.10gb", id="more-than-a-seventh"),
        pytest.param(ask(1000, cores=50), A100_40, "4g.20gb", id="half-of-the-cores"),
        pytest.param(ask(1000, cores=50), H100, "7g.80gb", id="cores-are-not-linear"),
        pytest.param(ask(percent=25), A100_40, "2g.10gb", id="a-quarter-is-two-slots-of-eight"),
        pytest.param(ask(percent=13), A100_40, "2g.10gb", id="over-an-eighth"),
        pytest.param(ask(), A30, "4g.24gb", id="a-whole-gpu"),
        pytest.param(ask(60000), A100_40, None, id="too-large"),
    ],
)
def test_the_smallest_sufficient_profile(
    container: ContainerRequest, product: str, expected: str | None
) -> None:
    """Memory as NVML reports it, and multiprocessors, must both suffice."""
    sufficient = smallest_sufficient(container, board(product))

    assert (sufficient and sufficient.profile.name) == expected


def test_scarce_profiles_are_not_given_unasked() -> None:
    """Media and double-memory variants serve only those who name them."""
    plain = sufficient_profiles(ask(1), board(A100_40))
    named = sufficient_profiles(ask(), board(A100_40), "1g.10gb")

    assert [r.profile.name for r in plain] == ["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]
    assert [r.profile.name for r in named] == ["1g.10gb"]


def test_what_an_empty_gpu_takes() -> None:
    """A kind serves a container by what it is, not by what is free on it."""
    assert serves(ask(40536), offer(A100_40))
    assert not serves(ask(40536), offer(A100_40, mode=Mode.MIG))
    assert not serves(ask(1), replace(offer(A100_40, mode=Mode.MIG), board=None))


def test_what_a_node_of_empty_gpus_holds() -> None:
    """Memory and cores of a pod are summed apart: one container's peak may be another's rest."""
    request = pod(ask(30000, cores=10), ask(10000, cores=90, name="second"))

    assert holds(request, offer(A100_40), 1)
    assert not holds(pod(ask(), ask(1000, name="second")), offer(A100_40), 1)
