"""A simulated MetaX node on a real kubelet: pods start on the GPUs that they were given."""

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from agent.metax.plugin_server import VISIBLE
from allocator.catalog.hami_keys import LOCK_ANNOTATION
from allocator.catalog.keys import SIMULATED_LABEL
from allocator.ledger.decode import decode
from allocator.metax.names import (
    CARDS_KEY,
    GPU,
    LOSSES_KEY,
    MODEL_LABEL,
    SCORES_KEY,
    SGPU,
    VCORE,
    VMEMORY,
)
from allocator.model.gpu import Gpu
from tests.builders.pods import pod
from tests.cluster.api import ApiError, Json, wait_for
from tests.cluster.installation import GPU_NODES, HOOKS, PODS, Installation
from tests.cluster.kubelet import NODES, Node, pods_of
from tests.cluster.node_agent import GpuNode, gpus_on
from tests.cluster.node_pods import delete, inside, looking, running
from tests.cluster.node_site import node_site
from tests.cluster.site import MANIFESTS
from tests.cluster.volcano import http_get

pytestmark = pytest.mark.node

WITHIN = 60.0
POLICY = "agents-nodes.vgpu-admission.io"
SHARED = "{name: '*', model: C500, memory: 65536, gpus: 2, mode: sgpu, slots: 16}"
NATIVE = "{name: '*', model: C500, memory: 65536, gpus: 4, mode: native}"


@pytest.fixture(scope="module")
def metax_node(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GpuNode]:
    """Yield a node whose agent simulates MetaX's GPUs, with the rights of the overlay."""
    with node_site(programs, tmp_path_factory.mktemp("metax")) as found:
        allow_simulation(found.site, programs["kubectl"])
        fleet = found.host.folder / "fleet.yaml"
        served = replace(gpus_on(found, ()), options=("--driver=simulated", f"--fleet={fleet}"))
        yield served
        served.agent.stop()


def allow_simulation(site: Installation, kubectl: Path) -> None:
    """Write the policy as the overlay has it."""
    overlay = MANIFESTS / "overlays" / "simulated"
    command = [str(kubectl), "kustomize", str(overlay)]
    built = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    (policy,) = (
        each
        for each in yaml.safe_load_all(built)
        if each["kind"] == "ValidatingAdmissionPolicy" and each["metadata"]["name"] == POLICY
    )
    validations = {"spec": {"validations": policy["spec"]["validations"]}}
    site.api.patch(f"{HOOKS}/validatingadmissionpolicies/{POLICY}", validations)


def simulate(served: GpuNode, entry: str) -> None:
    """Start the agent on a fleet with this *entry*, for the first time or again."""
    served.agent.stop()
    (served.node.host.folder / "fleet.yaml").write_text(f"nodes: [{entry}]")
    served.agent.start(lambda: bool(http_get(served.port, "/healthz")), within=WITHIN)


def gpus(node: Node) -> tuple[Gpu, ...]:
    """Return the GPUs of the node's GPUNode while it is open; nothing otherwise."""
    try:
        found = node.site.api.get(f"{GPU_NODES}/{node.name}")
    except ApiError:
        return ()
    is_open = found.get("status", {}).get("inventory") and "closed" not in found["status"]
    return decode(found).node.gpus if is_open else ()


def offers(node: Node) -> tuple[str, str]:
    """Return what kubelet offers of whole GPUs and of shares."""
    return node.allocatable(GPU) or "0", node.allocatable(SGPU) or "0"


def metadata(node: Node) -> Json:
    """Return the metadata of the Node."""
    found: Json = node.site.api.get(f"{NODES}/{node.name}")["metadata"]
    return found


