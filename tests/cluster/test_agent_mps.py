"""A pod in mode mps on a real node: our stand-in plays the daemon, the rest is as it is."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pynvml
import pytest

from agent.mps.daemon import CONTROL, folders_of
from allocator.model.request import Mode
from tests.builders.pods import CORES, MEMORY, MODE, NUMBER, pod
from tests.cluster.api import Json, wait_for
from tests.cluster.node_agent import GpuNode, served
from tests.cluster.node_pods import (
    PRELOAD,
    STAY,
    VISIBLE,
    delete,
    empty,
    inside,
    looking,
    running,
    told,
    undisturbed,
)
from tests.cluster.node_site import node_site
from tests.fakes import mps_control

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
NODE_CONFIG = "volcano-vgpu-node-config"
HOST_ROOT = "usr/local/vgpu"
PIPE, SHARED = "/tmp/nvidia-mps", "/dev/shm"  # as a container has them
WITHIN = 60.0
SHARE = {NUMBER: 1, MEMORY: 3000, CORES: 30}


def node_config(mode: Mode) -> Json:
    """Write what an administrator says of the node."""
    text = json.dumps({"nodeconfig": [{"name": "gpu-1", "operatingmode": mode}]})
    return {"metadata": {"name": NODE_CONFIG}, "data": {"config.json": text}}


@pytest.fixture(scope="module")
def gpu_node(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GpuNode]:
    """Yield a node with one GPU, which its administrator has put into mode mps."""
    folder = tmp_path_factory.mktemp("mps")
    with node_site(programs, folder) as node:
        program = mps_control.install(folder / "program")
        node.host.run("install", "-m", "755", program, f"/usr/bin/{CONTROL}")
        node.site.api.create(CONFIG_MAPS, node_config(Mode.MPS))
        with served(node, (False,)) as found:
            wait_for(lambda: compute_mode(found) == exclusive(), within=WITHIN)
            yield found


def exclusive() -> int:
    return int(pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)


def compute_mode(found: GpuNode) -> int:
    """Return the compute mode of the node's only GPU, as the driver has it."""
    return int(found.machine.read().gpus[0].compute_mode)


def folder_of(found: GpuNode) -> Path:
    """Return the folder of the daemon of the node's only GPU."""
    (gpu,) = found.uuids
    return Path(folders_of(str(found.node.host.folder / HOST_ROOT), gpu).root)


def daemon(found: GpuNode) -> int:
    """Return the pid of the daemon, as the node counts processes; 0 where none was started."""
    try:
        return int(json.loads((folder_of(found) / "daemon.json").read_bytes())["pid"])
    except (OSError, ValueError):
        return 0


def beside(name: str = "p") -> Json:
    """Write a pod in mode mps that tells what it sees, then what is in its two folders."""
    then = ("list", PIPE, "list", SHARED, "say", "listed", *STAY)
    written = pod(looking(limits=SHARE, then=then))
    metadata = {**written["metadata"], "name": name, "annotations": {MODE: "mps"}}
    return {**written, "metadata": metadata}


def ready(found: GpuNode) -> bool:
    """Say whether the GPU takes pods."""
    gpus = found.ledger().node.gpus
    return [(gpu.mode, gpu.healthy) for gpu in gpus] == [(Mode.MPS, True)]


def test_a_pod_has_its_daemon_and_outlives_its_end(gpu_node: GpuNode, team: str) -> None:
    """It is limited, is told when its daemon is killed, and another daemon serves the next pod."""
    wait_for(lambda: ready(gpu_node), within=WITHIN)
    gpu_node.site.create(team, beside())
    found = running(gpu_node.site, team)
    wait_for(lambda: "say listed" in gpu_node.node.log(found, "main"), within=WITHIN)
    seen = inside(gpu_node.node, found)

    assert seen.env[VISIBLE] == gpu_node.uuids[0]
    assert seen.env["CUDA_MPS_PIPE_DIRECTORY"] == PIPE
    assert seen.env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=3000M"
    assert seen.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    assert PRELOAD not in seen.mounts
    assert {PIPE, SHARED} <= seen.mounts.keys()
    assert "control" in seen.told(f"list {PIPE}:")

    first = daemon(gpu_node)
    gpu_node.node.host.run("kill", "-9", str(first))
    wait_for(lambda: "its MPS daemon ended" in told(gpu_node.site, team), within=WITHIN)
    wait_for(lambda: daemon(gpu_node) not in {0, first} and ready(gpu_node), within=WITHIN)
    undisturbed(gpu_node, team, ["p"])
    assert compute_mode(gpu_node) == exclusive()

    gpu_node.site.create(team, beside("next"))
    running(gpu_node.site, team, "next")


def test_the_compute_mode_goes_back_when_the_daemon_is_dead(gpu_node: GpuNode, team: str) -> None:
    """The administrator takes the GPU out of the mode; nobody is left to answer a quit."""
    empty(gpu_node)
    gpu_node.site.create(team, beside())
    running(gpu_node.site, team)
    patch = f"{CONFIG_MAPS}/{NODE_CONFIG}"
    gpu_node.site.api.patch(patch, node_config(Mode.HAMI_CORE))
    wait_for(lambda: not ready(gpu_node), within=WITHIN)
    assert compute_mode(gpu_node) == exclusive()  # the pod keeps its GPU until it ends

    gpu_node.agent.stop()
    gpu_node.node.host.run("kill", "-9", str(daemon(gpu_node)))
    delete(gpu_node.site, team, grace=1)
    gpu_node.start()

    empty(gpu_node)
    wait_for(lambda: compute_mode(gpu_node) == pynvml.NVML_COMPUTEMODE_DEFAULT, within=WITHIN)
    wait_for(lambda: not folder_of(gpu_node).exists(), within=WITHIN)
