"""What was applied can be deleted, in every order, on a real API server with its controllers."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.controllers import hiding_policy
from allocator.ledger.schema import FORMER_FINALIZER, spec_of
from manifests.generator.names import CONTROL_PLANE
from tests.builders.gpunodes import entry
from tests.builders.model import T4, nodes_of, soft_grant
from tests.builders.pods import pod
from tests.cluster.api import MERGE, Api, ApiError, Json, wait_for
from tests.cluster.control_plane import ControlPlane, Settings
from tests.cluster.installation import GPU_NODES, HOOKS, OPTED_IN, PODS, Installation, installation
from tests.cluster.site import MANIFESTS, Site, Who, refusal

ENDS_WITHIN = 60  # seconds; on an idle machine about 10
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpunodes.vgpu-admission.io"
HIDING = f"{HOOKS}/mutatingadmissionpolicybindings/{hiding_policy.NAME}"
BASE = str(MANIFESTS / "base")
NAMESPACES = ("vgpu-admission-system", "vgpu-admission-agents")
ENTRY = entry("train-0", soft_grant(100, gpu="GPU-gpu-1-0"))
UNINSTALL = MANIFESTS.parent / "docs" / "uninstall.md"


@pytest.fixture(scope="module")
def cluster(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    plane = ControlPlane(tmp_path_factory.mktemp("uninstall"), programs, Settings(controllers=True))
    with plane, plane.api() as api:
        _add_node(api)
        yield Site(api=api, command=(str(programs["kubectl"]), f"--kubeconfig={plane.kubeconfig}"))


@pytest.fixture
def site(cluster: Site) -> Site:
    """Install again what the test before took out: nothing of it is in the way."""
    cluster.kubectl("apply", "-k", BASE)
    cluster.kubectl("wait", "--for=condition=Established", "crd/gpunodes.vgpu-admission.io")
    probe = {**_gpu_node("probe"), "spec": {"entries": []}}
    wait_for(lambda: refusal(lambda: cluster.api.create(GPU_NODES, probe, dryRun="All")))
    return cluster


def _gpu_node(name: str, *finalizers: str) -> Json:
    metadata = {"name": name, "finalizers": list(finalizers)}
    kind = {"apiVersion": "vgpu-admission.io/v1alpha1", "kind": "GPUNode"}
    return {**kind, "metadata": metadata, "spec": spec_of([ENTRY])}


def _promise(api: Api, name: str, *finalizers: str) -> None:
    """Write a ledger with an entry, as our control plane or that of an earlier release did."""
    body = _gpu_node(name, *finalizers)
    api.request("POST", GPU_NODES, body, headers=Who(CONTROL_PLANE).headers)


def _add_node(api: Api) -> None:
    """Add the node of the pods: Kubernetes removes a pod whose node is missing for a minute."""
    api.create("/api/v1/nodes", {"metadata": {"name": "gpu-1"}})


def _bound_pod(api: Api, namespace: str, name: str) -> Json:
    """Create a pod that asks for nothing, and bind it to a node."""
    path = PODS.format(namespace)
    api.create(path, {**pod(), "metadata": {"name": name}, "spec": _SPEC})
    target = {"apiVersion": "v1", "kind": "Node", "name": "gpu-1"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    api.create(f"{path}/{name}/binding", binding)
    return api.get(f"{path}/{name}")


_SPEC: Json = {"containers": [{"name": "main", "image": "none"}], "tolerations": []}


def _opted_in(api: Api) -> str:
    body = {"metadata": {"generateName": "t-", "labels": OPTED_IN}}
    name: str = api.create("/api/v1/namespaces", body).body["metadata"]["name"]
    wait_for(lambda: api.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"))
    return name


def _delete(site: Site) -> None:
    """Do what a person does who wants all of it gone; kubectl returns when it is."""
    site.kubectl("delete", "-k", BASE, "--ignore-not-found", f"--timeout={ENDS_WITHIN}s")


def _assert_nothing_is_left(site: Site) -> None:
    assert _is_missing(site.api, CRD)
    kinds = (
        "mutatingwebhookconfigurations,validatingwebhookconfigurations,"
        "validatingadmissionpolicies,validatingadmissionpolicybindings,clusterroles,"
        "mutatingadmissionpolicies,mutatingadmissionpolicybindings,"
        "clusterrolebindings,namespaces,priorityclasses,flowschemas,prioritylevelconfigurations"
    )
    ours = "app.kubernetes.io/part-of=vgpu-admission"
    # What the control plane published goes with its owner, a moment later.
    wait_for(lambda: site.kubectl("get", kinds, f"--selector={ours}", "--output=name") == "")
    assert site.kubectl("get", "roles,rolebindings", "-A", f"-l{ours}", "--output=name") == ""
    assert not [
        name for name in NAMESPACES if not _is_missing(site.api, f"/api/v1/namespaces/{name}")
    ]
    _bound_pod(site.api, _opted_in(site.api), "after")


def _is_missing(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except ApiError as error:
        if error.status == 404:
            return True
        raise
    return False


def _before(site: Site) -> tuple[str, Json]:
    """Return the path of a bound pod with an entry, and the pod."""
    _promise(site.api, "gpu-1")
    body = {"metadata": {"generateName": "t-"}}
    namespace = site.api.create("/api/v1/namespaces", body).body["metadata"]["name"]
    wait_for(lambda: site.api.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"))
    found = _bound_pod(site.api, namespace, "train-0")
    return f"{PODS.format(namespace)}/train-0", found


def test_everything_at_once(site: Site) -> None:
    """Ledgers with entries hold up nothing, and the pods that they are about stay."""
    path, before = _before(site)

    _delete(site)

    _assert_nothing_is_left(site)
    assert site.api.get(path)["metadata"]["uid"] == before["metadata"]["uid"]


@pytest.mark.parametrize("first", NAMESPACES)
def test_a_namespace_first(site: Site, first: str) -> None:
    """The rest goes afterwards all the same."""
    path, before = _before(site)

    site.kubectl("delete", "namespace", first, f"--timeout={ENDS_WITHIN}s")
    _delete(site)

    _assert_nothing_is_left(site)
    assert site.api.get(path)["metadata"]["uid"] == before["metadata"]["uid"]


def test_the_definition_first(site: Site) -> None:
    """All GPUNodes go with it; the policy about deleting one is not asked."""
    _promise(site.api, "gpu-1")
    said = refusal(lambda: site.api.delete(f"{GPU_NODES}/gpu-1", dryRun="All"))
    assert "kubectl delete -k" in said

    crd = "crd/gpunodes.vgpu-admission.io"
    site.kubectl("delete", crd, f"--timeout={ENDS_WITHIN}s")
    _delete(site)

    _assert_nothing_is_left(site)


def test_a_lone_namespace_is_told_how_to_be_usable_again(site: Site) -> None:
    """Registrations without a server refuse pods that ask; the page's command ends that."""
    site.kubectl("delete", "namespace", NAMESPACES[0], f"--timeout={ENDS_WITHIN}s")
    namespace = _opted_in(site.api)
    path = PODS.format(namespace)
    asking = {**pod(), "metadata": {"name": "asking"}}
    said = wait_for(lambda: refusal(lambda: site.api.create(path, asking, dryRun="All")))
    assert "failed calling webhook" in said

    _paste(site, "webhookconfigurations")

    wait_for(lambda: not refusal(lambda: site.api.create(path, asking, dryRun="All")))
    _delete(site)
    _assert_nothing_is_left(site)


