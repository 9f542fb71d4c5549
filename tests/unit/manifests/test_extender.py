"""The component that lets schedulers ask us keeps to what the base and the program have."""

from pathlib import Path

import jsonpatch
import yaml

import vgpu
from manifests.generator.names import Json
from tests.unit.manifests.test_written import MANIFESTS, objects
from webhook.serve.certificates import CLIENT_SECRET

COMPONENT = MANIFESTS / "components" / "extender"


def patched(kind: str) -> Json:
    """Return the base's object of a *kind* as the component leaves it."""
    component = yaml.safe_load((COMPONENT / "kustomization.yaml").read_text())
    (patch,) = [p for p in component["patches"] if p["target"]["kind"] == kind]
    name = patch["target"]["name"]
    (standing,) = [found for found in objects(kind) if found["metadata"]["name"] == name]
    found: Json = jsonpatch.apply_patch(standing, yaml.safe_load(patch["patch"]))
    return found


def rights(path: Path) -> list[tuple[list[str], list[str]]]:
    documents = list(yaml.safe_load_all(path.read_text()))
    found = []
    for role, binding in zip(documents[::2], documents[1::2], strict=True):
        (subject,) = binding["subjects"]
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert binding["roleRef"]["kind"] == role["kind"]
        assert (subject["name"], subject["namespace"]) == ("vgpu-webhook", "vgpu-admission-system")
        found += [(rule["resources"], rule["verbs"]) for rule in role["rules"]]
    return found


def test_the_port_is_open_from_the_service_to_the_program() -> None:
    """One name for the port in Service, NetworkPolicy and pod, one number for the program."""
    (container,) = patched("Deployment")["spec"]["template"]["spec"]["containers"]
    program, *arguments = container["args"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    (entry,) = [p for p in patched("Service")["spec"]["ports"] if p["name"] == "extender"]
    allowed = [
        port["port"]
        for rule in patched("NetworkPolicy")["spec"]["ingress"]
        for port in rule["ports"]
    ]

    context = vgpu.program(program).make_context(program, arguments)

    assert context.params["extender"].port == ports["extender"] == entry["port"]
    assert entry["targetPort"] == "extender"
    assert "extender" in allowed


def test_the_certificate_of_schedulers_is_its_own() -> None:
    """The right is for one Secret, the one that the program writes."""
    role = list(yaml.safe_load_all((COMPONENT / "rbac.yaml").read_text()))[2]

    assert role["rules"][0]["resourceNames"] == [CLIENT_SECRET]


def test_it_may_hint_and_no_more() -> None:
    """Binding is a right of its own, which nobody gets by the way."""
    assert rights(COMPONENT / "rbac.yaml") == [
        (["pods/status"], ["patch"]),
        (["secrets"], ["get", "patch"]),
    ]
    assert rights(COMPONENT / "bind.yaml") == [(["pods/binding"], ["create"])]
    component = yaml.safe_load((COMPONENT / "kustomization.yaml").read_text())
    assert component["resources"] == ["rbac.yaml"]
