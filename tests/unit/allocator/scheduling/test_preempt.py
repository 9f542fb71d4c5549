"""Preemption: whom an answer names on a node, and why nobody else."""

from dataclasses import replace

import msgspec
import pytest

from allocator.extender.schema import PREEMPTION_ARGS
from allocator.ledger.assign import PodClaim
from allocator.model.decision import Finding, Findings, Reason
from allocator.model.request import Mode
from allocator.placement.choose import PlacementPolicy
from allocator.scheduling.preempt import select_victims
from tests.builders.model import A30, A100_40, ask, mig_grant, nodes_of, pod, soft_grant
from tests.builders.preemption import Resident, args, cluster, named, offer, preemptor, resident

WHOLE = pod(ask(40000), mode=Mode.HAMI_CORE)
HALF = pod(ask(20000), mode=Mode.HAMI_CORE)
TWO_GPUS = nodes_of(2, name="n0")


def halves(**priorities: int) -> list[Resident]:
    """Two pods of 20,000 MiB on each of two GPUs: a, b on the first, c, d on the second."""
    places = {"a": 0, "b": 0, "c": 1, "d": 1}
    return [
        resident(uid, (index, soft_grant(20000)), priority=priorities.get(uid, 0))
        for uid, index in places.items()
    ]


def test_what_the_scheduler_proposes_stands_where_it_is_enough() -> None:
    """The scheduler may need its victims for other things too, so they are not exchanged."""
    index = cluster((TWO_GPUS, halves(a=9)))

    assert named(index, preemptor(HALF), args(n0=offer(["a"]))) == {"n0": ["a"]}


def test_sums_are_not_places() -> None:
    """Two halves of two GPUs are a whole GPU by sums only: the pods of one GPU go instead."""
    index = cluster((TWO_GPUS, halves(a=3, b=1, c=2, d=2)))

    assert set(named(index, preemptor(WHOLE), args(n0=offer(["b", "d"])))["n0"]) == {"c", "d"}


def test_the_most_important_victim_comes_first() -> None:
    """kube-scheduler takes the first of a list for the most important when it compares nodes."""
    index = cluster((TWO_GPUS, halves(a=1, b=2, c=50, d=50)))

    assert named(index, preemptor(WHOLE), args(n0=offer(["a", "c"]))) == {"n0": ["b", "a"]}


def test_few_important_pods_are_worth_less_than_many_unimportant_ones() -> None:
    """The highest priority among the victims decides before their number."""
    quarters = [resident(f"q{i}", (0, soft_grant(10000)), priority=1) for i in range(4)]
    one = resident("one", (1, soft_grant(40000)), priority=2)
    index = cluster((TWO_GPUS, [*quarters, one]))

    found = named(index, preemptor(WHOLE), args(n0=offer()))["n0"]

    assert set(found) == {"q0", "q1", "q2", "q3"}


def test_of_equal_pods_the_fewest_go() -> None:
    """One large pod goes rather than four small ones of its priority."""
    quarters = [resident(f"q{i}", (0, soft_grant(10000)), priority=1) for i in range(4)]
    one = resident("one", (1, soft_grant(40000)), priority=1)
    index = cluster((TWO_GPUS, [*quarters, one]))

    assert named(index, preemptor(WHOLE), args(n0=offer())) == {"n0": ["one"]}


def test_of_equal_pods_the_youngest_goes() -> None:
    """What has run longest has most to lose."""
    old = resident("old", (0, soft_grant(40000)), created="2026-11-21T08:00:00Z")
    new = resident("new", (1, soft_grant(40000)), created="2026-11-21T09:00:00Z")
    index = cluster((TWO_GPUS, [old, new]))

    assert named(index, preemptor(WHOLE), args(n0=offer())) == {"n0": ["new"]}


@pytest.mark.parametrize("priority", [100, 101], ids=["equal", "higher"])
def test_nobody_who_matters_as_much_is_named(priority: int) -> None:
    """A node whose room is held by equals is no candidate, whatever else is on it."""
    index = cluster((TWO_GPUS, halves(a=priority, c=priority)))
    question = args(n0=offer(["b", "d"]))

    assert named(index, preemptor(WHOLE, priority=100), question) == {}


def test_a_proposal_that_names_an_equal_is_not_followed() -> None:
    """Our caches may be newer than the scheduler's: it asks again with what is true."""
    index = cluster((TWO_GPUS, halves(a=100)))

    assert named(index, preemptor(HALF, priority=100), args(n0=offer(["a"]))) == {}


def test_a_place_must_open_on_a_cut_gpu() -> None:
    """Slots that are free apart from each other are no place: the pod between them goes."""
    cut = nodes_of(1, A30, mode=Mode.MIG, name="n0")
    slices = [
        resident(f"s{start}", (0, mig_grant("1g.6gb", start, product=A30)), priority=priority)
        for start, priority in ((1, 5), (2, 5), (3, 1))
    ]
    index = cluster((cut, slices))  # 0 is free; 2g.12gb sits at 0 or 2

    found = named(index, preemptor(pod(ask(10000), mode=Mode.MIG)), args(n0=offer(["s3"])))

    assert found == {"n0": ["s1"]}


def test_a_profile_that_the_board_lacks_is_not_cured() -> None:
    """A node that could not serve the pod if it were empty is left out."""
    cut = nodes_of(1, A30, mode=Mode.MIG, name="n0")
    held = resident("s", (0, mig_grant("4g.24gb", 0, product=A30)))
    index = cluster((cut, [held]))

    assert named(index, preemptor(pod(ask(90000), mode=Mode.MIG)), args(n0=offer(["s"]))) == {}