def test_a_finalizer_of_an_earlier_release_is_patched_away(site: Site) -> None:
    """Where its control plane never ran: the definition waits, until the page's command."""
    _promise(site.api, "gpu-1", FORMER_FINALIZER)
    _promise(site.api, "gpu-2", FORMER_FINALIZER)
    site.kubectl("delete", "-k", BASE, "--wait=false")
    wait_for(lambda: site.api.get(CRD)["metadata"].get("deletionTimestamp"))

    _paste(site, "finalizers")

    wait_for(lambda: _is_missing(site.api, CRD))
    _delete(site)
    _assert_nothing_is_left(site)


def test_what_is_left_on_nodes_is_removed_by_hand(site: Site) -> None:
    """The page's command removes label, annotations and capacity, and touches nothing else."""
    # Not "enabled": no kubelet would end the pods that the DaemonSet made.
    ours = {"vgpu-admission.io/node": "disabled", "vgpu-admission.io/agent": "1"}
    noted = {"vgpu-admission.io/capacity": "aliyun.com/gpu-mem,volcano.sh/vgpu-number"}
    metadata = {"labels": {"team": "a"}, "annotations": {"team": "a"}}
    full = {"labels": {**metadata["labels"], **ours}, "annotations": {"team": "a", **noted}}
    capacity = {"cpu": "2", "aliyun.com/gpu-mem": "40", "volcano.sh/vgpu-number": "0"}
    for name, parts, amounts in (
        ("served", full, capacity),
        ("plain", metadata, {"cpu": "2", "aliyun.com/gpu-mem": "15"}),  # of gpushare's own plugin
        ("slots", {**metadata, "annotations": full["annotations"]}, capacity),
    ):
        site.api.create("/api/v1/nodes", {"metadata": {"name": name, **parts}})
        site.api.patch(f"/api/v1/nodes/{name}/status", {"status": {"capacity": amounts}})

    _paste(site, "--for=delete")  # the first step of the page
    _paste(site, "subresource")
    _paste(site, "subresource")  # twice is once

    for name in ("served", "plain", "slots"):
        found = site.api.get(f"/api/v1/nodes/{name}")
        for kind in ("labels", "annotations"):
            assert found["metadata"][kind]["team"] == "a"
            assert not [key for key in found["metadata"][kind] if "vgpu" in key]
        rest = {} if name != "plain" else {"aliyun.com/gpu-mem": "15"}
        assert found["status"]["capacity"] == {"cpu": "2", **rest}
    _delete(site)


