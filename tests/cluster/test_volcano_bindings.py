"""Bindings as Volcano posts them since 1.16: devices ride along, beside all annotations."""

from collections.abc import Mapping

import pytest

from allocator.model.request import Mode
from allocator.volcano.device_list import LIST_ANNOTATION
from tests.builders.model import A100_40, nodes_of
from tests.cluster.installation import PODS
from tests.cluster.volcano_site import Rig, asking

SIX = {
    "volcano.sh/vgpu-time": "1767225600",
    "volcano.sh/bind-time": "1767225600",
    "volcano.sh/bind-phase": "allocating",
}


def told(rig: Rig, team: str, name: str, *, node: str, ids: str) -> Mapping[str, str]:
    """Create a pod that nobody schedules, bind it as 1.16 does, and return its annotations."""
    memory = int(ids.split(",")[2])
    rig.create(team, name, asking(node, memory, mode="mig", scheduler="nobody"))
    path = f"{PODS.format(team)}/{name}"
    found = rig.site.api.get(path)["metadata"]
    devices = {
        LIST_ANNOTATION: ids,
        "volcano.sh/devices-to-allocate": ids,
        "volcano.sh/vgpu-node": node,
    }
    metadata = {
        "name": name,
        "namespace": team,
        "uid": found["uid"],
        "annotations": {**found.get("annotations", {}), **SIX, **devices},
    }
    body = {"metadata": metadata, "target": {"kind": "Node", "name": node}}
    rig.site.api.create(f"{path}/binding", {"apiVersion": "v1", "kind": "Binding", **body})
    annotations: Mapping[str, str] = rig.site.api.get(path)["metadata"]["annotations"]
    return annotations


@pytest.mark.parametrize(
    ("picked", "given"),
    [
        pytest.param("[group2-1],NVIDIA,8000", "group2-1", id="free-and-enough"),
        pytest.param("[group2-0],NVIDIA,3000", "group2-3", id="more-than-is-needed"),
        pytest.param("[group1-2],NVIDIA,8000", "group2-0", id="too-small"),
        pytest.param("[group9-0],NVIDIA,8000", "group2-0", id="no-such-group"),
        pytest.param("[group2-99],NVIDIA,8000", "group2-0", id="no-such-position"),
    ],
)
def test_a_pick_is_taken_where_it_fits(
    rig: Rig, request: pytest.FixtureRequest, *, picked: str, given: str
) -> None:
    """Else the best place of that GPU is."""
    node = f"pick-{request.node.callspec.id}"
    rig.serve(nodes_of(1, A100_40, mode=Mode.MIG, name=node))
    ids = f"GPU-{node}-0{picked},0:"

    annotations = told(rig, rig.site.namespace(), "p", node=node, ids=ids)

    memory = picked.split(",")[2]
    assert annotations[LIST_ANNOTATION] == f"GPU-{node}-0[{given}],NVIDIA,{memory},0:"
    assert annotations["volcano.sh/bind-phase"] == "success"
    assert annotations["volcano.sh/devices-to-allocate"] == ""


def test_one_pick_for_three_is_three_instances(rig: Rig) -> None:
    """Whatever was promised before, no two pods are told of one instance."""
    rig.serve(nodes_of(1, A100_40, mode=Mode.MIG, name="thrice"))
    team = rig.site.namespace()
    ids = "GPU-thrice-0[group1-4],NVIDIA,3000,0:"

    lists = {told(rig, team, name, node="thrice", ids=ids)[LIST_ANNOTATION] for name in "abc"}

    assert ids in lists
    assert len(lists) == 3
    assert {text.partition("[")[2].partition("-")[0] for text in lists} == {"group1"}
