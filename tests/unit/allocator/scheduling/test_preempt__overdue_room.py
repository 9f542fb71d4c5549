"""Preemption past room that never comes: waited for while it may come, and taken after that."""

from dataclasses import replace
from datetime import timedelta

import pytest

from allocator.cluster.nominated_pods import NominatedPods
from allocator.extender.index import Index
from allocator.extender.pod import END_REPORT_TIME, SchedulingPod
from allocator.model.request import Mode
from tests.builders.model import ask, nodes_of, pod, soft_grant
from tests.builders.preemption import (
    Named,
    Resident,
    args,
    cluster,
    named,
    offer,
    preemptor,
    resident,
)
from tests.fakes.kube_clock import EPOCH, FakeClock

WHOLE = pod(ask(40000), mode=Mode.HAMI_CORE)
ONE = nodes_of(1, name="n0")
OTHER = nodes_of(1, name="n1")
WAIT = END_REPORT_TIME.total_seconds()
GRACE = 600.0


def whole(uid: str, **fields: object) -> Resident:
    return resident(uid, (0, soft_grant(40000)), **fields)


class Told:
    """A replica that is told of pods change by change, on a clock of the test's."""

    def __init__(self) -> None:
        self.clock = FakeClock(now=0.0)
        self.nominees = NominatedPods(self.clock.clock())

    def __call__(self, **changes: SchedulingPod | None) -> None:
        """Hear of pods by uid, ``None`` for the end of one."""
        self.nominees.update(changes)

    def asked(self, index: Index, *, nominated: str = "", **offers: list[str]) -> Named:
        """Ask whom a pod evicts that wants all of a node."""
        question = args(**{name: offer(uids) for name, uids in offers.items()})
        wanted = preemptor(WHOLE, nominated=nominated)
        return named(self.nominees.with_nominations(index), wanted, question)


def ending(told: Told, how: str) -> Index:
    """Let the pod that holds all of n0 end as *how* says, and return what all nodes promise."""
    leaves = EPOCH + timedelta(seconds=told.clock.now + GRACE)
    states: dict[str, dict[str, object]] = {
        "deleted": {"deleting": True, "leaves": leaves},
        "over": {"over": True},
        "gone": {"gone": True},
    }
    bystander = (OTHER, [whole("bystander")])
    told(**cluster((ONE, [whole("ends")]), bystander).pods)
    index = cluster((ONE, [whole("ends", **states[how])]), bystander)
    told(ends=index.pods.get("ends"))
    return index


@pytest.mark.parametrize("nominated", ["", "n0"])
@pytest.mark.parametrize(
    ("how", "wait"), [("gone", WAIT), ("over", WAIT), ("deleted", GRACE + WAIT)]
)
def test_room_that_never_comes_is_waited_for_only_so_long(
    how: str, wait: float, nominated: str
) -> None:
    """The agent there is silent: once the room should have been free, another node makes some."""
    told = Told()
    told.clock.now = 1000.0
    index = ending(told, how)

    told.clock.now += wait - 1
    before = told.asked(index, nominated=nominated, n0=[], n1=["bystander"])
    told.clock.now += 1
    after = told.asked(index, nominated=nominated, n0=[], n1=["bystander"])

    assert "n1" not in before
    assert after == {"n1": ["bystander"]}


def test_who_is_overdue_is_neither_counted_nor_named() -> None:
    """Nobody is told to go who was told already, and nothing is promised on his going."""
    told = Told()
    there = [
        resident("stuck", (0, soft_grant(20000)), deleting=True, leaves=EPOCH),
        resident("stays", (0, soft_grant(20000))),
    ]
    index = cluster((nodes_of(2, name="n0"), [*there, resident("other", (1, soft_grant(40000)))]))
    told(**index.pods)

    early = told.asked(index, n0=["stuck", "stays"])
    told.clock.now += WAIT
    late = told.asked(index, n0=["stuck", "stays"])

    assert {*early["n0"]} == {"stuck", "stays"}
    assert late == {"n0": ["other"]}


def test_more_news_of_an_end_does_not_begin_the_wait_again() -> None:
    """A pod that is over stays over, whatever is written on it, and when its object goes."""
    told = Told()
    index = ending(told, "over")
    told.clock.now += WAIT - 1
    told(ends=replace(index.pods["ends"], priority=7))
    told(ends=None)
    told.clock.now += 1

    assert told.asked(index, n0=[], n1=["bystander"]) == {"n1": ["bystander"]}


def test_what_ends_late_is_waited_for_once_more() -> None:
    """A kubelet that was away is back: the pod it held on to is gone, so room is coming now."""
    told = Told()
    index = ending(told, "deleted")
    told.clock.now += GRACE + WAIT
    stuck = told.asked(index, n0=[], n1=["bystander"])
    told(ends=None)

    assert stuck == {"n1": ["bystander"]}
    assert told.asked(index, n0=[], n1=["bystander"]) == {}


def test_a_promise_that_is_newer_than_the_news_of_its_pod_is_room_coming() -> None:
    """Watches tell in any order: a pod not heard of may just have come, or be gone for long."""
    told = Told()
    index = cluster((ONE, [whole("unheard", gone=True)]), (OTHER, [whole("bystander")]))
    (entry,) = index.node_infos["n0"].entries.values()
    told(bystander=index.pods["bystander"])
    told.clock.now += 10 * WAIT
    fresh = replace(entry, since=told.clock.clock().wall())
    site = replace(index.node_infos["n0"], entries={"unheard": fresh})
    new = replace(index, node_infos={**index.node_infos, "n0": site})

    assert told.asked(new, n0=[], n1=["bystander"]) == {}
    assert told.asked(index, n0=[], n1=["bystander"]) == {"n1": ["bystander"]}


def test_a_grace_that_nobody_lives_to_see_is_not_waited_for() -> None:
    """The API server writes years of five digits, which are no time to us."""
    told = Told()
    index = cluster((ONE, [whole("ends", deleting=True)]), (OTHER, [whole("bystander")]))
    told(**index.pods)

    assert told.asked(index, n0=["ends"], n1=["bystander"]) == {"n1": ["bystander"]}
