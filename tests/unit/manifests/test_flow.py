"""Whose calls queue with ours in the API server, and that binds come before them all."""

import yaml

from manifests.generator.names import NAMESPACE, Json
from tests.unit.manifests.test_written import MANIFESTS, objects

OVERLAY = MANIFESTS / "overlays" / "kube-scheduler"
LEVEL = "vgpu-admission"
THEIRS = 800  # the precedence of the API server's own schema for kube-schedulers


def schemas() -> dict[str, Json]:
    """Return what the overlay applies, the base included, by name."""
    found = [*objects("FlowSchema"), *objects("FlowSchema", OVERLAY)]
    return {one["metadata"]["name"]: one["spec"] for one in found}


def test_our_scheduler_shares_our_level() -> None:
    """What it and the extender beside it read and write waits behind no tenant's controller."""
    (deployment,) = objects("Deployment", OVERLAY)
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]

    schema = schemas()["vgpu-scheduler"]

    (rule,) = schema["rules"]
    named = {"name": account, "namespace": NAMESPACE}
    assert rule["subjects"] == [{"kind": "ServiceAccount", "serviceAccount": named}]
    assert deployment["metadata"]["namespace"] == NAMESPACE
    assert schema["priorityLevelConfiguration"] == {"name": LEVEL}
    assert LEVEL in {one["metadata"]["name"] for one in objects("PriorityLevelConfiguration")}
    (ours,) = schemas()["vgpu-admission"]["rules"]
    assert {**rule, "subjects": []} == {**ours, "subjects": []}  # all that there is to ask


def test_its_binds_queue_with_all_others() -> None:
    """The first schema that matches decides: that of binds, then ours, then the API server's."""
    precedence = {name: spec["matchingPrecedence"] for name, spec in schemas().items()}

    assert precedence["vgpu-binds"] < precedence["vgpu-scheduler"] < THEIRS


def test_every_file_of_the_overlay_is_applied() -> None:
    """A file that no kustomization names would be forgotten in silence."""
    kustomization = yaml.safe_load((OVERLAY / "kustomization.yaml").read_text())
    named = {*kustomization["resources"], *kustomization["configMapGenerator"][0]["files"]}

    present = {path.name for path in OVERLAY.glob("*.yaml")} - {"kustomization.yaml"}
    assert named == present | {"../../base"}
