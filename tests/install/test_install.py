"""From the README to a running pod, to an upgrade, to an empty cluster: as a person does it."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.cluster.api import wait_for
from tests.install.conftest import WORKLOAD
from tests.install.image import ROOT
from tests.install.one_node import NODE, CommandError, OneNode

TEAM = "team-a"
WITHIN = 60.0
SHARE = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 3000}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p1", "namespace": TEAM},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": WORKLOAD,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "100000"],
                "resources": {"limits": SHARE},
            }
        ],
        "terminationGracePeriodSeconds": 0,
    },
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the manifests, with the example as a person's own kustomization."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "manifests", folder / "manifests")
    return folder / "manifests/example"


def pod(name: str) -> str:
    """Write a pod that asks for what the README's asks for."""
    return json.dumps(POD | {"metadata": {"name": name, "namespace": TEAM}})


def phase(cluster: OneNode, name: str) -> str:
    return cluster.kubectl("get", "pod", "-n", TEAM, name, "-o=jsonpath={.status.phase}")


def run(cluster: OneNode, name: str) -> None:
    """Create a pod and wait until it runs."""
    cluster.kubectl("apply", "-f", "-", stdin=pod(name))
    wait_for(lambda: phase(cluster, name) == "Running", within=WITHIN)


def plugin(cluster: OneNode, *arguments: str) -> str:
    """Run `kubectl vgpu` on a person's machine, here the node."""
    start = "from console.cli.kubectl_vgpu import main; main()"
    program = [sys.executable, "-c", start, *arguments]
    folder = f"KUBECONFIG={cluster.kubeconfig}"
    return cluster.run("env", folder, f"PYTHONPATH={ROOT}", *program)


def test_it_installs_as_the_readme_says(cluster: OneNode, site: Path) -> None:
    """Apply the kustomization, label a namespace: both replicas and the agent become ready."""
    cluster.kubectl("apply", "-k", site)
    cluster.kubectl("create", "namespace", TEAM)
    cluster.kubectl("label", "namespace", TEAM, "vgpu-admission.io/inject=enabled")

    rollout(cluster)

    wait_for(lambda: NODE in cluster.kubectl("get", "gpunodes"), within=WITHIN)


def rollout(cluster: OneNode) -> None:
    for namespace, workload in (
        ("vgpu-admission-system", "deploy/vgpu-webhook"),
        ("vgpu-admission-agents", "ds/vgpu-agent"),
    ):
        cluster.kubectl("-n", namespace, "rollout", "status", workload, "--timeout=120s")


def test_a_pod_gets_its_share(cluster: OneNode) -> None:
    """Its container sees the variables and mounts of its share."""
    run(cluster, "p1")

    seen = cluster.kubectl("exec", "-n", TEAM, "p1", "--", "env")
    assert re.search(r"(?m)^NVIDIA_VISIBLE_DEVICES=(MIG|GPU)-", seen) or "void" in seen, seen
    mounts = cluster.kubectl("exec", "-n", TEAM, "p1", "--", "cat", "/proc/self/mounts")
    assert "/etc/ld.so.preload" in mounts


def test_why_explains_it(cluster: OneNode) -> None:
    """The plugin reads the same cluster with the administrator's kubeconfig."""
    text = plugin(cluster, "why", "-n", TEAM, "p1")

    assert "RUNNING" in text
    assert NODE in text


def test_its_end_frees_the_gpu(cluster: OneNode) -> None:
    """The ledger forgets it."""
    assert uids(cluster)

    cluster.kubectl("delete", "pod", "-n", TEAM, "p1")

    wait_for(lambda: not uids(cluster), within=WITHIN)


def uids(cluster: OneNode) -> list[str]:
    """Return the pods that the ledger of the node has entries for."""
    entries = cluster.get("gpunode", NODE).get("spec", {}).get("entries") or []
    return [entry["podUID"] for entry in entries]


def test_an_upgrade_keeps_what_runs(cluster: OneNode, site: Path) -> None:
    """The second release replaces every replica; a pod that runs goes on, and a new one starts."""
    run(cluster, "p2")
    kustomization = site / "kustomization.yaml"
    kustomization.write_text(kustomization.read_text().replace("0.1.0", "0.1.1"))

    cluster.kubectl("apply", "-k", site)
    rollout(cluster)

    run(cluster, "p3")
    assert phase(cluster, "p2") == "Running"
    pod_of_agent = cluster.get("pods", "-n", "vgpu-admission-agents")["items"][0]
    assert pod_of_agent["spec"]["containers"][0]["image"].endswith(":0.1.1")


def test_it_leaves(cluster: OneNode, site: Path) -> None:
    """Deleting what was applied ends, and every pod goes on; what is applied again works again."""
    cluster.kubectl("delete", "-k", site, "--timeout=90s")

    assert {phase(cluster, name) for name in ("p2", "p3")} == {"Running"}
    with pytest.raises(CommandError, match="doesn't have a resource type"):
        cluster.kubectl("get", "gpunodes")