def test_a_running_control_plane_lets_go_first(
    programs: Mapping[str, Path], tmp_path: Path
) -> None:
    """An upgrade takes the finalizer off, and the entries stay; then all of it goes.

    What the control plane has published itself goes too, and it does not bring it back.
    """
    settings = Settings(controllers=True)
    with installation(programs, tmp_path, settings=settings) as found:
        found.add_node(nodes_of(1, T4, name="gpu-1"))
        merge = {**Who(CONTROL_PLANE).headers, "Content-Type": MERGE}
        change = {
            "metadata": {"finalizers": [FORMER_FINALIZER]},
            "spec": spec_of([ENTRY]),
        }
        found.api.request("PATCH", f"{GPU_NODES}/gpu-1", change, headers=merge)

        wait_for(lambda: not _finalizers(found))
        assert found.api.get(f"{GPU_NODES}/gpu-1")["spec"]["entries"][0]["pod"]["name"] == "train-0"
        command = (str(programs["kubectl"]), f"--kubeconfig={found.plane.kubeconfig}")
        site = Site(api=found.api, command=command)
        wait_for(lambda: found.api.get(HIDING), within=60)
        _delete(site)
        _assert_nothing_is_left(site)


def _finalizers(site: Installation) -> list[str]:
    found: list[str] = site.api.get(f"{GPU_NODES}/gpu-1")["metadata"].get("finalizers", [])
    return found


def _paste(site: Site, word: str) -> None:
    """Run the commands of docs/uninstall.md that contain *word*."""
    blocks = re.findall(r"^ *```\n(.*?)^ *```", UNINSTALL.read_text(), re.MULTILINE | re.DOTALL)
    found = [block for block in blocks if word in block]
    assert found, word
    kubectl, kubeconfig = Path(site.command[0]), site.command[1].removeprefix("--kubeconfig=")
    path = f"{kubectl.parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "KUBECONFIG": kubeconfig}
    for block in found:
        done = subprocess.run(
            ["bash", "-euc", block], capture_output=True, check=False, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
