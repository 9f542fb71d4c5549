"""Preemption while room is coming: nobody is evicted twice, and nobody takes what is spoken for."""

from dataclasses import replace

import pytest

from allocator.extender.filter import FilterContext, filter_nodes
from allocator.model.request import Mode
from allocator.placement.choose import PlacementPolicy
from tests.builders.model import A30, ask, mig_grant, nodes_of, pod, soft_grant
from tests.builders.preemption import Resident, args, cluster, named, offer, preemptor, resident

WHOLE = pod(ask(40000), mode=Mode.HAMI_CORE)
HALF = pod(ask(20000), mode=Mode.HAMI_CORE)
ONE = nodes_of(1, name="n0")
OTHER = nodes_of(1, name="n1")


def whole(uid: str, **fields: object) -> Resident:
    return resident(uid, (0, soft_grant(40000)), **fields)


ENDING = [
    pytest.param({"deleting": True}, id="deleted"),
    pytest.param({"over": True}, id="over"),
    pytest.param({"gone": True}, id="gone"),
]


@pytest.mark.parametrize("ending", ENDING)
def test_who_has_preempted_waits(ending: dict[str, object]) -> None:
    """Room that is coming on the nominated node means that nobody else is evicted anywhere."""
    index = cluster((ONE, [whole("victim", **ending)]), (OTHER, [whole("bystander")]))
    waiting = preemptor(WHOLE, nominated="n0")

    assert named(index, waiting, args(n1=offer(["bystander"]))) == {}
    assert named(index, waiting, args(n0=offer(["victim"]), n1=offer(["bystander"]))) == {}


def test_a_nomination_that_leads_nowhere_is_no_reason_to_wait() -> None:
    """Where nobody is on the way out, or that is not enough, the pod preempts again."""
    stays = cluster((ONE, [whole("stays", priority=200)]), (OTHER, [whole("bystander")]))
    little = [
        resident("little", (0, soft_grant(1000)), deleting=True),
        resident("large", (0, soft_grant(39000)), priority=200),
    ]
    short = cluster((ONE, little), (OTHER, [whole("bystander")]))
    waiting = preemptor(WHOLE, nominated="n0")

    for index in (stays, short):
        assert named(index, waiting, args(n1=offer(["bystander"]))) == {"n1": ["bystander"]}


def test_who_leaves_anyway_is_named_instead_of_the_living() -> None:
    """The scheduler deletes nobody twice, and keeps the room for the pod."""
    index = cluster((ONE, [whole("leaves", deleting=True)]), (OTHER, [whole("bystander")]))
    question = args(n0=offer(["leaves"]), n1=offer(["bystander"]))

    assert named(index, preemptor(WHOLE), question) == {"n0": ["leaves"]}


def test_somebody_more_important_who_leaves_is_waited_for_without_a_name() -> None:
    """No answer names a pod that matters as much, not even one that is deleted already."""
    there = [whole("leaves", deleting=True, priority=200)]
    index = cluster((ONE, there), (OTHER, [whole("bystander")]))
    question = args(n0=offer(["batch"]), n1=offer(["bystander"]))

    assert named(index, preemptor(WHOLE), question) == {}


def test_who_leaves_is_no_reason_to_spare_what_else_is_short() -> None:
    """A victim that holds no GPU is needed for something else, which nobody leaves behind."""
    index = cluster((ONE, [whole("leaves", deleting=True)]))

    assert named(index, preemptor(WHOLE), args(n0=offer(["batch"]))) == {"n0": ["batch"]}


def test_those_on_their_way_count_with_those_who_must_go() -> None:
    """Half of the room is coming, so that only the other half has to be made."""
    there = [
        resident("leaves", (0, soft_grant(20000)), deleting=True),
        resident("stays", (0, soft_grant(20000))),
    ]
    index = cluster((ONE, there))

    both = named(index, preemptor(WHOLE), args(n0=offer(["leaves", "stays"])))
    one = named(index, preemptor(WHOLE), args(n0=offer(["leaves"])))

    assert set(both["n0"]) == {"leaves", "stays"}
    assert one == {"n0": ["stays"]}


@pytest.mark.parametrize("ending", [{"over": True}, {"gone": True}], ids=["over", "gone"])
def test_an_entry_that_outlives_its_pod_is_room_coming(ending: dict[str, object]) -> None:
    """The scheduler sees the sums fit and offers the node without victims: the pod waits."""
    index = cluster((ONE, [whole("ended", **ending)]), (OTHER, [whole("bystander")]))
    question = args(n0=offer(), n1=offer(["bystander"]))

    assert named(index, preemptor(WHOLE), question) == {}


