"""An installation that vc-scheduler serves too, and what people do on it."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from allocator.ledger.decode import decode
from allocator.model.allocation import Entry
from allocator.model.gpu import Gpu, Node
from allocator.volcano.device_list import LIST_ANNOTATION
from allocator.volcano.register import (
    HANDSHAKE_ANNOTATION,
    REGISTER_ANNOTATION,
    HandshakePhase,
    encode_handshake,
)
from kube.clock import SYSTEM
from manifests.generator.names import CONTROL_PLANE
from tests.builders.pods import CORES, MEMORY, MODE, NUMBER, container, pod
from tests.cluster.api import MERGE, Json, wait_for
from tests.cluster.control_plane import ControlPlane, Settings
from tests.cluster.installation import GPU_NODES, PODS, Installation, installation
from tests.cluster.ports import free_port
from tests.cluster.process import Process
from tests.cluster.site import MANIFESTS, Who
from tests.cluster.volcano import CONFIGURATION, Volcano, http_get, volcano, volcano_programs

TABLES = Path(__file__).parents[1] / "golden" / "volcano"
COMPONENT = MANIFESTS / "components" / "vc-scheduler"
NODES = "/api/v1/nodes"
POD_GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
WORDS = {"mode": MODE, "group": "scheduling.k8s.io/group-name"}
SERVED_WITHIN = 60.0  # seconds from a request to its bind, on a machine with much else to do
# More than there is: what fits is ours to say, and deviceshare's.
ROOM = {
    "cpu": "1",
    "memory": "64Gi",
    "pods": "110",
    NUMBER: "100",
    MEMORY: "1000000",
    CORES: "1000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """The installation, and Volcano on it."""

    site: Installation
    volcano: Volcano

    def serve(self, node: Node, room: Mapping[str, str] = ROOM) -> None:
        """Add a node as its agent and kubelet would: capacity comes after the register."""
        self.site.add_node(node)
        self._ready(node.name)
        wait_for(lambda: self.register(node.name), within=SERVED_WITHIN)
        self.offer(node.name, room)

    def serve_upstream(self, name: str, register: str, room: Mapping[str, str] = ROOM) -> None:
        """Add a node as Volcano's device plugin announces it: capacity comes last."""
        self.site.add_upstream_node(name, register)
        self.report(name)
        self._ready(name)
        self.offer(name, room)

    def report(self, name: str) -> None:
        """Shake hands as the plugin does every 30 seconds."""
        report = encode_handshake(HandshakePhase.REPORTED, SYSTEM.wall())
        self.site.api.patch(
            f"{NODES}/{name}", {"metadata": {"annotations": {HANDSHAKE_ANNOTATION: report}}}
        )

    def _ready(self, name: str) -> None:
        change = {"metadata": {"labels": {"pool": name}}, "spec": {"taints": []}}
        self.site.api.patch(f"{NODES}/{name}", change)

    def offer(self, name: str, room: Mapping[str, str]) -> None:
        """Report what a node has from now on."""
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"capacity": dict(room), "allocatable": dict(room), "conditions": [ready]}
        self.site.api.patch(f"{NODES}/{name}/status", {"status": status})

    def register(self, name: str) -> str:
        """Return the register annotation of a node, empty where there is none."""
        metadata = self.site.api.get(f"{NODES}/{name}")["metadata"]
        return str(metadata.get("annotations", {}).get(REGISTER_ANNOTATION, ""))

    def status(self, node: str, change: Json) -> None:
        """Report a change of a GPUNode's status as its agent would."""
        headers = {**Who(CONTROL_PLANE).headers, "Content-Type": MERGE}
        path = f"{GPU_NODES}/{node}/status"
        self.site.api.request("PATCH", path, {"status": change}, headers=headers)

    def release(self, node: str, *, left: int = 0) -> None:
        """Say as its agent that nothing of what is over runs, until so many promises are left.

        Those that are made meanwhile do not count.
        """
        before = {entry.uid for entry in self.ledger(node)}

        def released() -> bool:
            generation = self.site.api.get(f"{GPU_NODES}/{node}")["metadata"]["generation"]
            self.status(node, {"observedGeneration": generation, "held": []})
            return len(before & {entry.uid for entry in self.ledger(node)}) == left

        wait_for(released, within=SERVED_WITHIN, every=0.5)

    def ledger(self, node: str) -> tuple[Entry, ...]:
        return decode(self.site.api.get(f"{GPU_NODES}/{node}")).entries

    def gpus(self, node: str) -> tuple[Gpu, ...]:
        """Return the GPUs of a node with what is promised on them."""
        return decode(self.site.api.get(f"{GPU_NODES}/{node}")).node.gpus

    def group(self, team: str, name: str, members: int) -> None:
        """Create a PodGroup that needs so many members."""
        body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
        spec = {"minMember": members}
        path = POD_GROUPS.format(team)
        self.site.api.create(path, {**body, "metadata": {"name": name}, "spec": spec})

    def job(self, team: str, written: Json) -> None:
        """Create a Volcano Job."""
        self.site.api.create(JOBS.format(team), written)

    def delete_job(self, team: str, name: str) -> None:
        self.site.api.delete(f"{JOBS.format(team)}/{name}")

    def jobs(self, team: str) -> dict[str, str]:
        """Return the phase of each Volcano Job by name."""
        found = self.site.api.get(JOBS.format(team))
        return {
            job["metadata"]["name"]: job.get("status", {}).get("state", {}).get("phase", "")
            for job in found["items"]
        }

    def create(self, team: str, name: str, written: Json) -> None:
        metadata = {**written["metadata"], "name": name}
        self.site.create(team, {**written, "metadata": metadata})

    def bound(self, team: str) -> dict[str, Json]:
        """Return the pods that have a node, by name."""
        pods = self.site.api.get(PODS.format(team))["items"]
        return {p["metadata"]["name"]: p for p in pods if p["spec"].get("nodeName")}

    def wait_for_bound(
        self, team: str, names: Iterable[str], *, within: float = SERVED_WITHIN
    ) -> dict[str, Json]:
        """Return the pods of these names once they have all a node."""
        wanted = set(names)
        wait_for(lambda: wanted <= self.bound(team).keys(), within=within)
        return {name: found for name, found in self.bound(team).items() if name in wanted}

    def devices(self, team: str, name: str) -> str:
        """Return the list of devices that a pod carries."""
        metadata = self.site.api.get(f"{PODS.format(team)}/{name}")["metadata"]
        return str(metadata["annotations"].get(LIST_ANNOTATION, ""))

    def charged(self, gpu: str) -> float:
        """Return the units that deviceshare has charged to a GPU."""
        samples = self.volcano.metric("volcano_vgpu_device_allocated_memory")
        return next((value for labels, value in samples.items() if f'"{gpu}"' in labels), 0.0)

    def picked(self, team: str, name: str) -> list[str]:
        """Return the GPUs that the scheduler itself picked for a pod that is bound."""

        def recorded() -> list[list[str]]:
            lines = (line for line in self.site.first.lines() if line.get("kind") == "bind")
            return [
                line["wished"]
                for line in lines
                if (line["namespace"], line["pod"]) == (team, name) and "wished" in line
            ]

        return wait_for(recorded)[-1]

    def events(self, team: str, reason: str) -> list[str]:
        """Return what was told about objects of a namespace for this reason."""
        events = self.site.api.get(f"/apis/events.k8s.io/v1/namespaces/{team}/events")["items"]
        return [event.get("note", "") for event in events if event["reason"] == reason]


