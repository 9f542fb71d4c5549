"""The objects of a large cluster, as large as real ones: nodes, pods with and without vGPU."""

from collections.abc import Mapping
from typing import Final

from benchmarks.storm_cluster import ROOM
from tests.cluster.api import Json

IMAGES: Final = 25  # that a node lists; kubelet lists the 50 largest
STARTED: Final = "2026-11-20T08:00:00Z"
DIGEST: Final = "sha256:" + "4b1d" * 16
VARIABLES: Final = 8  # of a container
LIMITS: Final = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 3000}
MODE: Final = "volcano.sh/vgpu-mode"


def node(name: str, boot: str) -> Json:
    """Write a Node that its kubelet has found ready, with the label of an agent."""
    types = {"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
    labels = {
        "vgpu-admission.io/agent": "0.1.0",
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "gpu.8x.a100",
        "topology.kubernetes.io/region": "here",
        "topology.kubernetes.io/zone": "here-1",
    }
    status = {
        "capacity": ROOM,
        "allocatable": ROOM,
        "addresses": [
            {"type": "InternalIP", "address": "10.1.2.3"},
            {"type": "Hostname", "address": name},
        ],
        "conditions": conditions({**types, "Ready": "True"}, STARTED),
        "nodeInfo": {
            "machineID": "f" * 32,
            "systemUUID": "0" * 36,
            "bootID": boot,
            "kernelVersion": "6.1.0-28-amd64",
            "osImage": "Debian GNU/Linux 12 (bookworm)",
            "containerRuntimeVersion": "containerd://2.2.1",
            "kubeletVersion": "v1.36.3",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
        "images": [
            {
                "names": [
                    f"registry.example.com/team/image-{number:03}@{DIGEST}",
                    f"registry.example.com/team/image-{number:03}:v1.{number}.0",
                ],
                "sizeBytes": 10_000_000 + number,
            }
            for number in range(IMAGES)
        ],
    }
    return {"metadata": {"name": name, "labels": labels}, "status": status}


def conditions(types: Mapping[str, str], heartbeat: str) -> list[Json]:
    """Write the conditions that a kubelet reports, at *heartbeat*."""
    return [
        {
            "type": name,
            "status": status,
            "reason": f"Kubelet{name}",
            "message": f"kubelet has looked at {name}",
            "lastHeartbeatTime": heartbeat,
            "lastTransitionTime": STARTED,
        }
        for name, status in types.items()
    ]


def pod(
    name: str, *, annotations: Mapping[str, str] | None = None, limits: Json | None = None
) -> Json:
    """Write a pod as a Deployment makes it; with *limits* it asks for vGPU.

    No scheduler takes it.
    """
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10}
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web-7c9d8f6b5",
        "uid": "8" * 36,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    container = {
        "name": "main",
        "image": "registry.example.com/team/web:v1.2.3",
        "env": [{"name": f"SETTING_{i}", "value": f"value of {i}"} for i in range(VARIABLES)],
        "ports": [{"containerPort": 8080, "name": "http"}],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": "512Mi", **(limits or {})},
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}],
    }
    spec = {
        "schedulerName": "nobody",
        "terminationGracePeriodSeconds": 30,
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "web"}}],
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        ],
    }
    metadata = {
        "name": name,
        "labels": {"app": "web", "pod-template-hash": "7c9d8f6b5", "tier": "front"},
        "annotations": {"prometheus.io/scrape": "true", **(annotations or {})},
        "ownerReferences": [owner],
    }
    return {"metadata": metadata, "spec": spec}


def running(moment: str = STARTED) -> Json:
    """Write the status of a pod that runs, as kubelet reports it at *moment*."""
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    state = {"running": {"startedAt": STARTED}}
    return {
        "phase": "Running",
        "hostIP": "10.1.2.3",
        "podIP": "10.2.3.4",
        "podIPs": [{"ip": "10.2.3.4"}],
        "startTime": STARTED,
        "conditions": [_condition(name, moment) for name in types],
        "containerStatuses": [
            {
                "name": "main",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "image": "registry.example.com/team/web:v1.2.3",
                "imageID": f"registry.example.com/team/web@{DIGEST}",
                "containerID": "containerd://" + "c" * 64,
                "state": state,
            }
        ],
    }


def _condition(name: str, moment: str) -> Json:
    return {"type": name, "status": "True", "lastTransitionTime": moment}