def test_the_mode_that_admission_left_final_holds() -> None:
    """A pod that got its mode at CREATE evicts nobody from GPUs in the other one."""
    cut = nodes_of(1, A30, mode=Mode.MIG, name="n0")
    index = cluster((cut, [resident("s", (0, mig_grant("4g.24gb", 0, product=A30)))]))
    wanted = [
        PodClaim(uid="high", request=pod(ask(5000)), mode=mode)
        for mode in (Mode.HAMI_CORE, Mode.MIG, None)
    ]

    found = [
        named(index, replace(preemptor(HALF), claim=one), args(n0=offer(["s"]))) for one in wanted
    ]

    assert found == [{}, {"n0": ["s"]}, {"n0": ["s"]}]


def test_several_gpus_are_emptied_together() -> None:
    """A pod of two exclusive GPUs evicts from both, and from no third."""
    three = nodes_of(3, A100_40, name="n0")
    index = cluster(
        (three, [resident(f"p{i}", (i, soft_grant(1000)), priority=i) for i in range(3)])
    )
    wanted = pod(ask(cores=100, count=2), mode=Mode.HAMI_CORE)

    assert named(index, preemptor(wanted), args(n0=offer())) == {"n0": ["p1", "p0"]}


def test_who_holds_no_gpu_was_proposed_for_something_else() -> None:
    """Processors may be short as well: the scheduler's victims stay, ours are added."""
    index = cluster((TWO_GPUS, halves()))
    question = args(n0=offer(["batch", "a"]))

    found = named(index, preemptor(WHOLE), question)["n0"]

    assert set(found) == {"batch", "a", "b"}


def test_what_is_short_may_be_none_of_ours() -> None:
    """Where the GPUs have room the scheduler's victims are its own affair."""
    index = cluster((TWO_GPUS, halves()[:1]))

    assert named(index, preemptor(WHOLE), args(n0=offer(["a"]))) == {"n0": ["a"]}
    assert named(index, preemptor(WHOLE), args(n0=offer())) == {}


def test_a_pod_that_is_not_bound_here_cannot_be_named() -> None:
    """An entry whose Binding is under way belongs to a pod that the scheduler may not see."""
    there = [resident("x", (0, soft_grant(40000)), bound=False)]
    index = cluster((nodes_of(1, name="n0"), there))

    assert named(index, preemptor(WHOLE), args(n0=offer())) == {}
    assert named(index, preemptor(WHOLE), args(n0=offer(["x"]))) == {"n0": ["x"]}


def test_a_node_without_inventory_is_left_out() -> None:
    """Nothing can be said about it, and nobody should die for that."""
    assert named(cluster((TWO_GPUS, halves())), preemptor(HALF), args(other=offer(["a"]))) == {}


def test_violations_are_those_of_the_scheduler_s_own_victims() -> None:
    """Whether others break a budget is not on the wire; what is never grows."""
    index = cluster((TWO_GPUS, halves(a=3, b=3)))
    question = args(n0=offer(["b", "d"], violations=2))

    answer = select_victims(index, preemptor(WHOLE), question, policy=PlacementPolicy())

    (found,) = answer.node_name_to_meta_victims.values()
    assert {meta.uid for meta in found.pods or ()} == {"c", "d"}
    assert found.num_pdb_violations == 1


@pytest.mark.parametrize("key", ["NodeNameToMetaVictims", "NodeNameToVictims"])
@pytest.mark.parametrize("pods", [None, []], ids=["null", "empty"])
def test_an_empty_list_asks_for_the_least_victims(key: str, pods: object) -> None:
    """Newer schedulers offer nodes that fit by sums without victims, in either form."""
    body = {"Pod": {}, key: {"n0": {"Pods": pods, "NumPDBViolations": 0}}}
    question = PREEMPTION_ARGS.decode(msgspec.json.encode(body))
    index = cluster((TWO_GPUS, halves(a=3, b=3)))

    assert set(named(index, preemptor(WHOLE), question)["n0"]) == {"c", "d"}


def test_whole_pods_are_answered_by_uid() -> None:
    """The answer has one form, whichever the question had; null maps are no question."""
    whole = {"n0": {"Pods": [{"metadata": {"uid": "a"}, "spec": {}}], "NumPDBViolations": 0}}
    body = {"Pod": {}, "NodeNameToVictims": whole, "NodeNameToMetaVictims": None}
    question = PREEMPTION_ARGS.decode(msgspec.json.encode(body))
    none = PREEMPTION_ARGS.decode(b'{"Pod": {}}')
    index = cluster((TWO_GPUS, halves(c=5, d=5)))

    assert named(index, preemptor(HALF), question) == {"n0": ["a"]}
    assert named(index, preemptor(HALF), none) == {}


def test_a_pod_of_no_concern_to_us_is_the_scheduler_s_business() -> None:
    """Its proposal comes back as it was, but for nodes without victims, which would be an error."""
    index = cluster((TWO_GPUS, halves()))
    question = args(n0=offer(["a"]), n1=offer())

    assert named(index, replace(preemptor(HALF), claim=None), question) == {"n0": ["a"]}


def test_a_request_that_cannot_be_read_evicts_nobody() -> None:
    """No eviction makes it readable."""
    flaw = Finding(reason=Reason.MALFORMED, place="pod", field="", what="odd", remedy="mend it")
    index = cluster((TWO_GPUS, halves()))

    assert named(index, replace(preemptor(HALF), claim=Findings(flaw)), args(n0=offer(["a"]))) == {}
