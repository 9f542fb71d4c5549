"""Whose kernels go first: asked for by annotation, allowed by namespace, injected as a variable."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from agent.deviceplugin.shares import shares_of
from agent.node.pods import parse_pod
from allocator.audit.record_source import RecordStamp
from allocator.catalog.keys import PRIORITY_KEY
from allocator.config.settings import NodeAgent, Settings
from allocator.model.decision import Reason
from allocator.model.request import Priority
from tests.builders.gpunodes import entry
from tests.builders.model import soft_grant
from tests.builders.pods import MODE, Json, admitted, decided, pod, received, typed, variables
from tests.unit.agent.node.test_pods import DEVICES
from tests.unit.webhook.admission.test_decide import around
from webhook.admission.audit_record import DecisionContext, record
from webhook.admission.decide import confirm
from webhook.admission.outcome import Refused, Rewritten
from webhook.plan.plan_cli import surroundings
from webhook.review.admission_review import Request

PLAIN = around(Settings())
ALLOWED = replace(PLAIN, high_priority=True)
HIGH = {PRIORITY_KEY: "high", MODE: "hami-core"}
LOW = {PRIORITY_KEY: "low", MODE: "hami-core"}


def share(found: Json) -> Priority:
    """Return the priority under which the agent serves a pod as it was admitted."""
    found["metadata"] |= {"uid": "u", "name": "p", "namespace": "team-a"}
    found["spec"]["nodeName"] = "n"
    (one,) = shares_of(
        [entry("u", soft_grant(1))], {"u": parse_pod(json.dumps(found).encode())}, DEVICES
    )
    return one.priority


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({MODE: "hami-core"}, Priority.LOW, id="nothing-asked"),
        pytest.param(LOW, Priority.LOW, id="low"),
        pytest.param(HIGH, Priority.HIGH, id="high"),
        pytest.param({PRIORITY_KEY: "high"}, Priority.HIGH, id="high-of-an-open-mode"),
    ],
)
def test_what_a_pod_asks_for_is_what_the_agent_goes_by(
    annotations: dict[str, str], expected: Priority
) -> None:
    """The variable carries it, which neither the tenant nor a later webhook may change."""
    found = admitted(received(pod(annotations=annotations)), ALLOWED)

    assert variables(found)["CUDA_TASK_PRIORITY"] == str(expected.value)
    assert share(found) is expected


def test_a_second_pass_finds_nothing_to_do() -> None:
    """A high priority that was injected is not taken for one that a tenant brought."""
    found = admitted(received(pod(annotations=HIGH)), ALLOWED)

    assert isinstance(confirm(typed(found), ALLOWED), Rewritten)
    assert admitted(found, ALLOWED) == found


@pytest.mark.parametrize("agent", list(NodeAgent))
def test_without_leave_nobody_holds_back_his_neighbours(agent: NodeAgent) -> None:
    """The refusal names what an administrator would have to write."""
    outcome = decided(pod(annotations=HIGH), around(Settings(node_agent=agent)))

    assert isinstance(outcome, Refused)
    assert outcome.findings.first.reason is Reason.PRIORITY
    assert "vgpu-admission.io/high-priority=allow" in outcome.findings.first.remedy
    assert isinstance(decided(pod(annotations=LOW), PLAIN), Rewritten)


def test_a_plan_takes_the_leave_for_granted() -> None:
    """It knows no namespaces; what it is asked is where the pod would go."""
    fleet = (Path(__file__).parents[4] / "webhook/samples/fleet.yaml").read_text()
    assumed = surroundings(fleet=fleet, name="fleet.yaml", settings=Settings())

    assert isinstance(decided(pod(annotations=HIGH), assumed), Rewritten)


@pytest.mark.parametrize("text", ["High", "", "0", "urgent", "h" * 10_000])
def test_a_priority_that_is_none_is_refused(text: str) -> None:
    """Briefly, and with the words that would be understood."""
    outcome = decided(pod(annotations={PRIORITY_KEY: text}), ALLOWED)

    assert isinstance(outcome, Refused)
    assert outcome.findings.first.reason is Reason.MALFORMED
    assert "use high or low" in str(outcome.findings.first)
    assert len(str(outcome.findings.first)) < 500


def test_the_record_says_who_goes_first() -> None:
    """So that it can be found out later who held back whom."""
    review = Request(uid="r", object=typed(received(pod(annotations=HIGH))))
    when = DecisionContext(stamp=RecordStamp("0" * 32, ""), seconds=0.0, settings="")

    found = record(review, decided(pod(annotations=HIGH), ALLOWED), when)

    assert found["priority"] == "high"


def test_a_tenants_own_variable_is_refused_all_the_same() -> None:
    """Allowed is the annotation, which an auditor sees."""
    made = pod(annotations=LOW)
    made["spec"]["containers"][0]["env"] = [{"name": "CUDA_TASK_PRIORITY", "value": "0"}]
    outcome = decided(made, ALLOWED)

    assert isinstance(outcome, Refused)
    assert outcome.findings.first.reason is Reason.RESERVED_VARIABLE
