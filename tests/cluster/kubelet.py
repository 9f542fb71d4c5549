"""A real kubelet, as its node's own user, on a host of the tests."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.api import ApiError, Json, wait_for
from tests.cluster.containerd import SOCKET, Containerd
from tests.cluster.control_plane import ControlPlane
from tests.cluster.host import Host
from tests.cluster.installation import PODS, Installation
from tests.cluster.ports import free_port
from tests.cluster.process import Process
from tests.cluster.volcano import http_get

NODES = "/api/v1/nodes"
READY_WITHIN = 60.0

_CONFIG = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "containerRuntimeEndpoint": f"unix://{SOCKET}",
    "cgroupDriver": "cgroupfs",
    "failCgroupV1": False,
    "failSwapOn": False,
    "enforceNodeAllocatable": [],
    "localStorageCapacityIsolation": False,
    # Nobody but its tests asks it anything, on loopback.
    "address": "127.0.0.1",
    "healthzBindAddress": "127.0.0.1",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "makeIPTablesUtilChains": False,
    "resolvConf": "",
    "readOnlyPort": 0,
    # What other people's files leave of the disk is no reason to evict.
    "evictionHard": {"memory.available": "1Mi"},
    "imageGCHighThresholdPercent": 100,
    # Tests wait for what it reports, and for containers that crash.
    "nodeStatusUpdateFrequency": "1s",
    "nodeStatusReportFrequency": "1s",
    "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of an installation: its host, its runtime, its kubelet."""

    name: str
    site: Installation
    host: Host
    runtime: Containerd
    kubelet: Process
    health: int

    def start(self) -> None:
        """Start the kubelet, for the first time or again, and return once it is healthy."""
        self.kubelet.start(lambda: http_get(self.health, "/healthz") == "ok", within=READY_WITHIN)

    def status(self) -> Json:
        """Return the status of the Node."""
        found: Json = self.site.api.get(f"{NODES}/{self.name}")["status"]
        return found

    def allocatable(self, resource: str) -> str:
        """Return what may be asked for of a resource, empty where there is no such thing."""
        return str(self.status().get("allocatable", {}).get(resource, ""))

    def ready(self) -> bool:
        """Say whether its kubelet says that it is ready."""
        try:
            conditions = self.status().get("conditions", ())
        except ApiError:
            return False
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def admit(self) -> None:
        """Let pods come once it is ready, which the controllers would do."""
        wait_for(self.ready, within=READY_WITHIN)
        self.site.api.patch(f"{NODES}/{self.name}", {"spec": {"taints": []}})

    def reboot(self) -> None:
        """Cut its power and start it again; every process is gone, the disks are as they were."""
        self.host.power_off()
        self.host.boot()
        self.runtime.start()
        self.start()

    def log(self, pod: Json, container: str) -> list[str]:
        """Return what a container has printed in its latest life."""
        found = pod["metadata"]
        name = f"{found['namespace']}_{found['name']}_{found['uid']}"
        lives = sorted(
            (self.host.folder / "var/log/pods" / name / container).glob("*.log"),
            key=lambda life: int(life.stem),
        )
        if not lives:
            return []
        # The time, the stream, whether the line is whole, the line.
        return [line.split(" ", 3)[3] for line in lives[-1].read_text().splitlines()]


def kubelet(site: Installation, runtime: Containerd, programs: Mapping[str, Path]) -> Node:
    """Start a kubelet, whose node has the name of its host's folder, and let pods come to it."""
    host = runtime.host
    name, health = host.folder.name, free_port()
    config = {**_CONFIG, "port": free_port(), "healthzPort": health}
    (host.folder / "kubelet.json").write_text(json.dumps(config))
    command: list[str | Path] = [
        programs["kubelet"],
        f"--config={host.folder / 'kubelet.json'}",
        f"--kubeconfig={_kubeconfig(site.plane, name, host.folder)}",
        f"--hostname-override={name}",
        "--root-dir=/var/lib/kubelet",
        "--cert-dir=/var/lib/kubelet/pki",
        "--v=2",
    ]
    process = host.process("kubelet", command)
    node = Node(name=name, site=site, host=host, runtime=runtime, kubelet=process, health=health)
    node.start()
    node.admit()
    return node


def _kubeconfig(plane: ControlPlane, name: str, folder: Path) -> Path:
    """Write a kubeconfig of the node's own user, by the administrator's leave to act as it."""
    config = json.loads(plane.kubeconfig.read_text())
    acting = {"as": f"system:node:{name}", "as-groups": ["system:nodes", "system:authenticated"]}
    config["users"] = [{"name": "admin", "user": {"token": plane.token, **acting}}]
    path = folder / "kubelet.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def pods_of(site: Installation, team: str) -> dict[str, Json]:
    """Return the pods of a namespace by name."""
    return {p["metadata"]["name"]: p for p in site.api.get(PODS.format(team))["items"]}
