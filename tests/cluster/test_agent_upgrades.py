"""Agent and control plane of neighbouring releases, in either order, under running tenants.

What an older release writes is what ours writes without what came since; what a newer one writes
has more than ours knows. Every GPUNode stays readable and no tenant notices.
"""

import copy
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from manifests.generator.names import AGENT, CONTROL_PLANE
from tests.cluster.api import MERGE, ApiError, Json, wait_for
from tests.cluster.installation import GPU_NODES, PODS, SETTINGS
from tests.cluster.node_agent import GpuNode, log_lines
from tests.cluster.node_pods import (
    RUN_WITHIN,
    delete,
    device_of,
    hard,
    pod_of,
    running,
    soft,
    undisturbed,
)
from tests.cluster.site import Who

pytestmark = pytest.mark.node

CONFLICT = 409
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpunodes.vgpu-admission.io"
# What every release that ever wrote a GPUNode has written: fields that came later are optional.
STATUS = {
    *("boards", "bootID", "gpus", "held", "instances", "inventory", "nodeUID"),
    "observedGeneration",
}
BOARD = {"name", "slots", "profiles"}
PROFILE = {"name", "id", "memoryMiB", "sms", "size", "starts"}
GPU = {"uuid", "index", "memoryMiB", "slots", "mode", "healthy", "model", "board"}
INSTANCE = {"gpu", "profile", "start"}
DEVICE = {"gpu", "mode", "memoryMiB", "cores", "profile", "start"}
ENTRY = {"pod", "since", "containers"}
# Of the annotations on a bound pod, those that its containers' variables read.
READ = "vgpu-admission.io/c0."


def only(found: Json, names: Collection[str]) -> Json:
    return {name: value for name, value in found.items() if name in names}


def older_status(status: Json) -> Json:
    """Return a status as the first release would have written it."""
    boards = [
        only(board, BOARD) | {"profiles": [only(p, PROFILE) for p in board["profiles"]]}
        for board in status["boards"]
    ]
    gpus = [only(gpu, GPU) for gpu in status["gpus"]]
    instances = [only(instance, INSTANCE) for instance in status["instances"]]
    return only(status, STATUS) | {"boards": boards, "gpus": gpus, "instances": instances}


def older_entry(entry: Json) -> Json:
    """Return a promise as the first release would have written it."""
    containers = [
        {"name": c["name"], "devices": [only(device, DEVICE) for device in c["devices"]]}
        for c in entry["containers"]
    ]
    return only(entry, ENTRY) | {"containers": containers}


def rewritten(found: GpuNode, part: str, change: Callable[[Any], Any]) -> None:
    """Change the spec or the status of the GPUNode in the name of who writes it."""
    path = f"{GPU_NODES}/{found.node.name}"
    who = Who(AGENT, found.node.name) if part == "status" else Who(CONTROL_PLANE)
    place = f"{path}/status" if part == "status" else path

    def written() -> bool:
        now = found.site.api.get(path)
        now[part] = change(now[part])
        try:
            found.site.api.request("PUT", place, now, headers=who.headers)
        except ApiError as error:  # somebody was faster
            if error.status != CONFLICT:
                raise
            return False
        return True

    wait_for(written, within=RUN_WITHIN)


@contextmanager
def paused(found: GpuNode) -> Iterator[None]:
    """Let the agent stand still meanwhile; kubelet takes it for one that is slow."""
    found.agent.pause()
    try:
        yield
    finally:
        found.agent.resume()


def promised(found: GpuNode, team: str) -> Sequence[str]:
    """Create a pod of each mode and return their names once they are bound."""
    names = ("softer", "harder")
    for write, name in zip((soft, hard), names, strict=True):
        found.site.create(team, write(name=name))
    for name in names:
        wait_for(
            lambda name=name: pod_of(found.site, team, name)["spec"].get("nodeName"),  # type: ignore[misc]
            within=RUN_WITHIN,
        )
    return names


def status_of(found: GpuNode) -> Json:
    status: Json = found.site.api.get(f"{GPU_NODES}/{found.node.name}")["status"]
    return status


