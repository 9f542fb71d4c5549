"""A pod that comes again: reinvoked, prepended to, copied, or with a forged past."""

import copy

import pytest

from allocator.catalog.keys import ASKED_KEY, DECISION_KEY, MODE_SOURCE_KEY
from allocator.config.settings import Settings
from allocator.model.decision import ModeSource, Reason
from allocator.model.gpu import Snapshot
from tests.builders.pods import (
    CORES,
    GPU_MEM,
    MEMORY,
    MODE,
    NUMBER,
    PERCENT,
    Json,
    admitted,
    container,
    pod,
    received,
    typed,
    variables,
)
from webhook.admission.context import AdmissionContext
from webhook.admission.decide import confirm, decide
from webhook.admission.outcome import Refused, Rewritten
from webhook.review.json_patch import operations

AROUND = AdmissionContext(settings=Settings(), snapshot=Snapshot(version="1"), host_paths=True)

SHAPES = [
    pytest.param(pod(), id="open"),
    pytest.param(pod(annotations={MODE: "hami-core"}), id="hami-core"),
    pytest.param(pod(annotations={MODE: "mig"}), id="mig"),
    pytest.param(pod(annotations={"vgpu-admission.io/mig-profile": "1g.5gb"}), id="profile"),
    pytest.param(pod(container(limits={MEMORY: 3000})), id="slot-added"),
    pytest.param(pod(container(limits={NUMBER: 1, PERCENT: 50})), id="percentage"),
    pytest.param(pod(container(limits={NUMBER: 2, CORES: 30})), id="two-devices"),
    pytest.param(pod(container(limits={GPU_MEM: 1})), id="gpushare"),
    pytest.param(pod(schedulerName="volcano"), id="volcano"),
    pytest.param(
        pod(
            container(limits={MEMORY: 3000}),
            container("b"),
            init=[container("i", limits={MEMORY: 1000})],
        ),
        id="init",
    ),
]


@pytest.mark.parametrize("written", SHAPES)
def test_a_second_pass_changes_nothing(written: Json) -> None:
    """Reinvocation finds everything in place."""
    once = admitted(received(written), AROUND)
    outcome = decide(typed(once), AROUND)

    assert isinstance(outcome, Rewritten)
    assert operations(typed(once), outcome.intent) == []


@pytest.mark.parametrize("written", SHAPES)
def test_validation_confirms_what_mutation_made(written: Json) -> None:
    """The last word is yes where nobody interfered."""
    assert isinstance(confirm(typed(admitted(received(written), AROUND)), AROUND), Rewritten)


def test_a_later_injector_may_prepend_a_container() -> None:
    """Keys stay with the containers that read them, and the newcomer is blinded."""
    once = admitted(received(pod(container(limits={MEMORY: 3000}))), AROUND)
    once["spec"]["containers"].insert(0, container("mesh"))
    twice = admitted(once, AROUND)

    assert variables(twice)["NVIDIA_VISIBLE_DEVICES"] == variables(once)["NVIDIA_VISIBLE_DEVICES"]
    assert variables(twice, "mesh") == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_a_newcomer_that_asks_gets_a_key_of_its_own() -> None:
    """Two containers never read one annotation."""
    once = admitted(received(pod(container(limits={MEMORY: 3000}))), AROUND)
    once["spec"]["containers"].insert(0, container("new", limits={MEMORY: 1000}))
    twice = admitted(received(once), AROUND)

    assert (
        variables(twice)["NVIDIA_VISIBLE_DEVICES"]
        != variables(twice, "new")["NVIDIA_VISIBLE_DEVICES"]
    )


def test_two_containers_cannot_share_a_key() -> None:
    """A copied variable that reads a neighbour's annotation is refused."""
    once = admitted(received(pod(container(limits={MEMORY: 3000}))), AROUND)
    twin = copy.deepcopy(once["spec"]["containers"][0]) | {"name": "twin"}
    once["spec"]["containers"].append(twin)
    outcome = decide(typed(once), AROUND)

    assert isinstance(outcome, Refused)
    assert outcome.findings.first.reason is Reason.RESERVED_VARIABLE


def test_a_copied_manifest_passes_as_it_is() -> None:
    """Kubectl get -o yaml, then apply under another name, with what was asked unchanged."""
    once = admitted(received(pod(annotations={MODE: "hami-core"})), AROUND)
    once["metadata"]["name"] = "copy"

    assert admitted(once, AROUND)["metadata"]["annotations"] == once["metadata"]["annotations"]


def test_an_edited_copy_is_taken_as_new() -> None:
    """What it says was asked is not believed once the amounts differ."""
    once = admitted(received(pod(annotations={MODE: "mig"})), AROUND)
    resources = once["spec"]["containers"][0]["resources"]
    for side in resources.values():
        side[MEMORY] = "6k"
    again = admitted(once, AROUND)

    assert '"6k"' in again["metadata"]["annotations"][ASKED_KEY]
    assert (
        again["metadata"]["annotations"][DECISION_KEY]
        != once["metadata"]["annotations"][DECISION_KEY]
    )


def test_a_forged_past_gains_nothing() -> None:
    """Whoever claims to have named no mode leaves the choice to us; the amounts are read anew."""
    forged = {ASKED_KEY: '{"mode":null,"containers":{}}', MODE_SOURCE_KEY: "best", MODE: "mig"}
    outcome = decide(typed(received(pod(annotations=forged))), AROUND)

    assert isinstance(outcome, Rewritten)
    assert outcome.choice.source is ModeSource.BEST
    assert outcome.asked.containers == {"main": {NUMBER: "1", MEMORY: "3k"}}


@pytest.mark.parametrize("past", ["", "{", "[]", '{"mode":7}', "x" * 20_000, '{"mode":"mps"}'])
def test_a_garbled_past_is_ignored(past: str) -> None:
    """Whatever stands there, the pod is decided."""
    written = pod(annotations={ASKED_KEY: past, MODE_SOURCE_KEY: "best", MODE: "mig"})

    assert isinstance(decide(typed(received(written)), AROUND), Rewritten)


def test_validation_refuses_what_a_later_webhook_took_away() -> None:
    """An injection with a hole is no injection."""
    once = admitted(received(pod(annotations={MODE: "hami-core"})), AROUND)
    env = once["spec"]["containers"][0]["env"]
    env[:] = [variable for variable in env if variable["name"] != "LD_PRELOAD"]
    outcome = confirm(typed(once), AROUND)

    assert isinstance(outcome, Refused)
    assert outcome.findings.first.reason is Reason.INCOMPLETE


def test_validation_tolerates_a_namespace_that_changed_its_level() -> None:
    """Volumes were injected before Pod Security tightened; the API server judges those."""
    once = admitted(received(pod(annotations={MODE: "hami-core"})), AROUND)

    assert isinstance(confirm(typed(once), AROUND), Rewritten)
