"""The cluster of one storm: real components, a thousand nodes with GPUs, with or without us."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import Final

from allocator.catalog.boards import model_named
from allocator.ledger.schema import status_of
from allocator.model.gpu import Gpu, Node
from allocator.model.request import Mode
from compiled import apart
from manifests.generator.names import CONTROL_PLANE
from tests.cluster.api import MERGE, Api, ApiError, Json
from tests.cluster.control_plane import ControlPlane, Settings
from tests.cluster.extender import apply, extender
from tests.cluster.forwarder import forwarding
from tests.cluster.installation import (
    GPU_NODES,
    OPTED_IN,
    PODS,
    Installation,
    installation,
)
from tests.cluster.ports import free_port
from tests.cluster.process import Process
from tests.cluster.scheduler import kube_scheduler
from tests.cluster.site import Who

THREADS: Final = 8
GPUS: Final = 8  # per node
MODEL: Final = "NVIDIA A100-SXM4-40GB"
SLOTS: Final = 10  # shares of one GPU
# As the fact sheets measure: with client-go's own 50 per second nothing else would be measured.
CLIENT: Final = {"qps": 1000, "burst": 2000}
ROOM: Final = {
    "cpu": "64",
    "memory": "512Gi",
    "pods": "250",
    "volcano.sh/vgpu-number": str(GPUS * SLOTS),
    "volcano.sh/vgpu-memory": str(GPUS * 40960),
}
# Nodes are ready as they are created; nobody reports for them.
FLAGS: Final = ("--disable-admission-plugins=TaintNodesByCondition",)


class Arm(StrEnum):
    """What of ours takes part in a run."""

    NOTHING = "without vgpu-admission"
    HOOK = "hook"
    EXTENDER = "hook and extender"
    REPLICAS = "hook and extender, two replicas"


# Replicas that answer the scheduler too; without one, a single replica answers hooks alone.
EXTENDERS: Final = {Arm.HOOK: 0, Arm.EXTENDER: 1, Arm.REPLICAS: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class StormCluster:
    """A running cluster; ``scheduler`` binds whatever pods come, ``site`` is there where we are."""

    plane: ControlPlane
    api: Api
    scheduler: Process
    site: Installation | None

    def namespace(self) -> str:
        """Make a namespace whose pods come to our hooks, where there are any."""
        body = {"metadata": {"generateName": "storm-", "labels": OPTED_IN}}
        name: str = self.api.create("/api/v1/namespaces", body).body["metadata"]["name"]
        return name

    def create(self, namespace: str, pods: Iterable[Json]) -> None:
        """Create *pods* from several threads."""
        run_all(lambda pod: self.api.create(PODS.format(namespace), pod), pods)


def run_all(act: Callable[[Json], object], things: Iterable[Json], threads: int = THREADS) -> None:
    """Do *act* with each of *things*, some at a time; raises the first error."""
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(act, things):
            pass


@contextlib.contextmanager
def cluster(
    programs: Mapping[str, Path], folder: Path, *, arm: Arm, nodes: int
) -> Iterator[StormCluster]:
    """Start everything, with *nodes* nodes of which half are cut by MIG, and end it all."""
    settings = Settings(api_server_flags=FLAGS)
    with contextlib.ExitStack() as stack:
        site = None
        extenders: list[Json] = []
        if arm is Arm.NOTHING:
            plane = stack.enter_context(ControlPlane(folder, programs, settings))
            api = stack.enter_context(plane.api())
        else:
            ports = [free_port() for _ in range(EXTENDERS[arm])]
            options = [f"--extender=127.0.0.1:{port}" for port in ports]
            site = stack.enter_context(
                installation(programs, folder, options=options[:1], settings=settings, tree=apart())
            )
            plane, api = site.plane, site.api
            if ports:
                apply(site, "rbac.yaml")
            for option in options[1:]:
                site.add_replica(option).start()
            if len(ports) > 1:
                site.point_at(stack.enter_context(forwarding([one.port for one in site.replicas])))
                ports = [stack.enter_context(forwarding(ports))]
            extenders += [extender(port) for port in ports]
        names = node_names(nodes)
        run_all(lambda node: api.create("/api/v1/nodes", node), map(ready_node, names))
        if site is not None:
            inventory(api, [gpu_node(name, i) for i, name in enumerate(names)])
        scheduler = kube_scheduler(
            programs["kube-scheduler"], plane, client=CLIENT, extenders=extenders
        )
        stack.callback(scheduler.stop)
        yield StormCluster(plane=plane, api=api, scheduler=scheduler, site=site)


def node_names(count: int) -> list[str]:
    """Return the names of the nodes, in order."""
    return [f"gpu-{i:04}" for i in range(count)]


def ready_node(name: str) -> Json:
    """Write a Node that its kubelet has found ready, with the label of an agent."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"capacity": ROOM, "allocatable": ROOM, "conditions": [ready]}
    labels = {"vgpu-admission.io/agent": "0.1.0"}
    return {"metadata": {"name": name, "labels": labels}, "status": status}


def gpu_node(name: str, number: int) -> Node:
    """Build the inventory of a node; every other one is cut by MIG."""
    known = model_named(MODEL)
    if known is None:
        raise LookupError(MODEL)
    mode = (Mode.HAMI_CORE, Mode.MIG)[number % 2]
    gpus = (
        Gpu(
            uuid=f"GPU-{name}-{index}",
            index=index,
            model=known.name,
            memory=known.memory,
            mode=mode,
            slots=SLOTS,
            board=known.board if mode is Mode.MIG else None,
        )
        for index in range(GPUS)
    )
    return Node(name=name, gpus=tuple(gpus), fresh=True)


def inventory(api: Api, nodes: Sequence[Node]) -> None:
    """Write the GPUNode of each node, as the control plane and the node's agent would."""
    headers = Who(CONTROL_PLANE).headers
    kind = {"apiVersion": "vgpu-admission.io/v1alpha1", "kind": "GPUNode"}

    def write(document: Json) -> None:
        try:
            api.request("POST", GPU_NODES, {**kind, **document, "status": None}, headers=headers)
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:  # the control plane was quicker
                raise
        path = f"{GPU_NODES}/{document['metadata']['name']}/status"
        change = {"status": document["status"]}
        api.request("PATCH", path, change, headers={**headers, "Content-Type": MERGE})

    def gpu_node_object(node: Node) -> Json:
        return {"metadata": {"name": node.name}, "spec": {"entries": []}, "status": status_of(node)}

    run_all(write, map(gpu_node_object, nodes))
