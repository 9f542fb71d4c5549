"""What ledger, agent and pods tell differently is reported, once it lasts."""

import asyncio
import json
from dataclasses import replace

import pytest

from allocator.cluster.pods import Pods
from allocator.controllers.drift import DriftController
from allocator.ledger.drift import find_drifts
from allocator.ledger.ledger import Ledger
from allocator.request.pod_summary import PodSummary
from kube.clock import Clock
from kube.events import Event
from tests.builders.gpunodes import entry, gpu_node, ledger
from tests.builders.model import nodes_of, soft_grant
from tests.builders.summaries import replace_pods

NODE = nodes_of(1)
ENTRY = entry("a", soft_grant(100, gpu="GPU-n0-0"))
STRAY = entry("b", soft_grant(100, gpu="GPU-n0-0"))
TOLD = json.dumps(gpu_node(NODE, (ENTRY,))["spec"]["entries"][0]["containers"])
POD = PodSummary(uid="a", node="n0", deleting=False, over=False, assignment_json=TOLD)
LEDGER = ledger(NODE, (ENTRY,))


def drifts_of(node_ledger: Ledger, pod: PodSummary = POD) -> list[tuple[str, str]]:
    return [(drift.kind, drift.uid) for drift in find_drifts(node_ledger, {pod.uid: pod})]


@pytest.mark.parametrize(
    ("node_ledger", "pod", "expected"),
    [
        pytest.param(LEDGER, POD, [], id="agreed"),
        pytest.param(LEDGER, replace(POD, assignment_json=""), [], id="not-told-yet"),
        pytest.param(
            LEDGER, replace(POD, assignment_json="[]"), [("different", "a")], id="told-otherwise"
        ),
        pytest.param(
            LEDGER, replace(POD, assignment_json="{"), [("different", "a")], id="told-nonsense"
        ),
        pytest.param(LEDGER, replace(POD, assignment_json="[]", node=""), [], id="not-bound-yet"),
        pytest.param(
            ledger(nodes_of(1, name="n1"), (ENTRY,)),
            replace(POD, node="n1"),
            [("missing", "a")],
            id="no-such-gpu",
        ),
        pytest.param(replace(LEDGER, held=frozenset({"a"})), POD, [], id="held"),
        pytest.param(
            replace(LEDGER, held=frozenset({"z"})), POD, [("extra", "z")], id="held-by-nobody"
        ),
        pytest.param(replace(LEDGER, unpromised=(STRAY,)), POD, [("extra", "b")], id="unpromised"),
    ],
)
def test_what_differs(
    node_ledger: Ledger, pod: PodSummary, expected: list[tuple[str, str]]
) -> None:
    """Each kind of difference is told from what agrees."""
    assert drifts_of(node_ledger, pod) == expected


def test_what_is_unknown_is_not_missing() -> None:
    """Before an agent has spoken nothing can be there."""
    bare = replace(ledger(nodes_of(1, name="n1"), (ENTRY,)), inventory="")

    assert drifts_of(bare, replace(POD, node="n1")) == []


def test_only_what_lasts_is_told() -> None:
    """Caches run ahead of each other; a gauge says how many there are now."""
    now, events, counts = [0.0], list[Event](), dict[str, int]()
    pods = Pods()
    replace_pods(pods, {"a": replace(POD, assignment_json="[]")})
    clock = Clock(monotonic=lambda: now[0])
    report = DriftController(
        lambda: {"n0": LEDGER},
        pods,
        record=events.append,
        count=counts.__setitem__,
        clock=clock,
    )

    asyncio.run(report.sweep())
    told_at_once = len(events)
    now[0] = 10.0
    asyncio.run(report.sweep())

    assert (told_at_once, [event.reason for event in events]) == (0, ["VgpuDrift"])
    assert counts == {"missing": 0, "extra": 0, "different": 1, "unreadable": 0}
    replace_pods(pods, {"a": POD})
    asyncio.run(report.sweep())
    assert counts["different"] == 0
