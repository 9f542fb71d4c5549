"""The manifests that are written by hand keep what the policies and programs rely on."""

from collections.abc import Iterator
from pathlib import Path

import jsonpatch
import msgspec
import pytest
import yaml

import vgpu
from allocator.config.settings import DEFAULTS, NodeAgent, Settings, settings_of
from allocator.controllers import hiding_policy
from manifests.generator.names import CONTROL_PLANE, NAMESPACE, REGISTRATION, SERVICE, Json
from webhook.caller.hook_paths import READS_PATHS
from webhook.serve import certificates
from webhook.serve import webhook as app

MANIFESTS = Path(__file__).parents[3] / "manifests"
BASE = MANIFESTS / "base"


def objects(kind: str, folder: Path = BASE) -> list[Json]:
    return [item for item in _all(folder) if item.get("kind") == kind]


def _all(folder: Path) -> Iterator[Json]:
    for path in sorted(folder.glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text())


def test_every_file_of_the_base_is_applied() -> None:
    """A file that no kustomization names would be forgotten in silence."""
    kustomization = yaml.safe_load((BASE / "kustomization.yaml").read_text())
    named = {*kustomization["resources"], *kustomization["configMapGenerator"][0]["files"]}

    present = {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    assert named == present


def test_the_settings_of_the_base_are_the_defaults_in_full() -> None:
    """The file documents every setting, and changes none."""
    text = (BASE / "settings.yaml").read_text()

    assert settings_of(text) == DEFAULTS
    assert list(yaml.safe_load(text)) == [
        field.encode_name for field in msgspec.structs.fields(Settings)
    ]


def test_the_settings_for_volcano_say_who_serves_the_nodes() -> None:
    """Where Volcano's plugin answers Allocate, nothing device-dependent is injected."""
    text = (MANIFESTS / "components/volcano/settings.yaml").read_text()

    assert settings_of(text).node_agent is NodeAgent.UPSTREAM


def test_the_deployment_runs_as_the_account_that_policies_trust() -> None:
    """The exact user name is what the policies compare."""
    (deployment,) = objects("Deployment")

    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    assert f"system:serviceaccount:{deployment['metadata']['namespace']}:{account}" == CONTROL_PLANE


def test_the_webhook_finds_its_objects_by_the_names_it_knows() -> None:
    """Its Secret, its Leases, its registrations and its Service are those of the manifests."""
    own = {"namespace": NAMESPACE, "name": "vgpu-webhook"}
    (role,) = [r for r in objects("Role") if r["metadata"] == own]
    named = {r["resources"][0]: r["resourceNames"] for r in role["rules"] if "resourceNames" in r}

    assert named["secrets"] == [certificates.SECRET, certificates.PATHS_SECRET]
    (template,) = [
        d["spec"]["template"] for d in objects("Deployment") if d["metadata"]["name"] == own["name"]
    ]
    assert READS_PATHS in template["metadata"]["annotations"]
    assert named["leases"] == [app.LEASE, app.LEDGER_LEASE]
    assert (certificates.NAME, certificates.SERVICE) == (REGISTRATION, SERVICE)


def test_the_service_reaches_the_deployment() -> None:
    """Registrations name a Service that selects the pods and a port that they open."""
    (service,) = objects("Service")
    (deployment,) = objects("Deployment")
    template = deployment["spec"]["template"]
    (container,) = template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}

    assert (service["metadata"]["namespace"], service["metadata"]["name"]) == (NAMESPACE, SERVICE)
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert [(p["port"], ports[p["targetPort"]]) for p in service["spec"]["ports"]] == [(443, 8443)]


def test_the_program_takes_the_arguments_of_the_deployment() -> None:
    """A flag that the command line does not know would stop every replica from starting."""
    (deployment,) = objects("Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    program, *arguments = container["args"]

    command = vgpu.program(program)
    context = command.make_context(program, arguments)

    assert context.params["source"] == "secret"
    assert {context.params[name].port for name in ("listen", "health")} == {
        port["containerPort"] for port in container["ports"]
    }


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_no_right_is_wider_than_it_must_be(kind: str) -> None:
    """Nothing is granted by wildcard, and what can be limited to a name is."""
    rules = [rule for role in objects(kind) for rule in role["rules"]]
    unnamed = [rule for rule in rules if "resourceNames" not in rule]

    assert not [rule for rule in rules if "*" in str(rule)]
    assert {verb for rule in unnamed for verb in rule["verbs"]} <= {
        *("get", "list", "watch"),
        *("create", "patch", "delete"),
    }
    assert [r["resources"] for r in unnamed if "delete" in r["verbs"]] in ([], [["gpunodes"]])
    assert not [
        rule for rule in unnamed if "secrets" in rule["resources"] and len(rule["verbs"]) > 1
    ]


def test_it_may_change_no_registration_but_its_own() -> None:
    """A stolen token cannot redirect another webhook."""
    rules = [rule for role in objects("ClusterRole") for rule in role["rules"]]

    ours = [r for r in rules if "admissionregistration.k8s.io" in r["apiGroups"]]
    writing = [rule for rule in ours if rule["verbs"] != ["get"]]
    assert [rule["resourceNames"] for rule in writing] == [[REGISTRATION], [hiding_policy.NAME]]
    assert all("resourceNames" in rule for rule in ours)


def test_the_container_keeps_to_pod_security_restricted() -> None:
    """The namespace enforces it, so a step back would stop the pods from starting."""
    (deployment,) = objects("Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_one_replica_stays_through_drains_and_updates() -> None:
    """Pods that ask for vGPU are refused while nobody answers."""
    (deployment,) = objects("Deployment")
    (budget,) = objects("PodDisruptionBudget")

    assert deployment["spec"]["replicas"] > budget["spec"]["minAvailable"] >= 1
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert budget["spec"]["selector"] == deployment["spec"]["selector"]


def test_the_component_that_lets_binds_go_on_changes_their_hook() -> None:
    """Its patch goes by the place in the list, and tests the name there."""
    component = yaml.safe_load(
        (MANIFESTS / "components/bind-ignore/kustomization.yaml").read_text()
    )
    (patch,) = component["patches"]
    (registration,) = objects("MutatingWebhookConfiguration")

    changed = jsonpatch.apply_patch(registration, yaml.safe_load(patch["patch"]))

    policies = {hook["name"]: hook["failurePolicy"] for hook in changed["webhooks"]}
    assert policies.pop("bindings.vgpu-admission.io") == "Ignore"
    assert set(policies.values()) == {"Fail", "Ignore"}
    assert patch["target"]["name"] == registration["metadata"]["name"]
