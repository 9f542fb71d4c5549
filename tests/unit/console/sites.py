"""Sites for tests: three nodes and the pods on them, as an API server would list them."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from allocator.config.settings import Settings
from allocator.model.allocation import Entry
from allocator.model.gpu import Node
from allocator.model.request import Mode
from allocator.model.units import MiB
from allocator.volcano.register import REGISTER_ANNOTATION
from console.cluster.pod import PodView, pod_of
from console.cluster.snapshot import ClusterView, cluster_view
from tests.builders.gpunodes import entry, gpu_node
from tests.builders.model import A100_40, T4, gpu, mig_grant, node, placed, snapshot, soft_grant
from tests.builders.pods import Json, admitted, pod, received
from webhook.admission.context import AdmissionContext

NOW = datetime(2026, 11, 21, 12, 34, 56, tzinfo=UTC)
LONG_AGO = "2026-10-21T09:00:00Z"


def hard() -> Node:
    """Three A100s: one cut and busy in part, one with an idle instance, one broken.

    NVLink joins the first two.
    """
    first = gpu(A100_40, index=0, mode=Mode.MIG)
    second = gpu(A100_40, index=1, mode=Mode.MIG, instances=[placed("2g.10gb", 0)])
    return node(
        "gpu-a",
        replace(first, links=("GPU-gpu-a-1",)),
        replace(second, links=("GPU-gpu-a-0",)),
        replace(gpu(A100_40, index=2, mode=Mode.MIG), healthy=False),
    )


def soft() -> Node:
    """Two T4s, one of them used by somebody else too."""
    return node("gpu-b", gpu(T4, index=0), replace(gpu(T4, index=1), foreign=MiB(2000)))


def held_hard() -> list[Entry]:
    return [
        entry("train-0", mig_grant("3g.20gb", 4, gpu="GPU-gpu-a-0")),
        entry("tune-0", mig_grant("1g.5gb", 0, gpu="GPU-gpu-a-0"), container="worker"),
    ]


def held_soft() -> list[Entry]:
    return [
        entry("eval-3", soft_grant(8000, 60, gpu="GPU-gpu-b-0")),
        entry("gone-1", soft_grant(3000, 20, gpu="GPU-gpu-b-0")),
        entry("eval-4", soft_grant(12000, gpu="GPU-gpu-b-1")),
    ]


def with_driver_report(document: Json) -> Json:
    """Return the first node's GPUNode with what its agent reports beside its GPUs."""
    document["status"]["driver"] = "550.54.15"
    document["status"]["exposed"] = "any container may name GPUs"
    document["status"]["gpus"][2]["reason"] = "XID 79: it has fallen off the bus"
    return document


def machine(
    name: str,
    *,
    cordoned: bool = False,
    ready: str = "True",
    register: str = "",
    slots: str = "40",
) -> Json:
    annotations = {"annotations": {REGISTER_ANNOTATION: register}} if register else {}
    return {
        "metadata": {"name": name, "creationTimestamp": LONG_AGO, **annotations},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "allocatable": {"cpu": "2", "volcano.sh/vgpu-number": slots},
        },
    }


def site(
    gpu_nodes: Iterable[Json] | None = None, machines: Iterable[Json] | None = None
) -> ClusterView:
    """Return the three nodes, the third without inventory, or those given."""
    unknown = {"metadata": {"name": "gpu-c", "uid": "c"}, "spec": {"entries": []}}
    standard = [
        with_driver_report(gpu_node(hard(), held_hard())),
        gpu_node(soft(), held_soft()),
        unknown,
    ]
    nodes = [machine(name) for name in ("gpu-a", "gpu-b", "gpu-c")]
    return cluster_view(
        standard if gpu_nodes is None else gpu_nodes,
        nodes if machines is None else machines,
        now=NOW,
    )


def stored(
    name: str, written: Json, *, node: str = "", phase: str = "Pending", minutes: int = 22
) -> PodView:
    """Return a pod as our webhook admits it on these nodes and an API server keeps it."""
    around = AdmissionContext(
        settings=Settings(), snapshot=snapshot(hard(), soft()), host_paths=True
    )
    found = admitted(received(written), around)
    found["metadata"] |= {
        "name": name,
        "uid": name,
        "creationTimestamp": (NOW - timedelta(minutes=minutes)).isoformat(),
    }
    found["spec"] |= {"nodeName": node, "schedulerName": "default-scheduler"}
    found["status"] = {"phase": phase, "conditions": [{"type": "PodScheduled"}]}
    return pod_of(found)


def plain(name: str) -> PodView:
    return pod_of({**pod(), "metadata": {"name": name, "namespace": "team-a", "uid": name}})