def asking(
    node: str, memory: int, *, scheduler: str = "volcano", cores: int = 0, **words: str
) -> Json:
    """Write a pod for a node that asks for one share; *words* are its mode and its group."""
    annotations = {WORDS[word]: text for word, text in words.items()}
    limits = {NUMBER: 1, MEMORY: memory, **({CORES: cores} if cores else {})}
    return pod(
        container(limits=limits),
        annotations=annotations,
        schedulerName=scheduler,
        nodeSelector={"pool": node},
    )


@contextlib.contextmanager
def volcano_site(  # noqa: PLR0913 -- what a site may differ in
    programs: Mapping[str, Path],
    folder: Path,
    *,
    settings: str = "",
    table: str = "b",
    real: bool = False,
    scheduler: str = CONFIGURATION,
) -> Iterator[Rig]:
    """Yield an installation with Volcano, its *scheduler* configured so, and geometry *table*.

    Kubelets of air serve its nodes, unless they are *real*, for the caller to start.
    """
    plane = Settings(controllers=True, controller_flags=("--controllers=-nodelifecycle",))
    found = volcano_programs()
    with installation(programs, folder, settings=plane) as site, contextlib.ExitStack() as stack:
        text = (TABLES / f"device-config-{table}.yaml").read_text()
        metadata = {"name": "volcano-vgpu-device-config"}
        site.api.create(CONFIG_MAPS, {"metadata": metadata, "data": {"device-config.yaml": text}})
        text = settings or (COMPONENT / "settings.yaml").read_text()
        site.configure(text)
        wait_for(lambda: site.first.obeys(text))
        if not real:
            kubelets = _kubelets(found["kwok"], site.plane)
            stack.callback(kubelets.stop)
        yield Rig(site=site, volcano=stack.enter_context(volcano(site, found, scheduler)))


def _kubelets(program: Path, plane: ControlPlane) -> Process:
    """Start what says of every pod with a node that it runs."""
    port = free_port()
    command: list[str | Path] = [
        program,
        f"--config={Path(__file__).with_name('kubelets.yaml')}",
        f"--kubeconfig={plane.kubeconfig}",
        "--manage-all-nodes=true",
        f"--server-address=127.0.0.1:{port}",
        "--node-lease-duration-seconds=40",
    ]
    process = Process("kwok", command, plane.folder / "kwok.log")
    process.start(lambda: bool(http_get(port, "/healthz")), within=SERVED_WITHIN)
    return process
