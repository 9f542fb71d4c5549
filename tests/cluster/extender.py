"""Schedulers that ask us about nodes: what an operator configures and grants for it."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from allocator.model.gpu import Node
from tests.builders.pods import CORES, NUMBER
from tests.cluster.api import Json
from tests.cluster.forwarder import forwarding
from tests.cluster.installation import Installation, Replica, installation
from tests.cluster.ports import free_port
from tests.cluster.scheduler import kube_scheduler, schedulable
from tests.cluster.site import MANIFESTS

RESOURCES = ("volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores")
WITHIN = 60.0  # seconds; the scheduler's back-off is ten at most


def extender(port: int, **more: object) -> Json:
    """Write the entry that docs/extender.md tells an operator to write."""
    managed = [{"name": name, "ignoredByScheduler": False} for name in RESOURCES]
    verbs = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt"}
    return {
        "urlPrefix": f"http://127.0.0.1:{port}/extender",
        **verbs,
        "weight": 5,
        "httpTimeout": "5s",
        "nodeCacheCapable": True,
        "managedResources": managed,
        **more,
    }


def apply(site: Installation, name: str) -> None:
    """Grant what a manifest of the component grants."""
    text = (MANIFESTS / "components" / "extender" / name).read_text()
    for document in yaml.safe_load_all(text):
        namespace = document["metadata"].get("namespace")
        inside = f"namespaces/{namespace}/" if namespace else ""
        place = f"/apis/rbac.authorization.k8s.io/v1/{inside}{document['kind'].lower()}s"
        site.api.create(place, document)


def add_extender(site: Installation, host: str = "127.0.0.1") -> tuple[Replica, int]:
    """Start a replica that answers schedulers at *host*, and return its port."""
    port = free_port()
    replica = site.add_replica(f"--extender={host}:{port}")
    replica.start()
    return replica, port


@contextlib.contextmanager
def asked(
    programs: Mapping[str, Path], folder: Path, *nodes: Node, by_request: bool = False
) -> Iterator[Installation]:
    """Yield an installation with *nodes*, whose scheduler asks one of two replicas.

    It asks the other where that one is gone or, *by_request*, with every other question.
    """
    with installation(programs, folder) as found:
        for node in nodes:
            found.add_node(node)
            schedulable(found, node.name)
            room = {NUMBER: "100", CORES: "10000"}
            sums = {"status": {"capacity": room, "allocatable": room}}
            found.api.patch(f"/api/v1/nodes/{node.name}/status", sums)
        apply(found, "rbac.yaml")
        ports = [add_extender(found)[1] for _ in range(2)]
        found.wait_for_models(*{gpu.model for node in nodes for gpu in node.gpus})
        with forwarding(ports, by_request=by_request) as port:
            scheduler = kube_scheduler(
                programs["kube-scheduler"], found.plane, extenders=[extender(port)]
            )
            yield found
            scheduler.stop()
