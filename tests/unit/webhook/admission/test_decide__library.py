"""A pod with whole GPUs may leave out the interception library, and no other pod may."""

import pytest

from allocator.config.settings import NodeAgent, Settings
from allocator.model.decision import Reason
from allocator.model.request import Mode
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
    decided,
    pod,
    received,
    typed,
    variables,
)
from tests.unit.webhook.admission.test_decide import UNKNOWN, around
from webhook.admission.decide import confirm, decide
from webhook.admission.outcome import Refused, Rewritten

LIBRARY = "vgpu-admission.io/library"
OFF = {LIBRARY: "off"}
WHOLE: dict[str, object] = {NUMBER: 1, CORES: 100}
SLICE: dict[str, object] = {NUMBER: 1, MEMORY: 3000}
COUNT = "aliyun.com/gpu-count"


@pytest.mark.parametrize(
    ("limits", "annotations"),
    [
        pytest.param(WHOLE, OFF, id="all-memory"),
        pytest.param(WHOLE | {PERCENT: 100}, OFF, id="a-hundred-percent"),
        pytest.param(WHOLE | {NUMBER: 4}, OFF, id="several"),
        pytest.param(WHOLE, OFF | {MODE: "hami-core"}, id="mode-named"),
        pytest.param({COUNT: 1}, OFF, id="gpushare"),
    ],
)
def test_a_whole_container_goes_without(
    limits: dict[str, object], annotations: dict[str, str]
) -> None:
    """No mount, no volume, no limit; the device still comes from the Binding alone."""
    found = admitted(received(pod(container(limits=limits), annotations=annotations)), UNKNOWN)

    written = variables(found)
    assert (
        written["NVIDIA_VISIBLE_DEVICES"] == "metadata.annotations['vgpu-admission.io/c0.visible']"
    )
    assert [name for name in written if name.startswith(("CUDA_", "LD_", "VGPU_"))] == []
    assert "volumeMounts" not in found["spec"]["containers"][0]
    assert not found["spec"].get("volumes")


@pytest.mark.parametrize("limits", [WHOLE, WHOLE | {PERCENT: 100}, {COUNT: 1}])
def test_a_second_pass_changes_nothing(limits: dict[str, object]) -> None:
    """What the first pass wrote is still whole, and validation agrees."""
    found = admitted(received(pod(container(limits=limits), annotations=OFF)), UNKNOWN)

    assert admitted(found, UNKNOWN) == found
    assert isinstance(confirm(typed(found), UNKNOWN), Rewritten)


def test_the_mode_is_hami_core() -> None:
    """A whole GPU is never an instance, so the Binding has nothing to choose."""
    outcome = decided(pod(container(limits=WHOLE), annotations=OFF), UNKNOWN)

    assert isinstance(outcome, Rewritten)
    assert outcome.choice.mode is Mode.HAMI_CORE


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["whole-first", "whole-last"])
def test_the_other_containers_keep_the_library(order: tuple[int, int]) -> None:
    """They share their GPUs with other pods."""
    whole_one, side_one = container("whole", WHOLE), container("side", SLICE)
    both = [(whole_one, side_one)[place] for place in order]

    found = admitted(received(pod(*both, annotations=OFF)), UNKNOWN)

    plain = admitted(received(pod(*both, annotations={MODE: "hami-core"})), UNKNOWN)
    mounts = {each["name"]: each.get("volumeMounts") for each in found["spec"]["containers"]}
    usual = {each["name"]: each.get("volumeMounts") for each in plain["spec"]["containers"]}
    side = f"metadata.annotations['vgpu-admission.io/c{order.index(1)}.visible']"
    assert mounts == {"whole": None, "side": usual["side"]}
    assert variables(found, "side") == variables(plain, "side")
    assert variables(found, "side")["NVIDIA_VISIBLE_DEVICES"] == side
    assert found["spec"]["volumes"] == plain["spec"]["volumes"]


def test_without_the_annotation_a_whole_container_has_the_library() -> None:
    """Nobody loses it unasked."""
    written = pod(container(limits=WHOLE), annotations={MODE: "hami-core"})

    found = admitted(received(written), UNKNOWN)

    assert variables(found)["CUDA_DISABLE_CONTROL"] == "false"
    assert found["spec"]["containers"][0]["volumeMounts"]


def refusal(written: Json, settings: Settings | None = None) -> tuple[Reason, str]:
    outcome = decide(typed(received(written)), around(settings or Settings()))
    assert isinstance(outcome, Refused)
    return outcome.findings.first.reason, str(outcome.findings.first)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "on",
        "OFF",
        " off",
        "off ",
        "false",
        "true",
        "0",
        "off,off",
        "\uff4f\uff46\uff46",
        "o" * 70000,
    ],
)
def test_another_value_is_malformed(text: str) -> None:
    """Only the one word counts, and a long one is cut in the answer."""
    reason, message = refusal(pod(container(limits=WHOLE), annotations={LIBRARY: text}))

    assert reason is Reason.MALFORMED
    assert LIBRARY in message
    assert len(message) < 600


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(SLICE, id="an-amount"),
        pytest.param({NUMBER: 1}, id="no-cores"),
        pytest.param(WHOLE | {CORES: 99}, id="99-cores"),
        pytest.param(WHOLE | {PERCENT: 99}, id="99-percent"),
        pytest.param(WHOLE | {MEMORY: 81920}, id="an-amount-and-all-cores"),
        pytest.param({GPU_MEM: 4}, id="gpushare"),
    ],
)
def test_a_pod_without_a_whole_container_is_refused(limits: dict[str, object]) -> None:
    """An amount in MiB may be less than the board that is found has."""
    reason, message = refusal(pod(container(limits=limits), annotations=OFF))

    assert reason is Reason.CONFLICTING
    assert f"or remove {LIBRARY}" in message


@pytest.mark.parametrize(
    "named", [{MODE: "mig"}, {"vgpu-admission.io/mig-profile": "1g.5gb"}], ids=["mode", "profile"]
)
def test_another_mode_beside_it_is_refused(named: dict[str, str]) -> None:
    """Neither of the two is ignored."""
    (key,) = named
    reason, message = refusal(pod(container(limits=WHOLE), annotations=OFF | named))

    assert reason is Reason.CONFLICTING
    assert f"remove {LIBRARY}, or remove {key}" in message


def test_another_device_plugin_cannot_leave_it_out() -> None:
    """It brings the library to every container, whatever the pod says."""
    upstream = Settings(node_agent=NodeAgent.UPSTREAM)

    reason, message = refusal(pod(container(limits=WHOLE), annotations=OFF), upstream)

    assert reason is Reason.CONFLICTING
    assert "another device plugin" in message
