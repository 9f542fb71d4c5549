"""The manifests on a real API server: they apply, start pods, and give the rights that are used."""

import base64
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from certs.issue import authority
from certs.pem import certificates_pem
from certs.rotation_controller import new_key_material
from certs.rotation_policy import DEFAULT
from manifests.generator.names import AGENTS, CONTROL_PLANE, NAMESPACE
from tests.cluster.api import APPLY, MERGE, ApiError, wait_for
from tests.cluster.site import MANIFESTS, Site, installed

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations/vgpu-admission"
OWN = f"/api/v1/namespaces/{NAMESPACE}"
OWN_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
OWN_EVENTS = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"
# No group but those that a service account has, so that only our own roles speak.
HEADERS = {"Impersonate-User": CONTROL_PLANE}


@pytest.fixture(scope="module")
def site(programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with installed(programs, tmp_path_factory.mktemp("manifests")) as site:
        yield site


def test_every_object_of_the_base_is_stored_as_written(site: Site) -> None:
    """Applying it again would change nothing, so no field was dropped as unknown."""
    difference = site.kubectl("diff", "-k", str(MANIFESTS / "base"))

    assert difference == ""


@pytest.mark.parametrize(
    "overlay", ["volcano", "vc-scheduler", "cert-manager", "extender", "simulated"]
)
def test_overlays_are_valid(site: Site, overlay: str) -> None:
    """Each object is accepted, except those of kinds that cert-manager would bring."""
    built = site.kubectl("kustomize", str(MANIFESTS / "overlays" / overlay))
    known = [o for o in yaml.safe_load_all(built) if o["apiVersion"] != "cert-manager.io/v1"]

    dry = ("--server-side", "--dry-run=server", "--force-conflicts")
    applied = site.kubectl("apply", *dry, "-f", "-", stdin=yaml.safe_dump_all(known))

    assert len(applied.splitlines()) == len(known)


@pytest.mark.parametrize("folder", sorted((MANIFESTS / "overlays").iterdir()), ids=lambda f: f.name)
def test_every_image_has_a_tag(site: Site, folder: Path) -> None:
    """An untagged image would be whatever its registry calls the latest."""
    rendered = site.kubectl("kustomize", str(folder))

    images = re.findall(r"(?m)^ *(?:- )?image: (.+)$", rendered)
    assert images
    assert [image for image in images if not re.search(r":v?\d+\.\d+\.\d+$", image)] == []


def test_without_agents_nothing_is_privileged(site: Site) -> None:
    """Where Volcano's plugin serves the nodes, no agent's account is left, nor its namespace."""
    built = site.kubectl("kustomize", str(MANIFESTS / "overlays" / "volcano"))
    objects = [o for o in yaml.safe_load_all(built) if "AdmissionPolicy" not in o["kind"]]

    spaces = [o["metadata"] for o in objects if o["kind"] == "Namespace"]
    assert [space["name"] for space in spaces] == [NAMESPACE]
    assert "vgpu-agent" not in str([o for o in objects if "subjects" in o])
    assert AGENTS not in str(objects)


@pytest.mark.parametrize(
    "name",
    [
        "unlabelled",
        "sole-capacity",
        "hidden",
        "frozen",
        "gpunodes",
        "agents-nodes",
        "agents-pods",
        "agents-events",
        "control-plane",
    ],
)
def test_expressions_have_no_type_errors(site: Site, name: str) -> None:
    """The controller checks each against the schemas of all that it matches."""
    path = f"{POLICIES}/{name}.vgpu-admission.io"

    wait_for(lambda: "typeChecking" in site.api.get(path).get("status", {}), within=30)

    assert site.api.get(path)["status"]["typeChecking"] == {}


def test_replicas_start(site: Site) -> None:
    """Quota, priority and Pod Security let the Deployment's pods in."""
    pods = wait_for(lambda: site.api.get(f"{OWN}/pods")["items"][1:])

    classes = {pod["spec"]["priorityClassName"] for pod in pods}
    assert classes == {"system-cluster-critical"}


@pytest.mark.parametrize(
    ("path", "query"),
    [
        pytest.param("/api/v1/nodes", {}, id="nodes"),
        pytest.param("/api/v1/namespaces", {}, id="namespaces"),
        pytest.param("/apis/vgpu-admission.io/v1alpha1/gpunodes", {}, id="gpunodes"),
        pytest.param(
            f"{OWN}/configmaps",
            {"fieldSelector": "metadata.name=vgpu-admission-settings"},
            id="settings",
        ),
        pytest.param(
            "/api/v1/namespaces/kube-system/configmaps",
            {"fieldSelector": "metadata.name=volcano-vgpu-device-config"},
            id="device-config",
        ),
    ],
)
def test_it_can_follow_what_it_decides_on(site: Site, path: str, query: dict[str, str]) -> None:
    """Listing is what a watch starts with, limited to a name where more would be too much."""
    listed = site.api.request("GET", path, query=query, headers=HEADERS)

    assert listed.status == 200


@pytest.mark.parametrize(
    ("collection", "kind", "name"),
    [
        pytest.param(f"{OWN}/secrets", "v1/Secret", "vgpu-webhook-certificates", id="secret"),
        pytest.param(f"{OWN}/secrets", "v1/Secret", "vgpu-webhook-paths", id="paths"),
        pytest.param(OWN_LEASES, "coordination.k8s.io/v1/Lease", "vgpu-certificates", id="lease"),
    ],
)
def test_it_can_keep_its_own_objects(site: Site, collection: str, *, kind: str, name: str) -> None:
    """The first replica makes them, each reads them, one changes them."""
    group, _, kind = kind.rpartition("/")
    body = {"apiVersion": group, "kind": kind, "metadata": {"name": name}}
    change = {"metadata": {"annotations": {"a": "b"}}}

    site.api.request("POST", collection, body, headers=HEADERS)
    patched = {**HEADERS, "Content-Type": MERGE}
    site.api.request("PATCH", f"{collection}/{name}", change, headers=patched)

    read = site.api.request("GET", f"{collection}/{name}", headers=HEADERS)
    assert read.body["metadata"]["annotations"] == {"a": "b"}


@pytest.mark.parametrize("which", ["mutating", "validating"])
def test_it_can_publish_its_authority(site: Site, which: str) -> None:
    """It owns caBundle and nothing else, and applying the manifests again leaves that alone."""
    made = authority(DEFAULT, new_key_material(datetime.now(UTC)))
    bundle = base64.b64encode(certificates_pem(made.certificate)).decode()
    path = REGISTRATION.format(which)
    stored = site.api.get(path)
    entries = [
        {"name": w["name"], "clientConfig": {"caBundle": bundle}} for w in stored["webhooks"]
    ]
    head = {key: stored[key] for key in ("apiVersion", "kind")}
    body = {**head, "metadata": {"name": "vgpu-admission"}, "webhooks": entries}
    applied = {**HEADERS, "Content-Type": APPLY}

    site.api.request("PATCH", path, body, query={"fieldManager": "certs"}, headers=applied)
    site.kubectl("apply", "-k", str(MANIFESTS / "base"))

    bundles = {w["clientConfig"].get("caBundle") for w in site.api.get(path)["webhooks"]}
    assert bundles == {bundle}


def test_it_can_say_that_a_certificate_expires(site: Site) -> None:
    """Events go to its own namespace."""
    event = {
        "metadata": {"name": "expiring"},
        "eventTime": "2026-11-21T17:00:00.000000Z",
        "reportingController": "vgpu-admission/webhook",
        "reportingInstance": "one",
        "action": "KeepCertificate",
        "reason": "CertificateExpiring",
        "type": "Warning",
        "regarding": {"kind": "Secret", "name": "x", "namespace": NAMESPACE},
    }

    created = site.api.request("POST", OWN_EVENTS, event, headers=HEADERS)

    assert created.status == 201


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("GET", f"{OWN}/secrets", id="all-secrets"),
        pytest.param("GET", f"{OWN}/secrets/other", id="another-secret"),
        pytest.param("GET", "/api/v1/secrets", id="secrets-everywhere"),
        pytest.param("GET", f"{OWN}/configmaps", id="all-configmaps"),
        pytest.param("DELETE", "/api/v1/namespaces/default/pods/any", id="a-pod"),
        pytest.param("POST", "/api/v1/namespaces/default/pods/any/binding", id="a-binding"),
        pytest.param("DELETE", REGISTRATION.format("mutating"), id="its-registration"),
        pytest.param("DELETE", f"{OWN}/secrets/vgpu-webhook-certificates", id="its-secret"),
    ],
)
def test_it_can_do_nothing_else(site: Site, method: str, path: str) -> None:
    """A stolen token opens no other door."""
    with pytest.raises(ApiError) as refused:
        site.api.request(method, path, headers=HEADERS)

    assert refused.value.status == 403
