"""Drift: what a node holds and the ledger does not promise there, or the other way round."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.monitor.drift import LASTING_SECONDS, HardwareDrift, LastingDrift, drifts
from agent.monitor.violation import ObservedUse, violations
from agent.monitor.violation import ViolationKind as Misuse
from agent.node.cgroup import PodCgroup
from allocator.ledger.drift import DriftKind
from tests.builders.model import mig_grant, soft_grant
from tests.unit.agent.monitor.test_violation import (
    OWN,
    SOFT,
    located_process,
    observed,
    share,
    violation,
)

TWICE = (share(mig_grant("1g.5gb", 3)), share(mig_grant("1g.5gb", 3), container="side"))


def drift_kinds(observed_use: ObservedUse) -> list[tuple[DriftKind, str]]:
    return [(d.kind, d.gpu) for d in drifts(observed_use, violations(observed_use))]


@pytest.mark.parametrize(
    ("looked_at", "expected"),
    [
        pytest.param(observed(located_process(8000), shares=SOFT), [], id="as-promised"),
        pytest.param(
            observed(located_process(99000), shares=SOFT), [], id="too-much-is-the-users-affair"
        ),
        pytest.param(observed(shares=OWN), [], id="instance-there"),
        pytest.param(
            observed(shares=TWICE), [(DriftKind.MISSING, "GPU-0")], id="missing-for-one-pod"
        ),
        pytest.param(
            replace(observed(shares=TWICE), instances=None), [], id="nobody-has-looked-yet"
        ),
        pytest.param(
            observed(located_process()), [(DriftKind.EXTRA, "GPU-0")], id="without-an-entry"
        ),
        pytest.param(
            observed(located_process(gpu="GPU-1"), shares=SOFT),
            [(DriftKind.EXTRA, "GPU-1")],
            id="another-gpu",
        ),
        pytest.param(
            observed(located_process(cgroup=None), located_process(cgroup=PodCgroup("u9", None))),
            [(DriftKind.EXTRA, "GPU-0")],
            id="of-no-pod",
        ),
        pytest.param(
            observed(located_process(None, cgroup=None), located_process(0, cgroup=None)),
            [],
            id="without-memory",
        ),
    ],
)
def test_promise_and_node_are_compared(
    looked_at: ObservedUse, expected: list[tuple[DriftKind, str]]
) -> None:
    """Each difference once, however many containers or processes show it."""
    assert drift_kinds(looked_at) == expected


def test_changed_limits_are_told_otherwise() -> None:
    """The region of a container says what it is promised, or should."""
    (drift,) = drifts(observed(shares=SOFT), [violation(Misuse.LIMITS)])

    assert (drift.kind, drift.pod) == (DriftKind.DIFFERENT, violation().pod)


def test_a_sentence_stays_while_figures_change() -> None:
    """Else each look would tell anew."""
    before, after = (
        observed(
            located_process(memory),
            located_process(memory, cgroup=None),
            shares=(share(soft_grant(1), uid="u2"),),
        )
        for memory in (100, 101)
    )

    assert drifts(before, violations(before)) == drifts(after, violations(after))


LOOKS = st.lists(st.tuples(st.floats(0.1, 2 * LASTING_SECONDS), st.booleans()), max_size=30)


def report_times(looks: Iterable[tuple[float, bool]]) -> list[float]:
    """Return when it was told of a drift that is there at some looks, each after a pause."""
    drift, lasting, now, times = (
        HardwareDrift(kind=DriftKind.EXTRA, gpu="GPU-0", what="x"),
        LastingDrift(),
        0.0,
        [],
    )
    for pause, present in looks:
        now += pause
        lasting, to_report = lasting.advance([drift] if present else [], now)
        times += [now] * len(to_report)
    return times


@given(LOOKS)
def test_each_onset_is_told_at_most_once_and_only_after_it_has_lasted(
    looks: list[tuple[float, bool]],
) -> None:
    """As many times as it was there without a break for long enough, whenever one looks."""
    now, began, expected = 0.0, None, set()
    for pause, there in looks:
        now += pause
        began = (now if began is None else began) if there else None
        if began is not None and now - began >= LASTING_SECONDS:
            expected.add(began)

    assert len(report_times(looks)) == len(expected)


def test_it_is_told_again_when_it_comes_back() -> None:
    """Which is another onset."""
    lasting = [(0.0, True), (LASTING_SECONDS, True), (LASTING_SECONDS, True)]

    assert len(report_times(lasting)) == 1
    assert len(report_times([*lasting, (1.0, False), *lasting])) == 2
