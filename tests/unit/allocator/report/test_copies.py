"""How many pods of one template fit, and when it is certain that more never will."""

from collections.abc import Sequence

import pytest

from allocator.model.gpu import Node, Snapshot
from allocator.model.request import ContainerRequest, Mode, PodRequest
from allocator.placement.choose import PlacementPolicy
from allocator.report.copies import MOST_PLACED, Copies, CopyCount, place_copies
from tests.builders.model import (
    A100_40,
    H100,
    T4,
    ask,
    gpu,
    init,
    mig_grant,
    node,
    nodes_of,
    pod,
    snapshot,
    soft_grant,
)


def placed(
    request: PodRequest, fleet: Snapshot, wanted: int, *, needed: int | None = None
) -> CopyCount:
    copies = Copies(wanted=wanted, needed=wanted if needed is None else needed)
    policy = PlacementPolicy()
    found, left = place_copies(request, fleet, policy, copies=copies, first="n0")
    held = [gpu for name in fleet.nodes for gpu in left.nodes[name].gpus]
    before = sum(len(one.grants) for name in fleet.nodes for one in fleet.nodes[name].gpus)
    each = sum(one.count for one in request.containers if not one.of_init)
    assert sum(len(one.grants) for one in held) - before == found.fitting * each
    return found


HALF = node("n1", gpu(T4, grants=[soft_grant(8000)]))


@pytest.mark.parametrize(
    ("nodes", "wanted", "fitting", "ever"),
    [
        pytest.param([nodes_of(2, T4)], 3, 3, None, id="all"),
        pytest.param([nodes_of(2, T4)], 6, 6, None, id="to-the-last-one"),
        pytest.param([nodes_of(2, T4)], 7, 6, 6, id="never-one-more"),
        pytest.param([nodes_of(1, T4), HALF], 5, 4, None, id="later"),
        pytest.param([nodes_of(1, T4), HALF], 7, 4, 6, id="not-even-later"),
        pytest.param([nodes_of(1, mode=Mode.MIG)], 8, 7, 7, id="seven-instances"),
    ],
)
def test_pods_are_counted_until_no_more_fits(
    nodes: Sequence[Node], wanted: int, *, fitting: int, ever: int | None
) -> None:
    """Now, and on GPUs that nothing runs on: the second only where the first are too few."""
    found = placed(pod(ask(4864)), snapshot(*nodes), wanted)

    assert (found.fitting, found.ever, found.is_short) == (fitting, ever, fitting < wanted)
    assert sum(found.nodes.values()) == fitting


def test_it_is_enough_that_those_run_that_are_needed() -> None:
    """A gang starts with fewer pods than it would like to have."""
    found = placed(pod(ask(8000)), snapshot(nodes_of(2, T4)), wanted=5, needed=2)

    assert (found.fitting, found.is_short, found.ever) == (2, False, None)


@pytest.mark.parametrize(
    ("container", "wanted", "ever"),
    [
        pytest.param(ask(count=2), 5, 4, id="whole-gpus"),
        pytest.param(ask(percent=60, count=2), 8, 6, id="a-percentage"),
        pytest.param(ask(60000, count=2), 6, 5, id="memory"),
        pytest.param(ask(count=2), 4, None, id="as-many-as-there-are"),
    ],
)
def test_pods_of_several_gpus_are_bounded_by_their_memory(
    container: ContainerRequest, wanted: int, ever: int | None
) -> None:
    """How they are combined is left open, so that never is said only where it is certain."""
    busy = node(
        "n0", *(gpu(H100, index=i, grants=[soft_grant(81559 if i < 4 else 0)]) for i in range(8))
    )

    found = placed(pod(container), snapshot(busy), wanted)

    assert found.is_short
    assert found.ever == ever


def test_what_init_containers_share_counts_once() -> None:
    """They have ended when the others start."""
    request = pod(init(ask(15000, name="setup")), ask(15000))

    assert placed(request, snapshot(nodes_of(2, T4)), 3).ever == 2


def test_nothing_is_ruled_out_where_not_all_is_known() -> None:
    """A node that has not reported yet may have room."""
    fleet = snapshot(nodes_of(1, T4), complete=False)

    found = placed(pod(ask(15000)), fleet, 3)

    assert (found.fitting, found.ever) == (1, None)


def test_instances_and_shares_of_others_stay() -> None:
    """What is promised already is not taken for room."""
    busy = node("n0", gpu(A100_40, mode=Mode.MIG, grants=[mig_grant("3g.20gb", 4)]))

    found = placed(pod(ask(4864)), snapshot(busy), 8)

    assert (found.fitting, found.ever) == (4, 7)


def test_very_many_pods_are_not_all_placed() -> None:
    """As many as are placed fit; a number beyond is not counted, and not called too large."""
    nodes = [nodes_of(8, T4, name=f"n{i}") for i in range(64)]

    found = placed(pod(ask(1500)), snapshot(*nodes), 2**31 - 1)

    assert (found.fitting, found.is_short) == (MOST_PLACED, False)
