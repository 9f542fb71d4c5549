"""A promise goes when its pod was never bound for long, or is over and nobody holds it."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from allocator.ledger.ledger import Ledger
from allocator.ledger.lifecycle import NodeIdentity
from allocator.ledger.reclaim import (
    SURPLUS_AGE,
    UNBOUND_AGE,
    ReclaimEvidence,
    is_reclaimable,
    is_settled,
    is_surplus,
    may_be_reclaimable,
    possible_owner,
    reclaim_reason,
)
from allocator.model.request import Mode
from allocator.request.pod_summary import PodSummary
from tests.builders.gpunodes import NOON, entry, ledger
from tests.builders.model import gpu, mig_grant, node

ENTRY = entry("a", mig_grant("1g.5gb", 0, gpu="GPU-n0-0"))
LEDGER = ledger(node("n0", gpu(mode=Mode.MIG)), (ENTRY,), nodeUID="u")
MACHINE = NodeIdentity(name="n0", uid="u", boot="boot-1", agent=True)
WAITING = PodSummary(uid="a", node="", deleting=False, over=False)
HERE = replace(WAITING, node="n0")
ASKING = replace(HERE, extended=("nvidia.com/gpu",))
OLD, YOUNG = NOON + UNBOUND_AGE, NOON + UNBOUND_AGE - timedelta(seconds=1)


def goes(
    node_ledger: Ledger,
    pod: PodSummary | None,
    *,
    now: datetime = NOON,
    machine: NodeIdentity | None = MACHINE,
    agent: bool = True,
) -> bool:
    evidence = ReclaimEvidence(pod=pod, node=machine, now=now, agent_serves=agent)
    return is_reclaimable(node_ledger, ENTRY, evidence)


@pytest.mark.parametrize(
    ("pod", "may"),
    [
        pytest.param(WAITING, True, id="waiting"),
        pytest.param(replace(WAITING, node="n9"), True, id="elsewhere"),
        pytest.param(HERE, False, id="here"),
        pytest.param(replace(HERE, deleting=True), False, id="terminating"),
        pytest.param(replace(WAITING, deleting=True), False, id="waiting-to-go"),
    ],
)
def test_a_promise_to_a_pod_that_is_not_there_ages(pod: PodSummary, *, may: bool) -> None:
    """Only a live pod with no node, or another one, lets it go, and only after its time."""
    assert goes(LEDGER, pod, now=OLD) is may
    assert not goes(LEDGER, pod, now=YOUNG)


OVER = pytest.mark.parametrize(
    "pod",
    [
        pytest.param(None, id="gone"),
        pytest.param(replace(HERE, uid="b"), id="made-anew"),
        pytest.param(replace(HERE, over=True), id="ended"),
    ],
)


@OVER
def test_a_pod_that_is_over_frees_what_nobody_holds(pod: PodSummary | None) -> None:
    """The agent must have seen this very ledger, and its containers must be gone."""
    held = replace(LEDGER, held=frozenset({"a"}))
    behind = replace(LEDGER, observed_generation=LEDGER.generation - 1)

    assert goes(LEDGER, pod)
    assert not goes(held, pod, now=OLD)
    assert not goes(behind, pod, now=OLD)
    assert goes(behind, pod, agent=False)


@OVER
@pytest.mark.parametrize(
    "machine",
    [
        pytest.param(replace(MACHINE, boot="boot-2"), id="rebooted"),
        pytest.param(replace(MACHINE, uid="v"), id="joined-anew"),
    ],
)
def test_a_status_of_an_earlier_life_frees_nothing(
    pod: PodSummary | None, machine: NodeIdentity
) -> None:
    """Who wrote it cannot have seen what runs there now."""
    assert not goes(LEDGER, pod, machine=machine)


@OVER
def test_a_node_that_is_gone_frees_only_what_is_shut(pod: PodSummary | None) -> None:
    """Nobody is left to say that its containers ended, so nothing may be promised there first."""
    held = replace(LEDGER, held=frozenset({"a"}))

    assert not goes(held, pod, machine=None)
    assert goes(replace(held, inventory=""), pod, machine=None)
    assert not goes(replace(held, inventory=""), HERE, machine=None, now=OLD)


@pytest.mark.parametrize(
    ("pod", "now", "worth"),
    [
        pytest.param(None, NOON, True, id="unknown"),
        pytest.param(replace(HERE, over=True), NOON, True, id="ended"),
        pytest.param(WAITING, YOUNG, False, id="young"),
        pytest.param(WAITING, OLD, True, id="old"),
        pytest.param(HERE, OLD, False, id="here"),
    ],
)
def test_caches_say_where_to_look(pod: PodSummary | None, now: object, *, worth: bool) -> None:
    """What is bound and alive is not asked about again and again."""
    assert may_be_reclaimable(NOON, pod, node="n0", now=now) is worth  # type: ignore[arg-type]  # a time


@OVER
def test_a_node_that_our_agent_has_left_frees_what_is_over(pod: PodSummary | None) -> None:
    """Nobody will report its containers' end any more; a closed ledger gives nothing out."""
    held = replace(LEDGER, held=frozenset({"a"}))
    left = replace(MACHINE, agent=False)

    assert goes(replace(held, inventory=""), pod, machine=left)
    assert not goes(held, pod, machine=left)
    assert not goes(replace(held, inventory=""), pod, machine=MACHINE)
    assert not goes(replace(held, inventory=""), HERE, machine=left)


