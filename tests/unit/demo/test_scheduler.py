"""The scheduler of the demo."""

import pytest

from allocator.config.settings import DEFAULTS
from demo.scheduler import choice_for, unschedulable_pod
from tests.builders.model import T4, gpu, node, nodes_of, snapshot, soft_grant
from tests.builders.pods import MEMORY, NUMBER, Json, admitted, container, pod, received
from webhook.admission.context import AdmissionContext

FULL = node("n0", gpu(T4, grants=[soft_grant(15_000)]))


def asking(context: AdmissionContext) -> Json:
    """Return a pod as admission leaves it."""
    limits = {NUMBER: 1, MEMORY: 4000}
    found = admitted(received(pod(container(limits=limits))), context)
    found["metadata"] |= {"name": "p", "uid": "u"}
    return found


def test_a_pod_goes_where_it_fits() -> None:
    """The scheduler is told what the binding hook decides later."""
    context = AdmissionContext(
        settings=DEFAULTS, snapshot=snapshot(FULL, nodes_of(1, T4, name="n1"))
    )

    choice = choice_for(asking(context), context)

    assert choice.assignment is not None
    assert choice.assignment.node == "n1"


def test_what_no_node_takes_says_so() -> None:
    """The condition has the reason by which the leader counts pods that wait."""
    context = AdmissionContext(settings=DEFAULTS, snapshot=snapshot(FULL))
    waiting = asking(context)

    found = unschedulable_pod(waiting, choice_for(waiting, context), 1)

    (condition,) = found["status"]["conditions"]
    assert condition["reason"] == "Unschedulable"
    assert condition["message"].startswith("0/1 nodes are available: container ")
    assert "status" not in waiting or waiting["status"] != found["status"]


def test_a_pod_without_a_request_is_no_matter_of_ours() -> None:
    """The story has none; if it had, the demo would not guess a node."""
    context = AdmissionContext(settings=DEFAULTS, snapshot=snapshot(FULL))
    plain = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"name": "a"}]}}

    with pytest.raises(ValueError, match="pod p asks for no GPU"):
        choice_for(plain, context)
