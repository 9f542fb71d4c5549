"""A cluster of one node, as a person would have it: every component real, nothing shared.

It runs on a :class:`Host` with a network of its own: a bridge for pods, kube-proxy for services.
Certificates are those of one authority, and kubelet is only what NodeRestriction lets it be.
Everything that a distribution would set stands here; all else is left as the programs have it.
"""

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.cluster.api import Json, wait_for
from tests.cluster.containerd import SOCKET
from tests.cluster.host import Host
from tests.cluster.process import Process
from tests.install.pki import Pki

NODE: Final = "node-1"
ADDRESS: Final = "10.0.0.10"  # of the node, on the host's only network
API_SERVER: Final = f"https://{ADDRESS}:6443"
SERVICES: Final = "10.96.0.0/16"
PODS: Final = "10.244.0.0/24"
READY_WITHIN: Final = 60.0

_NETWORK = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipMasq": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": PODS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}
_SETUP = f"""
set -eu
ip link add eth0 type veth peer name outside
ip link set outside up
ip addr add {ADDRESS}/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.0.1 dev eth0 onlink
sysctl -qw net.ipv4.ip_forward=1
hostname {NODE}
"""
_KUBELET: Final[Mapping[str, Any]] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "containerRuntimeEndpoint": f"unix://{SOCKET}",
    "cgroupDriver": "cgroupfs",
    "failCgroupV1": False,
    "failSwapOn": False,
    "enforceNodeAllocatable": [],
    "localStorageCapacityIsolation": False,
    "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
    "authorization": {"mode": "Webhook"},
    "clusterDomain": "cluster.local",
    "clusterDNS": ["10.96.0.10"],  # nobody serves it, and nobody of ours asks
    "resolvConf": "",
    # What other people's files leave of the disk is no reason to evict.
    "evictionHard": {"memory.available": "1Mi"},
    "imageGCHighThresholdPercent": 100,
}
_PROXY: Final[Mapping[str, Any]] = {
    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
    "kind": "KubeProxyConfiguration",
    "mode": "iptables",
    "clusterCIDR": PODS,
    "hostnameOverride": NODE,
    # Limits of the kernel, which is not the node's own.
    "conntrack": {
        "maxPerCore": 0,
        "tcpEstablishedTimeout": "0s",
        "tcpCloseWaitTimeout": "0s",
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OneNode:
    """A running cluster."""

    host: Host
    programs: Mapping[str, Path]
    kubeconfig: Path  # of the administrator
    processes: Mapping[str, Process]  # by name, in the order in which they were started

    def kubectl(self, *arguments: str | Path, stdin: str | None = None) -> str:
        """Run kubectl as the administrator; raise :class:`CommandError` where it fails."""
        command = [self.programs["kubectl"], f"--kubeconfig={self.kubeconfig}", *arguments]
        return self.run(*command, stdin=stdin)

    def run(self, *command: str | Path, stdin: str | None = None) -> str:
        """Run a command on the node and return what it prints."""
        answer = subprocess.run(
            self.host.entering(command),
            capture_output=True,
            check=False,
            input=stdin,
            text=True,
        )
        if answer.returncode:
            raise CommandError(" ".join(map(str, command)), answer.stdout + answer.stderr)
        return answer.stdout

    def get(self, *arguments: str) -> Json:
        """Return what `kubectl get` finds, as JSON."""
        found: Json = json.loads(self.kubectl("get", "-o", "json", *arguments))
        return found

    def api_server_ready(self) -> bool:
        """Say whether the API server serves."""
        return self._answers("get", "--raw=/readyz") is not None

    def node_ready(self) -> bool:
        """Say whether kubelet says that its node is ready."""
        conditions = '{.status.conditions[?(@.type=="Ready")].status}'
        return self._answers("get", "node", NODE, f"-o=jsonpath={conditions}") == "True"

    def _answers(self, *arguments: str) -> str | None:
        try:
            return self.kubectl(*arguments)
        except CommandError:
            return None

    def load(self, archive: Path) -> None:
        """Import the image of a docker archive into the runtime."""
        ctr = self.programs["ctr"]
        self.run(ctr, f"--address={SOCKET}", "--namespace=k8s.io", "images", "import", archive)


class CommandError(Exception):
    """A command failed; ``text`` is what it printed."""

    def __init__(self, command: str, text: str) -> None:
        """Keep the *text* beside the *command*."""
        super().__init__(f"{command}: {text.strip()}")
        self.text = text


def one_node(host: Host, programs: Mapping[str, Path], runtime: Process) -> OneNode:
    """Start all components on *host*, whose *runtime* runs already; return a node that is ready."""
    _network(host)
    pki = Pki(host.folder / "pki")
    admin = pki.kubeconfig("admin", server=API_SERVER, user="admin", group="system:masters")
    processes: dict[str, Process] = {"containerd": runtime}
    cluster = OneNode(host=host, programs=programs, kubeconfig=admin, processes=processes)

    flags = {
        "etcd": [f"--data-dir={host.folder / 'etcd'}", "--unsafe-no-fsync"],
        "kube-apiserver": _api_server_flags(pki),
        "kube-controller-manager": _controller_flags(pki),
        "kube-scheduler": _scheduler_flags(pki),
        "kubelet": _kubelet_flags(pki, host.folder),
        "kube-proxy": _proxy_flags(pki, host.folder),
    }
    for name, given in flags.items():
        processes[name] = host.process(name, [programs[name], *given])
        ready = cluster.api_server_ready if name == "kube-apiserver" else _started
        processes[name].start(ready, within=READY_WITHIN)
    wait_for(cluster.node_ready, within=READY_WITHIN)
    return cluster


def _started() -> bool:
    """Say that nobody waits for a component by itself: the node is ready when all are."""
    return True


@contextlib.contextmanager
def scheduler_with(cluster: OneNode, extender: Json) -> Iterator[None]:
    """Restart kube-scheduler as one that asks *extender*, and as it was when the block is left."""
    before = cluster.processes["kube-scheduler"]
    config = cluster.host.folder / "scheduler.json"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "leaderElection": {"leaderElect": False},
                "clientConnection": {
                    "kubeconfig": str(cluster.host.folder / "pki/scheduler.kubeconfig")
                },
                "extenders": [extender],
            }
        )
    )
    command: list[str | Path] = [cluster.programs["kube-scheduler"], f"--config={config}"]
    asking = cluster.host.process("kube-scheduler-asking", command)
    before.stop()
    asking.start(_started, within=READY_WITHIN)
    try:
        yield
    finally:
        asking.stop()
        before.start(_started, within=READY_WITHIN)


