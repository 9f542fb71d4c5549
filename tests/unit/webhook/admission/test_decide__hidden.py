"""Containers from which the API server hid the GPUs before it called us: right, and counted."""

import pytest

from allocator.config.settings import Settings
from allocator.model.gpu import Snapshot
from tests.builders.pods import Json, container, decided, pod, received, typed
from webhook.admission import ephemeral_containers
from webhook.admission.context import AdmissionContext
from webhook.admission.outcome import GpusHidden, Outcome, Refused, Untouched
from webhook.review.json_patch import operations

CONTEXT = AdmissionContext(settings=Settings(), snapshot=Snapshot(version="1"), host_paths=True)
NAME = "NVIDIA_VISIBLE_DEVICES"
VOID = {"name": NAME, "value": "void"}
READ = {"name": NAME, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


def debugged(debug: Json) -> Outcome:
    before = received(pod(container()))
    after = before | {"spec": before["spec"] | {"ephemeralContainers": [debug]}}
    return ephemeral_containers.decide(typed(after), typed(before), CONTEXT)


def test_a_pod_whose_gpus_are_hidden_is_recorded_as_such() -> None:
    """Nothing is added to what the policy wrote, and the pod is not called untouched."""
    written = pod(container(env=[{"name": "A"}, VOID]), init=[container("i", env=[VOID])])

    outcome = decided(written, CONTEXT)

    assert isinstance(outcome, GpusHidden)
    assert operations(typed(received(written)), outcome.intent) == []


def test_only_what_is_missing_is_added() -> None:
    """An injector may have added a container after the policy."""
    written = pod(container(env=[VOID]), container("later"))

    outcome = decided(written, CONTEXT)

    assert isinstance(outcome, GpusHidden)
    assert [(c.kind, c.index) for c in outcome.intent.containers] == [("containers", 1)]


def test_a_debug_container_that_is_blind_is_recorded_as_such() -> None:
    """The same goes for what is added to a running pod."""
    outcome = debugged(container("d", env=[VOID]))

    assert isinstance(outcome, GpusHidden)
    assert outcome.intent.containers == ()


@pytest.mark.parametrize("env", [[{"name": NAME, "value": "none"}], [{"name": NAME}]])
def test_what_its_author_hid_is_not_our_doing(env: list[Json]) -> None:
    """The policy writes one value only."""
    assert decided(pod(container(env=env)), CONTEXT) == Untouched()
    assert debugged(container("d", env=env)) == Untouched()


@pytest.mark.parametrize("env", [[VOID, {"name": NAME, "value": "all"}], [VOID, READ]])
def test_hidden_and_shown_is_refused(env: list[Json]) -> None:
    """The last entry wins, so the first proves nothing."""
    assert isinstance(decided(pod(container(env=env)), CONTEXT), Refused)


@pytest.mark.parametrize("value", ["all", "0", "GPU-1", "void,0", " void"])
def test_an_init_container_may_not_name_gpus(value: str) -> None:
    """It runs on the same node, and would see every GPU of it."""
    naming = container("first", env=[{"name": NAME, "value": value}])

    assert isinstance(decided(pod(container(), init=[naming]), CONTEXT), Refused)
    assert isinstance(decided(pod(container(), naming), CONTEXT), Refused)