def test_a_control_plane_beside_an_older_agent(
    gpu_node: GpuNode, team: str, tenants: dict[str, str]
) -> None:
    """It promises by a status that lacks all that came since; the next agent completes that."""
    complete = status_of(gpu_node).keys()
    with paused(gpu_node):
        rewritten(gpu_node, "status", older_status)
        gpu_node.site.stop()
        gpu_node.site.first.start()
        names = promised(gpu_node, team)
    for name in names:
        device_of(gpu_node, running(gpu_node.site, team, name))

    gpu_node.agent.stop()
    rewritten(gpu_node, "status", older_status)
    gpu_node.start()

    wait_for(lambda: status_of(gpu_node).keys() == complete, within=RUN_WITHIN)
    undisturbed(gpu_node, team, (*tenants, *names))


def test_an_agent_beside_an_older_control_plane(
    gpu_node: GpuNode, team: str, tenants: dict[str, str]
) -> None:
    """Promises and pods that say the least there is to say are served as any."""
    with paused(gpu_node):
        names = promised(gpu_node, team)
        for name in names:
            notes = pod_of(gpu_node.site, team, name)["metadata"]["annotations"]
            ours = {n: None for n in notes if n.startswith("vgpu-admission.io/") and READ not in n}
            gpu_node.site.api.request(
                "PATCH",
                f"{PODS.format(team)}/{name}",
                {"metadata": {"annotations": ours}},
                headers={**Who(CONTROL_PLANE).headers, "Content-Type": MERGE},
            )
        rewritten(
            gpu_node, "spec", lambda spec: {"entries": list(map(older_entry, spec["entries"]))}
        )

    for name in names:
        device_of(gpu_node, running(gpu_node.site, team, name))
    gpu_node.agent.stop()
    gpu_node.start()
    undisturbed(gpu_node, team, (*tenants, *names))


@contextmanager
def newer_schema(found: GpuNode) -> Iterator[None]:
    """Let GPUNodes have fields that this release does not know."""
    before = found.site.api.get(CRD)["spec"]
    newer = copy.deepcopy(before)
    schema = newer["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    schema["status"]["x-kubernetes-preserve-unknown-fields"] = True
    try:
        replaced(found, CRD, newer)
        yield
    finally:
        replaced(found, CRD, before)


def replaced(found: GpuNode, path: str, spec: Json) -> None:
    now = found.site.api.get(path)
    found.site.api.replace(path, now | {"spec": spec})


def marked(found: GpuNode) -> list[str]:
    """Return the pods whose promises have a field that nobody knows."""
    entries = found.site.api.get(f"{GPU_NODES}/{found.node.name}")["spec"]["entries"]
    return sorted(entry["pod"]["name"] for entry in entries if entry.get("newer") == {"a": 1})


def test_what_a_newer_release_wrote_stays(
    gpu_node: GpuNode, team: str, tenants: dict[str, str]
) -> None:
    """Fields of promises that we do not know survive what we promise and take back beside them."""
    with newer_schema(gpu_node):
        mark = {"newer": {"a": 1}}

        def done() -> bool:  # once the API server goes by the new schema
            rewritten(
                gpu_node, "spec", lambda s: {"entries": [entry | mark for entry in s["entries"]]}
            )
            return marked(gpu_node) == sorted(tenants)

        wait_for(done, within=RUN_WITHIN)
        rewritten(gpu_node, "status", lambda status: status | mark)
        gpu_node.agent.stop()
        gpu_node.start()
        gpu_node.site.create(team, hard(name="brief"))
        device_of(gpu_node, running(gpu_node.site, team, "brief"))
        assert marked(gpu_node) == sorted(tenants)
        delete(gpu_node.site, team, "brief", grace=1)
        wait_for(lambda: len(gpu_node.promised()) == len(tenants), within=RUN_WITHIN)
        assert marked(gpu_node) == sorted(tenants)
        undisturbed(gpu_node, team, tenants)


def test_settings_of_a_newer_release(gpu_node: GpuNode, team: str, tenants: dict[str, str]) -> None:
    """An agent that starts on settings it does not know says so and serves by the defaults."""
    before = gpu_node.site.api.get(SETTINGS)["data"]["settings.yaml"]
    gpu_node.site.configure(f"{before}\nsomethingNewer: true\n")
    try:
        gpu_node.agent.stop()
        gpu_node.start()
        events = [line.get("event") for line in log_lines(gpu_node.agent)]
        assert "settings rejected, previous ones kept" in events
        undisturbed(gpu_node, team, tenants)
        gpu_node.site.create(team, soft(name="after"))
        device_of(gpu_node, running(gpu_node.site, team, "after"))
    finally:
        gpu_node.site.configure(before)
