"""Groups among all pods: their own stay together, and others leave them the room they need."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from allocator.extender.pod import BINDING_PRIORITY, SchedulingPod
from allocator.ledger.assign import PodClaim
from allocator.model.request import Mode
from allocator.scheduling.group_steering import MAKING
from tests.builders.groups import PATIENCE, SupernodeCluster, whole
from tests.builders.model import T4

FOUR = ("a-master-0", "a-worker-0", "a-worker-1", "a-worker-2")


def site(*, size: int = 32) -> SupernodeCluster:
    """Return two empty switchboxes, and a job of four pods of 8 GPUs."""
    made = SupernodeCluster(extra=("alone",))
    made.make("a", *FOUR, size=size)
    return made


def coming(uid: str, node: str, *, gpus: int = 8) -> SchedulingPod:
    """Return a pod that is being bound."""
    return SchedulingPod(
        uid=uid,
        namespace="team-a",
        name=uid,
        priority=BINDING_PRIORITY,
        nominated=node,
        claim=PodClaim(uid=uid, request=whole(gpus)),
    )


def test_all_pods_of_a_group_may_go_to_one_domain_only() -> None:
    """Whichever of them is asked about first, before any is placed."""
    cluster = site()
    assert {tuple(cluster.open_nodes(uid)) for uid in FOUR} == {("n1", "n2", "n3", "n4")}


def test_the_first_pod_decides_for_the_others() -> None:
    """Also where a scheduler took another domain than we would have."""
    cluster = site()
    assert cluster.refusal("a-worker-1", "n6") == ""
    cluster.place("a-worker-1", "n6")
    assert cluster.open_nodes("a-master-0") == ["n5", "n7", "n8"]
    assert cluster.refusal("a-master-0", "n1") == "outside the domain of the pod's group"
    assert cluster.refusal("a-master-0", "n5") == ""


def test_a_pod_being_bound_counts_as_placed() -> None:
    """The next one is asked about before any watch shows the entry of the first."""
    cluster = site()
    cluster.nominations = {"n7": (coming(FOUR[0], "n7"),)}
    assert cluster.open_nodes(FOUR[1]) == ["n5", "n6", "n8"]


def test_a_group_without_room_waits_with_the_numbers() -> None:
    """Every node says the same, so that a scheduler counts it as one reason."""
    cluster = site()
    for number, name in enumerate(("n2", "n6")):
        cluster.place(f"other-{number}", name)
    reasons = set(cluster.reasons("a-master-0").values())
    expected = (
        "group needs 32 GPUs for 4 pods of its group in one dragonfly or switchbox; the most free "
        'and not reserved is 24, in switchbox "sb2"'
    )
    assert reasons == {expected}
    assert "needs 32 GPUs" in cluster.refusal("a-master-0", "n1")


def test_a_pod_of_no_group_does_not_take_what_a_group_still_needs() -> None:
    """Before the group begins, and outside its domain, nothing is in its way."""
    cluster = site()
    assert cluster.open_nodes("stranger", gpus=1) == cluster.names
    cluster.place("a-master-0", "n1")
    assert cluster.closed_nodes("stranger", gpus=1) == ["n2", "n3", "n4"]
    assert "reserved" in cluster.refusal("stranger", "n2", gpus=1)
    assert cluster.refusal("stranger", "n5", gpus=1) == ""


def test_the_room_beside_a_group_is_open_to_others() -> None:
    """A group of two in a dragonfly leaves the rest of the switchbox alone."""
    cluster = SupernodeCluster()
    cluster.make("b", "b-0", "b-1", size=16)
    cluster.place("b-0", "n1")
    assert cluster.closed_nodes("stranger") == ["n2"]


def test_a_second_group_goes_elsewhere_or_waits() -> None:
    """Neither takes half of what both need."""
    cluster = site()
    cluster.make("b", "b-0", "b-1", "b-2", "b-3", size=32)
    cluster.make("c", "c-0", "c-1", size=16)
    cluster.place("a-master-0", "n1")
    assert cluster.open_nodes("b-0") == ["n5", "n6", "n7", "n8"]
    cluster.place("b-0", "n5")
    assert cluster.open_nodes("c-0") == []
    assert "is 0, in" in cluster.refusal("c-0", "n2")
    assert cluster.open_nodes("a-worker-0") == ["n2", "n3", "n4"]


def test_a_group_that_is_gone_holds_nothing() -> None:
    """Its room is open as soon as its pods are over."""
    cluster = site()
    cluster.place("a-master-0", "n1", bound=True)
    assert "n2" not in cluster.open_nodes("stranger")
    cluster.end(*FOUR)
    assert cluster.open_nodes("stranger") == cluster.names


def test_a_group_that_is_complete_reserves_nothing() -> None:
    """What is left of its domain is open to all."""
    cluster = SupernodeCluster()
    cluster.make("b", "b-0", "b-1", size=16)
    cluster.place("b-0", "n1", gpus=8)
    cluster.place("b-1", "n3", gpus=8)
    assert set(cluster.open_nodes("stranger")) >= {"n2", "n4"}


def test_a_pod_that_never_comes_holds_no_room_for_ever() -> None:
    """Pods that a job has yet to make count for a short time, those that wait for a longer one."""
    cluster = SupernodeCluster()
    cluster.make("b", "b-0", size=16)
    cluster.place("b-0", "n1", bound=True)
    assert "n2" not in cluster.open_nodes("stranger")
    cluster.now += MAKING
    assert "n2" in cluster.open_nodes("stranger")

    cluster = SupernodeCluster()
    cluster.make("b", "b-0", "b-1", size=16)
    cluster.place("b-0", "n1", bound=True)
    cluster.now += MAKING
    assert "n2" not in cluster.open_nodes("stranger")
    cluster.now += PATIENCE
    assert "n2" in cluster.open_nodes("stranger")
    assert cluster.open_nodes("b-1") == ["n2"]


def test_a_pod_that_is_made_again_returns_to_its_group() -> None:
    """Though another domain is closer to empty."""
    cluster = site()
    for uid, name in zip(FOUR, ("n5", "n6", "n7", "n8"), strict=True):
        cluster.place(uid, name, bound=True)
    cluster.end("a-worker-1")
    cluster.now += timedelta(days=3)
    cluster.make("a", "a-worker-1")
    assert cluster.open_nodes("a-worker-1") == ["n7"]
    assert cluster.closed_nodes("stranger") == ["n7"]


def test_a_group_that_a_job_is_still_making_gets_room_for_all_of_it() -> None:
    """The first is often bound before the last exists. Later it is as large as it is."""
    cluster = SupernodeCluster()
    cluster.make("b", "b-0", size=32)
    assert cluster.open_nodes("b-0") == ["n1", "n2", "n3", "n4"]
    cluster.now += MAKING
    assert cluster.open_nodes("b-0") == ["n1"]


def test_nodes_that_take_nothing_are_no_room() -> None:
    """One that is cordoned, closed or unknown."""
    cluster = site()
    cluster.unavailable = {"n1"}
    assert cluster.open_nodes("a-master-0") == ["n5", "n6", "n7", "n8"]


def test_without_a_tree_only_pods_of_groups_wait() -> None:
    """They are told why."""
    cluster = site()
    cluster.why_unknown = "no answer in 5 s"
    assert cluster.open_nodes("stranger") == cluster.names
    assert cluster.open_nodes("a-master-0") == []
    assert cluster.refusal("a-master-0", "n1").endswith("is not known: no answer in 5 s")
    assert cluster.refusal("stranger", "n1") == ""


def test_an_entry_of_the_pod_itself_is_room_for_it() -> None:
    """A bind that is repeated finds what it found before."""
    cluster = site()
    cluster.place("a-master-0", "n1")
    assert cluster.refusal("a-master-0", "n1") == ""


@pytest.mark.parametrize("size", [1, 7, 65_536])
def test_a_size_that_does_not_match_the_pods_harms_nobody(size: int) -> None:
    """A group smaller than its pod is that pod; one that fits nowhere waits alone."""
    cluster = SupernodeCluster()
    cluster.make("b", "b-0", size=size)
    assert bool(cluster.open_nodes("b-0")) == (size < 8)
    assert cluster.open_nodes("stranger") == cluster.names


def test_who_opens_a_group_first_is_the_same_for_all() -> None:
    """Of two that began at once exactly one stays."""
    cluster = site()
    cluster.make("b", "b-0", "b-1", "b-2", "b-3", size=32)
    cluster.place("a-master-0", "n1")
    cluster.place("b-0", "n2")
    steering = cluster.steering()
    stays = [
        uid
        for uid in ("a-master-0", "b-0")
        if (pod := cluster.pods.pod(uid)) is not None and steering.goes_first(pod, whole())
    ]
    assert stays == ["a-master-0"]
    assert cluster.refusal("b-0", "n2") == "outside the domain of the pod's group"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda cluster: cluster.sick.add("n1"),
        lambda cluster: cluster.modes.update(n1=Mode.MIG),
        lambda cluster: cluster.modes.update(n1=Mode.MPS),
        lambda cluster: cluster.products.update(n1=T4),
    ],
    ids=["sick", "mig", "mps", "too-small"],
)
def test_gpus_that_a_pod_cannot_have_are_no_room_for_its_group(
    spoil: Callable[[SupernodeCluster], None],
) -> None:
    """Half of the group would be bound, and the other half never could."""
    cluster = SupernodeCluster()
    cluster.make("b", "b-0", "b-1", size=16)
    spoil(cluster)
    assert "n1" not in cluster.open_nodes("b-0")
    assert cluster.refusal("b-0", "n1") != ""


def test_sick_gpus_are_not_what_is_reserved() -> None:
    """What a group still needs is kept where it can be had."""
    cluster = SupernodeCluster()
    cluster.make("b", "b-0", "b-1", size=16)
    cluster.place("b-0", "n1")
    cluster.sick = {"n2", "n4"}
    assert cluster.closed_nodes("stranger", gpus=1) == ["n3"]


def test_a_pod_that_is_bound_and_has_its_entry_counts_once() -> None:
    """Else its node looks full, and its group goes elsewhere."""
    cluster = SupernodeCluster()
    cluster.make("b", "b-0", "b-1", size=8)
    cluster.place("b-0", "n1", gpus=4)
    cluster.nominations = {"n1": (coming("b-0", "n1", gpus=4),)}
    assert cluster.open_nodes("b-1", gpus=4) == ["n1"]


def test_a_pod_that_is_being_bound_takes_no_room_from_itself() -> None:
    """Its bind is judged while it is assumed on the node."""
    cluster = SupernodeCluster()
    cluster.make("b", "b-0", size=8)
    cluster.nominations = {"n1": (coming("b-0", "n1"),)}
    assert cluster.refusal("b-0", "n1") == ""


def test_groups_of_one_job_leave_each_other_their_room() -> None:
    """They have an owner in common, and no domain."""
    cluster = SupernodeCluster()
    cluster.make("a", "a-0", "a-1", "a-2", "a-3", size=16)
    cluster.place("a-0", "n1")
    assert cluster.open_nodes("a-1") == ["n2"]
    assert "n2" not in cluster.open_nodes("a-2")
    assert cluster.refusal("a-2", "n2") != ""


def test_a_group_that_has_begun_and_lost_its_room_keeps_what_is_left() -> None:
    """Otherwise small pods take each GPU that becomes free, and the group never runs."""
    cluster = SupernodeCluster()
    cluster.make("b", "b-0", "b-1", "b-2", size=24)
    cluster.place("b-0", "n1")
    for name in ("n3", "n4"):
        cluster.place(f"other-{name}", name)
    assert cluster.closed_nodes("stranger", gpus=1) == ["n2"]
    assert cluster.open_nodes("b-1") == []
