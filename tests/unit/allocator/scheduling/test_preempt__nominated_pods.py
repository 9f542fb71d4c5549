"""Nominees: for whom room is kept, also when the scheduler has forgotten that it made it."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from allocator.cluster.nominated_pods import REMEMBERED_SECONDS, NominatedPods
from allocator.extender.pod import SchedulingPod
from allocator.model.request import Mode
from tests.builders.model import ask, nodes_of, pod, soft_grant
from tests.builders.preemption import args, cluster, named, offer, preemptor, resident
from tests.fakes.kube_clock import FakeClock

WHOLE = pod(ask(40000), mode=Mode.HAMI_CORE)
HIGH = preemptor(WHOLE, nominated="n0")
# What a watch shows then: what a pod asks for is read only while a scheduler makes room for it.
FORGOTTEN = replace(HIGH, nominated="", claim=None)


class Told:
    """Nominees that hear of one pod after another, on a clock of the test's."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.nominees = NominatedPods(self.clock.clock())

    def __call__(self, *versions: SchedulingPod | None) -> Mapping[str, tuple[SchedulingPod, ...]]:
        """Hear of versions of the pod, ``None`` for its end, and return the nominations."""
        for version in versions:
            self.nominees.update({HIGH.uid: version})
        return self.nominees.with_nominations(cluster()).nominations


def test_a_nomination_counts_while_it_stands() -> None:
    """However long that is."""
    told = Told()
    told(HIGH)

    told.clock.now += 100 * REMEMBERED_SECONDS

    assert told()["n0"] == (HIGH,)


def test_a_nomination_that_was_cleared_is_remembered_for_a_while() -> None:
    """The scheduler clears it before the evicted pods' room is free; the clock starts only then."""
    told = Told()
    told(HIGH)
    told.clock.now += 5 * REMEMBERED_SECONDS
    told(FORGOTTEN)

    told.clock.now += REMEMBERED_SECONDS - 1
    kept = told(FORGOTTEN)  # any other change to the pod
    told.clock.now += 1

    assert kept["n0"] == (HIGH,)
    assert not told()


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(replace(FORGOTTEN, node="n1"), id="bound"),
        pytest.param(replace(FORGOTTEN, deleting=True), id="deleted"),
        pytest.param(replace(FORGOTTEN, over=True), id="over"),
        pytest.param(None, id="gone"),
    ],
)
def test_nothing_is_kept_for_who_does_not_wait(end: SchedulingPod | None) -> None:
    """A pod that has a node, or needs none, frees what was kept at once, and for good."""
    assert not Told()(HIGH, FORGOTTEN, end)
    assert not Told()(HIGH, FORGOTTEN, end, FORGOTTEN)


def test_a_new_nomination_replaces_the_remembered_one() -> None:
    """Room is kept on one node only."""
    assert list(Told()(HIGH, FORGOTTEN, replace(HIGH, nominated="n1"))) == ["n1"]


def test_a_forgotten_preemptor_still_waits() -> None:
    """While the room it made is coming it evicts nobody elsewhere, whoever forgot."""
    told = Told()
    told(HIGH, FORGOTTEN)
    ended = resident("victim", (0, soft_grant(40000)), gone=True)
    stays = resident("bystander", (0, soft_grant(40000)))
    index = cluster((nodes_of(1, name="n0"), [ended]), (nodes_of(1, name="n1"), [stays]))
    question = args(n1=offer(["bystander"]))

    with_memory = replace(index, nominations=told())

    asking = replace(HIGH, nominated="")
    assert named(index, asking, question) == {"n1": ["bystander"]}
    assert named(with_memory, asking, question) == {}