def goes_early(node_ledger: Ledger, pod: PodSummary, *, now: datetime) -> bool:
    evidence = ReclaimEvidence(pod=pod, node=MACHINE, now=now, agent_serves=True, surplus=True)
    return is_reclaimable(node_ledger, ENTRY, evidence)


def elsewhere(**seconds: int | None) -> list[Ledger]:
    """Return ledgers by name with an entry of the pod so many seconds newer, or none."""
    return [
        ledger(
            node(name, gpu()),
            () if newer is None else (replace(ENTRY, since=NOON + timedelta(seconds=newer)),),
        )
        for name, newer in seconds.items()
    ]


@pytest.mark.parametrize(
    ("others", "surplus"),
    [
        pytest.param(elsewhere(), False, id="no-other"),
        pytest.param(elsewhere(n1=5), False, id="one"),
        pytest.param(elsewhere(n1=5, n2=6), True, id="two-newer"),
        pytest.param(elsewhere(n1=5, n2=-6), False, id="one-newer-one-older"),
        pytest.param(elsewhere(n1=5, n2=None, n3=None), False, id="others-without-it"),
        pytest.param(elsewhere(n1=5, n2=None, n3=6), True, id="two-of-three"),
        pytest.param(elsewhere(n1=0, n2=0), True, id="of-one-second-by-name"),
        pytest.param(elsewhere(m1=0, n2=0), False, id="of-one-second-before-by-name"),
    ],
)
def test_the_oldest_of_three_is_too_many(others: list[Ledger], *, surplus: bool) -> None:
    """Of entries of one second the names decide, so that every replica means the same one."""
    assert is_surplus(ENTRY, "n0", others) is surplus


@pytest.mark.parametrize(
    ("pod", "may"),
    [
        pytest.param(WAITING, True, id="waiting"),
        pytest.param(replace(WAITING, node="n9"), False, id="elsewhere"),
        pytest.param(HERE, False, id="here"),
        pytest.param(replace(WAITING, deleting=True), False, id="waiting-to-go"),
    ],
)
def test_an_entry_too_many_goes_early(pod: PodSummary, *, may: bool) -> None:
    """Of a pod that is not bound, and only once a Binding that relies on it should have landed."""
    late, early = NOON + SURPLUS_AGE, NOON + SURPLUS_AGE - timedelta(seconds=1)
    held = replace(LEDGER, held=frozenset({"a"}))

    assert goes_early(LEDGER, pod, now=late) is may
    assert not goes_early(LEDGER, pod, now=early)
    assert not goes(LEDGER, pod, now=late)
    assert not goes_early(held, pod, now=late)
    assert may_be_reclaimable(NOON, pod, node="n0", now=late, surplus=True) is (not pod.node)
    assert not may_be_reclaimable(NOON, pod, node="n0", now=early, surplus=True)


