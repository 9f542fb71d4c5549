"""Nodes that Volcano's own plugin serves: Volcano schedules, we promise, the plugin takes over."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.volcano.device_list import LIST_ANNOTATION
from tests.cluster.api import Json, wait_for
from tests.cluster.installation import GPU_NODES, PODS
from tests.cluster.site import MANIFESTS
from tests.cluster.volcano_site import SERVED_WITHIN, Rig, asking, volcano_site

SETTINGS = (MANIFESTS / "components" / "volcano" / "settings.yaml").read_text()
CUT = "GPU-0,10,40536,NVIDIA-NVIDIA A100-SXM4-40GB,true,mig:"
SOFT = "GPU-1,10,15360,NVIDIA-Tesla T4,true,hami-core:"


@pytest.fixture(scope="module")
def rig(programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Yield such an installation, with the older of the tables that Volcano was shipped with."""
    folder = tmp_path_factory.mktemp("upstream")
    with volcano_site(programs, folder, settings=SETTINGS, table="a") as found:
        yield found


def announce(rig: Rig, name: str, register: str) -> None:
    """Do as the plugin does, and wait until the node has a ledger."""
    rig.serve_upstream(name, register)
    wait_for(lambda: _status(rig, name).get("inventory"), within=SERVED_WITHIN)


def _status(rig: Rig, name: str) -> Json:
    found: Json = rig.site.api.get(f"{GPU_NODES}/{name}").get("status", {})
    return found


def test_a_share_is_handed_over(rig: Rig) -> None:
    """Its plugin finds the pod in its queue, with the devices that the ledger says."""
    announce(rig, "soft", SOFT)
    team = rig.site.namespace()
    rig.create(team, "p", asking("soft", 3000))

    annotations = rig.wait_for_bound(team, ["p"])["p"]["metadata"]["annotations"]

    assert annotations[LIST_ANNOTATION] == annotations["volcano.sh/devices-to-allocate"]
    assert annotations[LIST_ANNOTATION] == "GPU-1,NVIDIA,3000,0:"
    assert annotations["volcano.sh/bind-phase"] == "allocating"
    assert int(annotations["volcano.sh/vgpu-time"]) < 2**63
    assert annotations["vgpu-admission.io/served-by"] == "upstream"
    assert [entry.pod for entry in rig.ledger("soft")] == ["p"]


def test_a_gang_on_one_gpu_is_handed_over_distinct(rig: Rig) -> None:
    """Each member's position is its own, so the plugin gives each an instance of its own."""
    announce(rig, "cut", CUT)
    team = rig.site.namespace()
    rig.group(team, "gang", 3)
    for name in "abc":
        rig.create(team, name, asking("cut", 3000, mode="mig", group="gang"))

    rig.wait_for_bound(team, "abc")

    lists = {rig.devices(team, name) for name in "abc"}
    assert len(lists) == 3
    assert all(text.startswith("GPU-0[group1-") for text in lists)
    assert wait_for(lambda: rig.charged("GPU-0") == 3 * 5120)


def test_what_is_over_is_gone_with_the_pod(rig: Rig) -> None:
    """No agent of ours holds anything there: the next pod gets what a deleted one had.

    Volcano's account keeps what an instance has more than was asked for, until the plugin's next
    report makes it count anew.
    """
    announce(rig, "turn", CUT.replace("GPU-0", "GPU-2"))
    team = rig.site.namespace()
    rig.create(team, "first", asking("turn", 30000, mode="mig"))
    rig.wait_for_bound(team, ["first"])

    rig.create(team, "second", asking("turn", 30000, mode="mig"))
    rig.site.api.delete(f"{PODS.format(team)}/first")
    wait_for(lambda: not rig.ledger("turn"), within=SERVED_WITHIN)
    rig.report("turn")

    rig.wait_for_bound(team, ["second"])
    assert rig.devices(team, "second") == "GPU-2[group4-0],NVIDIA,30000,0:"
