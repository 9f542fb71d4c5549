"""Pods that ask in gpushare's words keep their variables and get the mode that they name."""

from collections.abc import Mapping

import pytest

from allocator.model.request import Mode
from tests.builders.containers import GPU_COUNT
from tests.builders.model import nodes_of, snapshot
from tests.builders.pods import (
    GPU_MEM,
    MEMORY,
    MODE,
    NUMBER,
    Json,
    admitted,
    container,
    decided,
    pod,
    received,
    variables,
)
from tests.unit.webhook.admission.test_decide import UNKNOWN, reason
from webhook.admission.context import AdmissionContext
from webhook.admission.outcome import Refused

OWN = "vgpu-admission.io/"
ALIYUN = "ALIYUN_COM_GPU_MEM_"
ISOLATED = {f"{OWN}isolate": "true"}
BOTH = AdmissionContext(
    settings=UNKNOWN.settings,
    snapshot=snapshot(nodes_of(2, mode=Mode.MIG), nodes_of(2, name="n1")),
    host_paths=True,
)


def share(annotations: Mapping[str, str] | None = None, limits: Json | None = None) -> Json:
    return pod(
        container("web"),
        container(limits=limits or {GPU_MEM: 2}),
        container("second", limits={GPU_MEM: 3}),
        annotations=annotations,
    )


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({}, id="memory-only"),
        pytest.param(ISOLATED, id="isolated"),
        pytest.param({f"{OWN}mode": "hami-core"}, id="hami-core"),
        pytest.param({MODE: "hami-core"}, id="by-volcanos-key"),
    ],
)
def test_programs_find_all_four_variables_in_every_mode(annotations: dict[str, str]) -> None:
    """What was asked is literal; the GPU is known at the bind, which brings two annotations."""
    found = variables(admitted(received(share(annotations)), BOTH))

    assert {name: found[name] for name in found if name.startswith(ALIYUN)} == {
        f"{ALIYUN}CONTAINER": "2",
        f"{ALIYUN}POD": "5",
        f"{ALIYUN}DEV": f"metadata.annotations['{OWN}c1.gpu-units']",
        f"{ALIYUN}IDX": f"metadata.annotations['{OWN}c1.gpu-index']",
    }


def test_the_variables_are_those_of_shares_in_gpushares_words() -> None:
    """A whole GPU is no share, and Volcano's pods have variables of their own."""
    whole = admitted(received(pod(container(limits={GPU_COUNT: 2}))), BOTH)
    volcano = admitted(received(pod(container(limits={NUMBER: 1, MEMORY: 2000}))), BOTH)

    for found in (whole, volcano):
        assert not [name for name in variables(found) if name.startswith(ALIYUN)]


@pytest.mark.parametrize("annotations", [{}, ISOLATED])
@pytest.mark.parametrize("name", ["CONTAINER", "POD", "DEV", "IDX"])
def test_a_share_is_not_the_tenants_to_write(annotations: dict[str, str], name: str) -> None:
    """A program would limit itself by it; a pod of another vocabulary may write what it likes."""
    env = [{"name": f"{ALIYUN}{name}", "value": "1000"}]
    forged = pod(container(limits={GPU_MEM: 2}, env=env), annotations=annotations)
    volcano = pod(container(limits={NUMBER: 1, MEMORY: 2000}, env=env))

    assert reason(decided(forged, BOTH)) == "ReservedVariable"
    assert variables(admitted(received(volcano), BOTH))[f"{ALIYUN}{name}"] == "1000"


@pytest.mark.parametrize("key", [MODE, f"{OWN}mode"])
def test_a_named_mode_is_honoured_and_stays_in_a_second_pass(key: str) -> None:
    """Ours and Volcano's annotation name it; a copy of the admitted pod changes nothing."""
    once = admitted(received(share({key: "hami-core"})), BOTH)
    notes = once["metadata"]["annotations"]

    assert (notes[f"{OWN}mode"], notes[f"{OWN}mode-source"]) == ("hami-core", "named")
    assert notes[key] == "hami-core"
    assert admitted(once, BOTH) == once


@pytest.mark.parametrize(
    "annotations",
    [
        {MODE: "mps"},
        {MODE: "mig"},
        {f"{OWN}mode": "mig"},
        {MODE: ""},
        {f"{OWN}mode": "Mig"},
        {f"{OWN}mode": "mig "},
        {f"{OWN}mode": "m" * 5000},
        {f"{OWN}mode": "mig,hami-core"},
        {**ISOLATED, MODE: "mig"},
        {f"{OWN}mode": "hami-core", MODE: "mig"},
        {f"{OWN}isolate": "false", MODE: "mig"},
        {MODE: "\u202egim"},
    ],
)
def test_a_mode_that_cannot_be_honoured_is_refused(annotations: dict[str, str]) -> None:
    """None of them is ignored, and the answer stays short."""
    outcome = decided(share(annotations), BOTH)

    assert isinstance(outcome, Refused)
    assert len(str(outcome.findings.first)) < 400
    assert str(outcome.findings.first).isprintable()