def test_room_is_spoken_for_by_equals() -> None:
    """What another preemptor of the same priority waits for is not counted a second time."""
    index = cluster(
        (ONE, [whole("victim", deleting=True)]),
        (OTHER, [whole("bystander")]),
        nominees=[preemptor(WHOLE, uid="first", nominated="n0")],
    )
    question = args(n0=offer(["victim"]), n1=offer(["bystander"]))

    assert named(index, preemptor(WHOLE, uid="second"), question) == {"n1": ["bystander"]}


@pytest.mark.parametrize("ending", ENDING)
def test_two_preemptors_wait_for_one_node(ending: dict[str, object]) -> None:
    """Each finds its half beside the other's, whatever is left of those who were in the way."""
    halves = [resident(uid, (0, soft_grant(20000)), **ending) for uid in ("a", "b")]
    first, second = (preemptor(HALF, uid=uid, nominated="n0") for uid in ("first", "second"))
    index = cluster((ONE, halves), (OTHER, [whole("bystander")]), nominees=[first, second])

    for waiting in (first, second):
        assert named(index, waiting, args(n1=offer(["bystander"]))) == {}


@pytest.mark.parametrize("served", [(), ("first",), ("second",)])
def test_equals_find_room_in_any_order_when_the_last_victim_is_gone(
    served: tuple[str, ...],
) -> None:
    """However they waited for one another, each fits beside the other's claim or promise."""
    both = [preemptor(WHOLE, uid=uid, nominated="n0") for uid in ("first", "second")]
    waiting = [one for one in both if one.uid not in served]
    there = [resident(uid, (0, soft_grant(40000)), priority=100) for uid in served]
    index = cluster((nodes_of(2, name="n0"), there), nominees=waiting)

    for one in waiting:
        found = filter_nodes(index, one, ["n0"], context=FilterContext(policy=PlacementPolicy()))
        assert found.fitting == ["n0"]


@pytest.mark.parametrize("gpu", [0, 1])
@pytest.mark.parametrize("priority", [200, 100], ids=["higher", "equal"])
def test_the_first_preemptor_waits_for_nobody_else_s_victim(*, gpu: int, priority: int) -> None:
    """One victim is gone, the other is slow: who comes first fits, and the other does not."""
    slow = resident("slow", (gpu, soft_grant(40000)), deleting=True)
    first = preemptor(WHOLE, uid="first", priority=priority, nominated="n0")
    second = preemptor(WHOLE, uid="second", nominated="n0")
    index = cluster((nodes_of(2, name="n0"), [slow]), nominees=[first, second])

    fit = [
        filter_nodes(index, one, ["n0"], context=FilterContext(policy=PlacementPolicy())).fitting
        for one in (first, second)
    ]

    assert fit == [["n0"], []]


def test_sums_that_count_another_s_victim_are_waited_for() -> None:
    """His room is free, but the scheduler, which tells nobody's room apart, finds him none yet.

    Somebody who matters more and leaves is none of his victims, and no reason to wait.
    """
    claims = [preemptor(WHOLE, uid=uid, nominated="n0") for uid in ("first", "second")]
    bystander = (OTHER, [whole("bystander")])
    question = args(n1=offer(["bystander"]))

    def asked(priority: int) -> dict[str, list[str]]:
        slow = whole("slow", deleting=True, priority=priority)
        index = cluster((nodes_of(2, name="n0"), [slow]), bystander, nominees=claims)
        return named(index, claims[0], question)

    assert asked(0) == {}
    assert asked(1000) == {"n1": ["bystander"]}


def test_a_nominee_of_less_importance_is_passed_over() -> None:
    """kube-scheduler clears the nomination of whoever matters less."""
    index = cluster(
        (ONE, [whole("victim", deleting=True)]),
        nominees=[preemptor(WHOLE, uid="first", nominated="n0", priority=50)],
    )

    found = named(index, preemptor(WHOLE, uid="second"), args(n0=offer(["victim"])))

    assert found == {"n0": ["victim"]}


def test_the_pod_s_own_earlier_promise_is_room() -> None:
    """A Binding that was lost left an entry; the pod does not evict others beside itself."""
    own = replace(whole("high"), bound=False)
    index = cluster((ONE, [own]), (OTHER, [whole("bystander")]))

    assert named(index, preemptor(WHOLE), args(n0=offer())) == {}


def test_a_slot_that_is_ebbing_opens_a_place() -> None:
    """On a cut GPU too: of two slots in the way the one of a living pod is made free."""
    cut = nodes_of(1, A30, mode=Mode.MIG, name="n0")
    there = [
        resident("ended", (0, mig_grant("1g.6gb", 0, product=A30)), over=True),
        resident("stays", (0, mig_grant("1g.6gb", 1, product=A30))),
        resident("apart", (0, mig_grant("2g.12gb", 2, product=A30)), priority=1),
    ]
    index = cluster((cut, there))
    wanted = preemptor(pod(ask(10000), mode=Mode.MIG))

    assert named(index, wanted, args(n0=offer())) == {"n0": ["stays"]}
