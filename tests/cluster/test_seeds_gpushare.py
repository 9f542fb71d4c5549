"""Every manifest of gpushare's guide: what runs unchanged, and what a server of today refuses."""

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from allocator.config.scheduler_policy import scheduler_configuration
from allocator.ledger.decode import decode
from allocator.model.allocation import Grant
from allocator.model.problem import Loaded
from tests.builders.model import A30, T4, nodes_of
from tests.cluster.api import Json, wait_for
from tests.cluster.control_plane import Settings
from tests.cluster.extender import apply
from tests.cluster.guides import GUIDES, Reader, documents
from tests.cluster.installation import GPU_NODES, PODS, Installation, installation
from tests.cluster.ports import free_port
from tests.cluster.scheduler import kube_scheduler

WITHIN = 60.0
ROOM = {"cpu": "8", "memory": "32Gi", "pods": "110", "volcano.sh/vgpu-number": "20"}
SHARES = {"aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2"}


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield nodes of two models, served by a scheduler with the guide's Policy, converted."""
    folder, port = tmp_path_factory.mktemp("gpushare-guide"), free_port()
    options = [f"--extender=127.0.0.1:{port}"]
    plane = Settings(controllers=True, controller_flags=("--controllers=-nodelifecycle",))
    with installation(programs, folder, options=options, settings=plane) as found:
        found.configure("extenderBind: true")
        wait_for(lambda: found.first.obeys("extenderBind: true"))
        apply(found, "rbac.yaml")
        apply(found, "bind.yaml")
        for name, model in (("t4", T4), ("a30", A30)):
            add_node(found, name, model)
        found.wait_for_models("T4", "A30")
        policy = (GUIDES / "gpushare-scheduler-policy.json").read_text()
        text = policy.replace("32766", str(port))  # each test has a port of its own
        converted = scheduler_configuration(text, kubeconfig="")
        assert isinstance(converted, Loaded)
        extenders = converted.value["extenders"]
        scheduler = kube_scheduler(programs["kube-scheduler"], found.plane, extenders=extenders)
        yield found
        scheduler.stop()


def add_node(site: Installation, name: str, model: str) -> None:
    """Add a node whose administrator labelled it by the type of its GPUs, as the guide says."""
    site.add_node(nodes_of(2, model, name=name))
    labels = {"gpushare": "true", "aliyun.accelerator/nvidia_name": name.upper()}
    path = f"/api/v1/nodes/{name}"
    site.api.patch(path, {"metadata": {"labels": labels}, "spec": {"taints": []}})
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    room = ROOM | SHARES
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    site.api.patch(f"{path}/status", {"status": status})


def bound(site: Installation, team: str) -> Json:
    """Return the one pod of a namespace once it has a node."""

    def found() -> list[Json]:
        pods = site.api.get(PODS.format(team))["items"]
        return [pod for pod in pods if pod["spec"].get("nodeName")]

    return wait_for(found, within=WITHIN)[0]


def grants(site: Installation, pod: Json) -> tuple[Grant, ...]:
    """Return what a bound pod was promised."""
    ledger = decode(site.api.get(f"{GPU_NODES}/{pod['spec']['nodeName']}"))
    (entry,) = (one for one in ledger.entries if one.uid == pod["metadata"]["uid"])
    return entry.containers[0].grants


def test_the_deployment_of_the_guide_runs(site: Installation, programs: Mapping[str, Path]) -> None:
    """Unchanged: one GiB on one GPU, counted and not enforced, as gpushare does."""
    team = site.namespace()
    Reader(programs["kubectl"], site).create("gpushare-deployment.yaml", team)

    (grant,) = grants(site, bound(site, team))

    assert (grant.mode, grant.memory) == ("memory-only", 1024)


@pytest.mark.parametrize("how", ["label", "filter"])
def test_a_pod_chooses_the_type_of_its_gpu(
    site: Installation, programs: Mapping[str, Path], how: str
) -> None:
    """By the label of the node, as the guide has it, or by the model without any label."""
    team = site.namespace()
    (deployment,) = copy.deepcopy(documents("gpushare-deployment.yaml"))
    template = deployment["spec"]["template"]
    if how == "label":
        template["spec"]["nodeSelector"] = {"aliyun.accelerator/nvidia_name": "A30"}
    else:
        template["metadata"]["annotations"] = {"nvidia.com/use-gputype": "A30"}
    Reader(programs["kubectl"], site).create([deployment], team)

    assert bound(site, team)["spec"]["nodeName"] == "a30"


CHANGES: Mapping[str, tuple[str, str]] = {
    "gpushare-extender.yaml": ("Deployment", 'no matches for kind "Deployment"'),
    "gpushare-device-plugin.yaml": ("DaemonSet", "apiVersion not set"),
}


@pytest.mark.parametrize("manifest", CHANGES)
def test_a_manifest_of_removed_versions_runs_with_the_change_that_is_documented(
    site: Installation, programs: Mapping[str, Path], manifest: str
) -> None:
    """Today's version, and the selector that it requires; nothing else."""
    kind, words = CHANGES[manifest]
    reader = Reader(programs["kubectl"], site)
    refused = reader.apply(manifest)
    changed = copy.deepcopy(documents(manifest))
    (workload,) = (one for one in changed if one["kind"] == kind)
    labels = workload["spec"]["template"]["metadata"]["labels"]
    workload |= {"apiVersion": "apps/v1"}
    workload["spec"] |= {"selector": {"matchLabels": dict(labels)}}
    reader.create(changed)

    def placed() -> bool:
        pods = site.api.get(PODS.format("kube-system"))["items"]
        ours = [pod for pod in pods if labels.items() <= pod["metadata"]["labels"].items()]
        return bool(ours) and all(pod["spec"].get("nodeName") for pod in ours)

    assert refused.returncode != 0
    assert words in refused.stderr
    wait_for(placed, within=WITHIN)
