"""One fitting node among 5,000, of which a scheduler asks about a tenth."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from allocator.catalog.keys import HINT_KEY
from allocator.model.gpu import Node
from allocator.model.units import MiB
from benchmarks.scale_cluster import GPU_NODE_KEY, NODE_KEY
from benchmarks.scale_store import Etcd, copied
from benchmarks.storm_cluster import FLAGS, inventory
from tests.builders.model import T4, nodes_of
from tests.builders.pods import MEMORY, NUMBER, container, pod
from tests.cluster.api import Json, wait_for
from tests.cluster.control_plane import API_SERVER, Settings
from tests.cluster.extender import add_extender, apply, extender
from tests.cluster.installation import GPU_NODES, PODS, Installation, installation
from tests.cluster.scheduler import bound, kube_scheduler, schedulable

NODES = 5000
GPUS = 4  # per node
FITTING = "n02500"
COPIED = "n99999"
ASKED = 3000  # MiB
LEFT = 1000  # MiB of each GPU elsewhere; as many as are asked for on a node, and on no GPU
WITHIN = 60.0  # seconds


def crowded(name: str) -> Node:
    """Build a node whose GPUs are almost full of what others run there."""
    empty = nodes_of(GPUS, T4, name=name)
    gpus = (replace(gpu, foreign=MiB(gpu.memory - LEFT)) for gpu in empty.gpus)
    return replace(empty, gpus=tuple(gpus))


def machine(name: str) -> Json:
    """Write a crowded node as its kubelet reports it: in sum it has what is asked for.

    It has the label of an agent, because the control plane deletes the GPUNode of a node without.
    """
    room = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    room |= {NUMBER: str(GPUS * 10), MEMORY: str(GPUS * LEFT)}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    labels = {"vgpu-admission.io/agent": "0.1.0"}
    return {"metadata": {"name": name, "labels": labels}, "status": status}


def fill(site: Installation, names: Sequence[str]) -> None:
    """Write crowded nodes past the API server, where so many requests take minutes."""
    node = site.api.create("/api/v1/nodes", machine(COPIED)).body
    inventory(site.api, [crowded(COPIED)])
    gpu_node = site.api.get(f"{GPU_NODES}/{COPIED}")
    site.stop()
    with Etcd(site.plane.etcd_url) as etcd:
        stored = [
            (key, etcd.get(key.format(COPIED)), original["metadata"]["uid"])
            for key, original in ((NODE_KEY, node), (GPU_NODE_KEY, gpu_node))
        ]
        site.plane.stop(API_SERVER)
        for key, raw, uid in stored:
            copies = (
                (key.format(name), copied(raw, {COPIED: name, uid: f"{uid[:-6]}{number:06}"}))
                for number, name in enumerate(names)
            )
            assert etcd.put_all(copies) == len(names)
            etcd.delete(key.format(COPIED))
        site.plane.start(API_SERVER)
    site.first.start()
    site.wait_until_called()


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation of 5,000 nodes with GPUs, one of which has room on one of them."""
    folder = tmp_path_factory.mktemp("sampling")
    with installation(programs, folder, settings=Settings(api_server_flags=FLAGS)) as found:
        fill(found, [name for i in range(NODES) if (name := f"n{i:05d}") != FITTING])
        found.add_node(nodes_of(GPUS, T4, name=FITTING))
        schedulable(found, FITTING)
        apply(found, "rbac.yaml")
        _, port = add_extender(found)
        found.wait_for_models("T4")
        program = programs["kube-scheduler"]
        scheduler = kube_scheduler(program, found.plane, extenders=[extender(port)])
        yield found
        scheduler.stop()


def test_the_one_fitting_node_is_found(site: Installation) -> None:
    """The samples of the scheduler do not hold it; pod after pod is bound there all the same, soon.

    A sample is a tenth of the nodes. So a pod in ten is in luck at each of its attempts, and most
    of eight pods are not: those have the hint to thank.
    """
    team = site.namespace()
    names = [f"p{number}" for number in range(8)]

    for name in names:
        written = pod(container(limits={NUMBER: 1, MEMORY: ASKED}))
        site.create(team, written | {"metadata": {**written["metadata"], "name": name}})
        wait_for(lambda name=name: name in bound(site, team), within=WITHIN)  # type: ignore[misc]

    pods = site.api.get(PODS.format(team))["items"]
    nodes = {found["spec"]["nodeName"] for found in pods}
    marked = {found["metadata"]["name"]: found["metadata"]["annotations"] for found in pods}
    hints = [line for line in site.replicas[1].lines() if line.get("event") == "hint written"]
    assert nodes == {FITTING}
    assert {hint["node"] for hint in hints} == {FITTING}
    assert len({hint["pod"] for hint in hints}) >= len(names) // 2
    assert all(marked[hint["pod"].rpartition("/")[2]][HINT_KEY] == FITTING for hint in hints)