def network_folder(host: Host) -> Path:
    """Return the folder of *host* with the configuration of its pods' network."""
    folder = host.folder / "cni/net.d"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "10-pods.conflist").write_text(json.dumps(_NETWORK))
    return folder


def _network(host: Host) -> None:
    host.run("sh", "-c", _SETUP)


def _api_server_flags(pki: Pki) -> list[str]:
    hosts = ("kubernetes.default.svc", ADDRESS, "10.96.0.1", "127.0.0.1")
    certificate, key = pki.issue("apiserver", user="kube-apiserver", hosts=hosts)
    client, client_key = pki.issue("kubelet-client", user="kube-apiserver", group="system:masters")
    signing = pki.service_account_key()
    return [
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={ADDRESS}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--client-ca-file={pki.ca_file}",
        f"--kubelet-client-certificate={client}",
        f"--kubelet-client-key={client_key}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={signing}",
        f"--service-account-signing-key-file={signing}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-cluster-ip-range={SERVICES}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
    ]


def _controller_flags(pki: Pki) -> list[str]:
    user = "system:kube-controller-manager"
    return [
        f"--kubeconfig={pki.kubeconfig('controller-manager', server=API_SERVER, user=user)}",
        f"--root-ca-file={pki.ca_file}",
        f"--service-account-private-key-file={pki.folder / 'sa.key'}",
        f"--cluster-signing-cert-file={pki.ca_file}",
        f"--cluster-signing-key-file={pki.folder / 'ca.key'}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
    ]


def _scheduler_flags(pki: Pki) -> list[str]:
    user = "system:kube-scheduler"
    return [
        f"--kubeconfig={pki.kubeconfig('scheduler', server=API_SERVER, user=user)}",
        "--leader-elect=false",
    ]


def _kubelet_flags(pki: Pki, folder: Path) -> list[str]:
    user, group = f"system:node:{NODE}", "system:nodes"
    config = folder / "kubelet.json"
    trusted = {"x509": {"clientCAFile": str(pki.ca_file)}}
    config.write_text(
        json.dumps({**_KUBELET, "authentication": {**_KUBELET["authentication"], **trusted}})
    )
    return [
        f"--config={config}",
        f"--kubeconfig={pki.kubeconfig('kubelet', server=API_SERVER, user=user, group=group)}",
        f"--hostname-override={NODE}",
        f"--node-ip={ADDRESS}",
        "--root-dir=/var/lib/kubelet",
        "--cert-dir=/var/lib/kubelet/pki",
    ]


def _proxy_flags(pki: Pki, folder: Path) -> list[str]:
    kubeconfig = pki.kubeconfig("proxy", server=API_SERVER, user="system:kube-proxy")
    config = folder / "proxy.json"
    connection = {"clientConnection": {"kubeconfig": str(kubeconfig)}}
    config.write_text(json.dumps({**_PROXY, **connection}))
    return [f"--config={config}"]
