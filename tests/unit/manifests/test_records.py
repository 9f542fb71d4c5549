"""The component that sends records to the console keeps to what the base and the programs have."""

from pathlib import Path

import jsonpatch
import pytest
import yaml

import vgpu
from allocator.cli.audit import AuditOptions
from allocator.delivery.spool_files import LARGEST_SEGMENT, SPOOL_LIMIT
from allocator.request.quantity import parse
from manifests.generator.names import AGENTS, NAMESPACE, Json
from tests.unit.manifests.test_written import MANIFESTS, objects
from webhook.serve.certificates import (
    AGENTS_NAMESPACE,
    AUDIT_SECRET,
    CONSOLE_SECRET,
    CONSOLE_SERVICE,
)

COMPONENT = MANIFESTS / "components" / "records"
PROGRAMS = {"Deployment": "vgpu-webhook", "DaemonSet": "vgpu-agent"}


@pytest.fixture(params=PROGRAMS)
def pod(request: pytest.FixtureRequest) -> Json:
    """Return the spec of a program's pods as the component leaves it."""
    kind, name = request.param, PROGRAMS[request.param]
    component = yaml.safe_load((COMPONENT / "kustomization.yaml").read_text())
    (patch,) = component["patches"]
    assert kind in patch["target"]["kind"].split("|")
    assert name in patch["target"]["name"].split("|")
    (standing,) = [each for each in objects(kind) if each["metadata"]["name"] == name]
    patched = jsonpatch.apply_patch(standing, yaml.safe_load(patch["patch"]))
    spec: Json = patched["spec"]["template"]["spec"]
    return spec


def options(pod: Json) -> AuditOptions:
    """Return what the program makes of its arguments."""
    program, *arguments = pod["containers"][0]["args"]
    node = ["--node-name=n"] if program == "agent" else []
    parameters = vgpu.program(program).make_context(program, [*arguments, *node]).params
    return AuditOptions(
        url=parameters["audit_url"],
        certificates=parameters["audit_certificates"],
        token=parameters["audit_token"],
        spool=parameters["audit_spool"],
    )


def mounted(pod: Json, path: Path) -> Json:
    """Return the volume that is mounted at *path*."""
    (mount,) = [m for m in pod["containers"][0]["volumeMounts"] if m["mountPath"] == str(path)]
    (volume,) = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    found: Json = volume
    return found


def test_programs_send_to_the_console_of_this_installation(pod: Json) -> None:
    """By the name that its certificate has."""
    assert options(pod).url == f"https://{CONSOLE_SERVICE}.{NAMESPACE}.svc:9444"


def test_a_pod_starts_without_its_certificate(pod: Json) -> None:
    """An agent or a webhook never waits for what only records need."""
    secret = mounted(pod, options(pod).certificates)["secret"]

    assert secret == {"secretName": AUDIT_SECRET, "optional": True}


def test_the_token_is_for_the_console_only(pod: Json) -> None:
    """No API server believes it, so a console could do nothing with it."""
    token = options(pod).token
    (source,) = mounted(pod, token.parent)["projected"]["sources"]

    assert source["serviceAccountToken"]["audience"] == CONSOLE_SERVICE
    assert source["serviceAccountToken"]["path"] == token.name


def test_the_spool_never_gets_a_pod_evicted(pod: Json) -> None:
    """Kubelet evicts a pod whose emptyDir is larger than its limit."""
    folder = options(pod).spool
    assert folder is not None
    limit = parse(mounted(pod, folder)["emptyDir"]["sizeLimit"])

    assert limit is not None
    assert limit.value >= SPOOL_LIMIT + 2 * LARGEST_SEGMENT


def test_the_secrets_are_those_that_the_webhook_keeps() -> None:
    """Get and patch by name, and an empty one beside the agents, where it may create none."""
    documents = list(yaml.safe_load_all((COMPONENT / "rbac.yaml").read_text()))
    rights = {
        (role["metadata"]["namespace"], name): rule["verbs"]
        for role in documents
        if role["kind"] == "Role"
        for rule in role["rules"]
        for name in rule["resourceNames"]
    }
    (secret,) = [each for each in documents if each["kind"] == "Secret"]

    assert rights == {
        (NAMESPACE, AUDIT_SECRET): ["get", "patch"],
        (NAMESPACE, CONSOLE_SECRET): ["get", "patch"],
        (AGENTS, AUDIT_SECRET): ["get", "patch"],
    }
    assert (secret["metadata"]["namespace"], secret["metadata"]["name"]) == (AGENTS, AUDIT_SECRET)
    assert "data" not in secret
    assert AGENTS_NAMESPACE == AGENTS


def test_the_base_alone_sends_nothing() -> None:
    """An installation without a console is as before."""
    for kind, name in PROGRAMS.items():
        (standing,) = [each for each in objects(kind) if each["metadata"]["name"] == name]
        assert "audit" not in str(standing["spec"]["template"]["spec"])
