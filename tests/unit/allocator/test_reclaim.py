"""A promise goes when its pod was never bound for long, or is over and nobody holds it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from allocator.core.reclaim import AGE, Seen, doubtful, reclaimable, seen
from allocator.model.request import Mode
from tests.builders import gpu, mig_grant, node
from tests.gpunodes import NOON, entry, ledger

ENTRY = entry("a", mig_grant("1g.5gb", 0, gpu="GPU-n0-0"))
LEDGER = ledger(node("n0", gpu(mode=Mode.MIG)), (ENTRY,))
WAITING = Seen(uid="a", node="", deleting=False, over=False)
HERE = replace(WAITING, node="n0")
OLD, YOUNG = NOON + AGE, NOON + AGE - timedelta(seconds=1)


@pytest.mark.parametrize(
    ("pod", "goes"),
    [
        pytest.param(WAITING, True, id="waiting"),
        pytest.param(replace(WAITING, node="n9"), True, id="elsewhere"),
        pytest.param(HERE, False, id="here"),
        pytest.param(replace(HERE, deleting=True), False, id="terminating"),
        pytest.param(replace(WAITING, deleting=True), False, id="waiting-to-go"),
    ],
)
def test_a_promise_to_a_pod_that_is_not_there_ages(pod: Seen, *, goes: bool) -> None:
    """Only a live pod with no node, or another one, lets it go, and only after its time."""
    assert reclaimable(LEDGER, ENTRY, pod, now=OLD, agent=True) is goes
    assert not reclaimable(LEDGER, ENTRY, pod, now=YOUNG, agent=True)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(None, id="gone"),
        pytest.param(replace(HERE, uid="b"), id="made-anew"),
        pytest.param(replace(HERE, over=True), id="ended"),
    ],
)
def test_a_pod_that_is_over_frees_what_nobody_holds(pod: Seen | None) -> None:
    """The agent must have seen this very ledger, and its containers must be gone."""
    held = replace(LEDGER, held=frozenset({"a"}))
    behind = replace(LEDGER, observed_generation=LEDGER.generation - 1)

    assert reclaimable(LEDGER, ENTRY, pod, now=NOON, agent=True)
    assert not reclaimable(held, ENTRY, pod, now=OLD, agent=True)
    assert not reclaimable(behind, ENTRY, pod, now=OLD, agent=True)
    assert reclaimable(behind, ENTRY, pod, now=NOON, agent=False)


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
def test_caches_say_where_to_look(pod: Seen | None, now: object, *, worth: bool) -> None:
    """What is bound and alive is not asked about again and again."""
    assert doubtful(NOON, pod, node="n0", now=now) is worth  # type: ignore[arg-type]  # a time


def test_a_pod_is_read() -> None:
    """Four facts of a pod are all that counts."""
    raw = b'{"metadata":{"uid":"a"},"spec":{"nodeName":"n0"},"status":{"phase":"Failed"}}'

    assert seen(raw) == replace(HERE, over=True)
