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
from tests.unit.agent.monitor.test_violation import OWN, SOFT, picture, seen, share, violation

TWICE = (share(mig_grant("1g.5gb", 3)), share(mig_grant("1g.5gb", 3), container="side"))


def found(looked_at: ObservedUse) -> list[tuple[DriftKind, str]]:
    return [(d.kind, d.gpu) for d in drifts(looked_at, violations(looked_at))]


@pytest.mark.parametrize(
    ("looked_at", "expected"),
    [
        pytest.param(picture(seen(8000), shares=SOFT), [], id="as-promised"),
        pytest.param(picture(seen(99000), shares=SOFT), [], id="too-much-is-the-users-affair"),
        pytest.param(picture(shares=OWN), [], id="instance-there"),
        pytest.param(
            picture(shares=TWICE), [(DriftKind.MISSING, "GPU-0")], id="missing-for-one-pod"
        ),
        pytest.param(
            replace(picture(shares=TWICE), instances=None), [], id="nobody-has-looked-yet"
        ),
        pytest.param(picture(seen()), [(DriftKind.EXTRA, "GPU-0")], id="without-an-entry"),
        pytest.param(
            picture(seen(gpu="GPU-1"), shares=SOFT), [(DriftKind.EXTRA, "GPU-1")], id="another-gpu"
        ),
        pytest.param(
            picture(seen(cell=None), seen(cell=PodCgroup("u9", None))),
            [(DriftKind.EXTRA, "GPU-0")],
            id="of-no-pod",
        ),
        pytest.param(picture(seen(None, cell=None), seen(0, cell=None)), [], id="without-memory"),
    ],
)
def test_promise_and_node_are_compared(
    looked_at: ObservedUse, expected: list[tuple[DriftKind, str]]
) -> None:
    """Each difference once, however many containers or processes show it."""
    assert found(looked_at) == expected


def test_changed_limits_are_told_otherwise() -> None:
    """The region of a container says what it is promised, or should."""
    (drift,) = drifts(picture(shares=SOFT), [violation(Misuse.LIMITS)])

    assert (drift.kind, drift.pod) == (DriftKind.DIFFERENT, violation().pod)


def test_a_sentence_stays_while_figures_change() -> None:
    """Else each look would tell anew."""
    before, after = (
        picture(seen(memory), seen(memory, cell=None), shares=(share(soft_grant(1), uid="u2"),))
        for memory in (100, 101)
    )

    assert drifts(before, violations(before)) == drifts(after, violations(after))


LOOKS = st.lists(st.tuples(st.floats(0.1, 2 * LASTING_SECONDS), st.booleans()), max_size=30)


def told(looks: Iterable[tuple[float, bool]]) -> list[float]:
    """Return when it was told of a drift that is there at some looks, each after a pause."""
    drift, course, now, when = (
        HardwareDrift(kind=DriftKind.EXTRA, gpu="GPU-0", what="x"),
        LastingDrift(),
        0.0,
        [],
    )
    for pause, there in looks:
        now += pause
        course, due = course.advance([drift] if there else [], now)
        when += [now] * len(due)
    return when


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

    assert len(told(looks)) == len(expected)


def test_it_is_told_again_when_it_comes_back() -> None:
    """Which is another onset."""
    lasting = [(0.0, True), (LASTING_SECONDS, True), (LASTING_SECONDS, True)]

    assert len(told(lasting)) == 1
    assert len(told([*lasting, (1.0, False), *lasting])) == 2
