"""Whole GPUs: the ledger and the driver decide who starts without the library, not the pod."""

import json

import pytest

from agent.deviceplugin.shares import share_of
from agent.node.pods import NodePod, parse_pod
from agent.share import NotYetError, Owner, Share
from allocator.config.settings import Settings
from allocator.model.allocation import Grant
from tests.builders.gpunodes import entry
from tests.builders.model import T4, device, model, soft_grant
from tests.builders.pods import CORES, MEMORY, MODE, NUMBER, admitted, container, pod, received
from tests.unit.webhook.admission.test_decide import around

LIBRARY = "vgpu-admission.io/library"
TOTAL = model(T4).memory
WHOLE = soft_grant(TOTAL, 100)
LIMITS: dict[str, object] = {NUMBER: 1, CORES: 100}


def bound(
    annotations: dict[str, str], limits: dict[str, object] | None = None, *, later: str | None = ""
) -> NodePod:
    """Return an admitted pod; *later* then replaces the annotation, or ``None`` removes it."""
    written = pod(container(limits=limits or LIMITS), annotations=annotations)
    found = admitted(received(written), around(Settings()))
    if later is None:
        del found["metadata"]["annotations"][LIBRARY]
    elif later:
        found["metadata"]["annotations"][LIBRARY] = later
    found["metadata"] |= {"uid": "u"}
    return parse_pod(json.dumps(found).encode())


def share(found: NodePod, *grants: Grant, unguarded: bool = False) -> Share:
    owner = Owner(uid="u", namespace="team-a", pod="p", containers=("main",))
    given = entry("u", *grants)
    return share_of(owner, found, given, devices=(device(), device(index=1)), unguarded=unguarded)


@pytest.mark.parametrize("unguarded", [False, True])
def test_whole_grants_go_without_the_library(unguarded: bool) -> None:
    """With and without CDI."""
    assert share(bound({LIBRARY: "off"}), WHOLE, unguarded=unguarded).library_off


SHORT = [
    pytest.param((soft_grant(TOTAL - 1, 100),), id="less-memory-than-the-board-has"),
    pytest.param((soft_grant(TOTAL, 99),), id="not-all-cores"),
    pytest.param((soft_grant(TOTAL, 0),), id="no-cores"),
    pytest.param((WHOLE, soft_grant(TOTAL - 1, 100, gpu="GPU-1")), id="one-of-two"),
]


@pytest.mark.parametrize("grants", SHORT)
def test_a_lesser_grant_keeps_the_library(grants: tuple[Grant, ...]) -> None:
    """With CDI its edits limit it, whatever the pod lacks."""
    assert not share(bound({LIBRARY: "off"}), *grants).library_off


@pytest.mark.parametrize("grants", SHORT)
def test_without_cdi_a_lesser_grant_does_not_start(grants: tuple[Grant, ...]) -> None:
    """Nothing could put the variables that limit it into a pod that was admitted as whole."""
    with pytest.raises(NotYetError, match="no variables that keep it to its share"):
        share(bound({LIBRARY: "off"}), *grants, unguarded=True)


def test_an_annotation_added_later_lifts_nothing() -> None:
    """A share that was admitted with limits keeps them, and the library that obeys them."""
    slice_of: dict[str, object] = {NUMBER: 1, MEMORY: 3000}
    found = bound({MODE: "hami-core"}, slice_of, later="off")

    assert not share(found, soft_grant(3000)).library_off
    assert not share(found, soft_grant(3000), unguarded=True).library_off


def test_an_annotation_added_later_takes_no_library_from_a_whole_gpu() -> None:
    """What admission mounted and wrote stays as one."""
    assert not share(bound({MODE: "hami-core"}, later="off"), WHOLE).library_off


def test_an_annotation_removed_later_brings_the_library_back() -> None:
    """Without CDI its variables are missing, so it cannot start."""
    found = bound({LIBRARY: "off"}, later=None)

    assert not share(found, WHOLE).library_off
    with pytest.raises(NotYetError, match="no variables"):
        share(found, WHOLE, unguarded=True)


def test_a_pod_that_bypassed_admission_gains_nothing() -> None:
    """A forged annotation does not make a share whole, nor replace our variables."""
    forged = pod(container(limits=LIMITS), annotations={LIBRARY: "off"}, nodeName="n")
    forged["metadata"] |= {"uid": "u"}
    found = parse_pod(json.dumps(forged).encode())

    assert not share(found, soft_grant(3000)).library_off
    with pytest.raises(NotYetError, match="not admitted"):
        share(found, soft_grant(3000), unguarded=True)