@pytest.mark.parametrize(
    ("pod", "now", "why"),
    [
        pytest.param(WAITING, NOON + SURPLUS_AGE, "replaced", id="too-many"),
        pytest.param(WAITING, OLD, "unbound", id="unbound"),
        pytest.param(replace(WAITING, node="n9"), OLD, "elsewhere", id="elsewhere"),
        pytest.param(None, NOON, "over", id="gone"),
        pytest.param(replace(WAITING, uid="b"), NOON, "over", id="another"),
    ],
)
def test_a_reason_says_what_has_become_of_the_pod(
    pod: PodSummary | None, now: datetime, why: str
) -> None:
    """Records tell one entry too many from one whose time was over."""
    evidence = ReclaimEvidence(pod=pod, node=MACHINE, now=now, agent_serves=True, surplus=True)
    assert reclaim_reason(ENTRY, evidence) == why


@pytest.mark.parametrize(
    ("pod", "settled"),
    [
        (HERE, True),
        (replace(HERE, deleting=True), True),
        (replace(HERE, over=True), False),
        (replace(WAITING, node="n9"), False),
        (WAITING, False),
        (None, False),
    ],
)
def test_only_an_entry_of_a_pod_that_runs_there_is_settled(
    pod: PodSummary | None, *, settled: bool
) -> None:
    """Any other becomes removable by itself, or is already."""
    assert is_settled(pod, node="n0") is settled


@pytest.mark.parametrize(
    ("pod", "known", "owner"),
    [
        pytest.param(ASKING, (), True, id="runs-there"),
        pytest.param(ASKING, ("a",), False, id="has-an-entry"),
        pytest.param(ASKING, ("b",), True, id="another-has-an-entry"),
        pytest.param(replace(ASKING, over=True), (), False, id="over"),
        pytest.param(replace(ASKING, node="n9"), (), False, id="elsewhere"),
        pytest.param(replace(ASKING, node=""), (), False, id="unbound"),
        pytest.param(HERE, (), False, id="asks-for-nothing"),
    ],
)
def test_an_entry_without_a_uid_may_be_that_of_any_pod_without_one(
    pod: PodSummary, known: tuple[str, ...], *, owner: bool
) -> None:
    """It is kept for that pod until nobody can be its owner."""
    there = ledger(node("n0", gpu(mode=Mode.MIG)), [entry(uid) for uid in known], nodeUID="u")
    nameless = replace(ENTRY, uid="")

    found = possible_owner(there, nameless, {"a": pod})

    assert found == (replace(pod, uid="") if owner else None)


def test_the_owner_of_an_entry_with_a_uid_is_the_pod_of_that_uid() -> None:
    """Wherever that is; no other pod is asked."""
    assert possible_owner(LEDGER, ENTRY, {"a": WAITING, "b": HERE}) == WAITING
    assert possible_owner(LEDGER, ENTRY, {"b": HERE}) is None


def test_an_entry_without_a_uid_goes_once_nobody_unknown_is_held() -> None:
    """A held pod that has an entry of its own is not its owner."""
    nameless = replace(ENTRY, uid="")
    there = ledger(node("n0", gpu(mode=Mode.MIG)), (ENTRY,), nodeUID="u", held=["a"])
    evidence = ReclaimEvidence(pod=None, node=MACHINE, now=OLD, agent_serves=True)

    assert is_reclaimable(there, nameless, evidence)
    assert not is_reclaimable(replace(there, held=frozenset({"a", "b"})), nameless, evidence)


def test_where_no_agent_of_ours_reports_a_pod_that_is_over_frees_at_once() -> None:
    """MetaX's plugin says of no container that it has ended."""
    read = replace(LEDGER, driver="metax", held=frozenset({"a"}))

    assert goes(read, None)
    assert not goes(replace(read, driver=LEDGER.driver), None)
    assert not goes(read, HERE, now=OLD)
