"""Debug containers: they see no GPU, and may not be privileged in a pod that has some."""

import pytest

from allocator.config.settings import Settings
from allocator.model.decision import Reason
from allocator.model.gpu import Snapshot
from tests.builders.pods import MEMORY, Json, container, pod, received, typed
from webhook.admission.context import AdmissionContext
from webhook.admission.ephemeral_containers import decide
from webhook.admission.outcome import GpusHidden, Outcome, Refused, Untouched

CONTEXT = AdmissionContext(settings=Settings(), snapshot=Snapshot(version="1"), host_paths=True)
ASKING = container("asks", limits={MEMORY: 3000})
PLAIN = container("plain")


def debugged(written: Json, **more: object) -> Outcome:
    before = received(written)
    debug = {"name": "debug", "image": "example.com/d:1", **more}
    after = before | {"spec": before["spec"] | {"ephemeralContainers": [debug]}}
    return decide(typed(after), typed(before), CONTEXT)


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(pod(ASKING), id="app"),
        pytest.param(pod(PLAIN, init=[ASKING]), id="init"),
        pytest.param(pod(PLAIN, init=[ASKING | {"restartPolicy": "Always"}]), id="sidecar"),
        pytest.param(pod(PLAIN, ASKING), id="second"),
    ],
)
def test_a_pod_has_gpus_whichever_container_asks(written: Json) -> None:
    """A privileged debug container would see the GPUs of any of them."""
    outcome = debugged(written, securityContext={"privileged": True})

    assert isinstance(outcome, Refused)
    assert outcome.findings.first.reason is Reason.PRIVILEGED


def test_a_pod_without_gpus_may_be_debugged_by_a_privileged_container() -> None:
    """What is refused is a way to GPUs, not privilege."""
    assert not isinstance(debugged(pod(PLAIN), securityContext={"privileged": True}), Refused)


def test_a_debug_container_is_blinded() -> None:
    """It asks for nothing, so it sees nothing."""
    assert isinstance(debugged(pod(ASKING)), GpusHidden)


def test_a_debug_container_cannot_ask() -> None:
    """Kubernetes gives it no resources of its own."""
    outcome = debugged(pod(PLAIN), resources={"limits": {MEMORY: "100"}})

    assert isinstance(outcome, Refused)
    assert outcome.findings.first.reason is Reason.EPHEMERAL


def test_a_debug_container_that_was_there_before_is_not_judged_again() -> None:
    """It cannot be changed any more, so a refusal would only be in the way."""
    there = received(pod(ASKING))
    there["spec"]["ephemeralContainers"] = [
        {"name": "debug", "image": "d", "securityContext": {"privileged": True}}
    ]

    assert isinstance(decide(typed(there), typed(there), CONTEXT), Untouched)