def bound(site: Installation, team: str, name: str, *, node: str) -> str:
    """Post a Binding as a scheduler does; return why it is refused, if it is."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    try:
        site.api.create(f"{PODS.format(team)}/{name}/binding", body)
    except ApiError as error:
        return error.message
    return ""


def promised(node: Node) -> dict[str, list[list[str]]]:
    """Return the GPUs of every container by the name of its pod."""
    entries = decode(node.site.api.get(f"{GPU_NODES}/{node.name}")).entries
    return {
        entry.pod: [[grant.gpu for grant in held.grants] for held in entry.containers]
        for entry in entries
    }


def named(name: str, written: Json) -> Json:
    """Return the pod under this name."""
    return {**written, "metadata": {**written["metadata"], "name": name}}


def test_pods_with_shares_start_with_the_gpus_that_they_were_given(metax_node: GpuNode) -> None:
    """Kubelet asks without naming a pod or a container; the lock says which pod it means."""
    node, site = metax_node.node, metax_node.site
    simulate(metax_node, SHARED)
    wait_for(lambda: offers(node) == ("0", "32"), within=WITHIN)
    wait_for(lambda: len(gpus(node)) == 2, within=WITHIN)
    team, limits = site.namespace(), {SGPU: 1, VCORE: 60, VMEMORY: 4}
    site.create(team, named("one", pod(looking(limits=limits), schedulerName="by-hand")))
    more = looking("second", {SGPU: 1, VCORE: 10, VMEMORY: 2})
    two = pod(looking(limits=limits), looking("none"), more, schedulerName="by-hand")
    site.create(team, named("two", two))
    for name in ("one", "two"):
        wait_for(lambda name=name: not bound(site, team, name, node=node.name), within=WITHIN)  # type: ignore[misc]

    pods = {name: running(site, team, name) for name in ("one", "two")}
    given = promised(node)
    assert inside(node, pods["one"]).env[VISIBLE] == given["one"][0][0]
    seen = {name: inside(node, pods["two"], name).env for name in ("main", "none", "second")}
    of_two = [inner[0] for inner in given["two"] if inner]
    assert [seen["main"][VISIBLE], seen["second"][VISIBLE]] == of_two
    assert VISIBLE not in seen["none"]
    assert {env["NVIDIA_VISIBLE_DEVICES"] for env in seen.values()} == {"void"}
    assert given["one"][0] != given["two"][0]  # 60 percent twice is more than one GPU
    assert LOCK_ANNOTATION not in metadata(node)["annotations"]

    for name in ("one", "two"):
        delete(site, team, name, grace=1)
    wait_for(lambda: not pods_of(site, team) and not promised(node), within=WITHIN)


def test_a_pod_that_names_shares_alone_needs_no_extender(metax_node: GpuNode) -> None:
    """Kubelet counts them, so kube-scheduler by itself finds the node; it gets the whole GPU."""
    node, site = metax_node.node, metax_node.site
    team = site.namespace()
    site.create(team, named("alone", pod(looking(limits={SGPU: 2}))))

    found = running(site, team, "alone")

    ((given,),) = promised(node).values()
    assert inside(node, found).env[VISIBLE] == ",".join(given)
    assert set(given) == {gpu.uuid for gpu in gpus(node)}
    delete(site, team, "alone", grace=1)
    wait_for(lambda: not pods_of(site, team) and not promised(node), within=WITHIN)


def test_a_node_changes_its_mode_and_never_offers_both(metax_node: GpuNode) -> None:
    """A pod with whole GPUs starts with as many as it asked for, and the rest is worth less."""
    node, site = metax_node.node, metax_node.site
    simulate(metax_node, NATIVE)
    seen = set[tuple[str, str]]()

    def changed() -> bool:
        seen.add(offers(node))
        return offers(node) == ("4", "0")

    wait_for(changed, within=WITHIN)
    assert not [both for both in seen if "0" not in both]
    wait_for(lambda: [gpu.mode for gpu in gpus(node)] == ["native"] * 4, within=WITHIN)
    told = metadata(node)
    assert told["labels"][MODEL_LABEL] == "C500"
    assert CARDS_KEY not in told["annotations"]
    assert told["annotations"][SCORES_KEY] == '{"1":0,"2":110,"3":270,"4":540}'

    team = site.namespace()
    site.create(team, named("whole", pod(looking(limits={GPU: 2}))))
    found = running(site, team, "whole")

    devices = inside(node, found).env[VISIBLE].split(",")
    assert len(set(devices)) == 2
    assert all(device.startswith("GPU-") for device in devices)
    wait_for(lambda: '"4"' not in metadata(node)["annotations"][LOSSES_KEY], within=WITHIN)


def test_a_withdrawing_agent_leaves_no_mark(metax_node: GpuNode) -> None:
    """Neither annotations nor labels; kubelet offers nothing any more."""
    node = metax_node.node
    metax_node.agent.stop()
    leaving = metax_node.program("leaving", "--withdraw")
    leaving.start(lambda: bool(http_get(metax_node.port, "/readyz")), within=WITHIN)

    def marks() -> list[str]:
        found = metadata(node)
        keys = [*found.get("labels", {}), *found.get("annotations", {})]
        return [key for key in keys if key.startswith("metax-tech.com/") or key == SIMULATED_LABEL]

    wait_for(lambda: not marks(), within=WITHIN)
    wait_for(lambda: offers(node) == ("0", "0"), within=WITHIN)
    leaving.stop()
