"""Our agent on a real node, with GPUs that our stand-in for NVIDIA's library plays."""

import contextlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from agent.driver.simulated_fleet import simulated_device
from agent.driver.simulated_machine import State, new_machine
from agent.region.library_files import SOURCE
from allocator.ledger.ledger import Ledger, parse_ledger
from manifests.generator.names import AGENT
from tests.builders.model import A100_40, model
from tests.builders.pods import NUMBER
from tests.cluster.api import Json, wait_for
from tests.cluster.installation import GPU_NODES, Installation
from tests.cluster.kubelet import NODES, Node
from tests.cluster.ports import free_port
from tests.cluster.process import Process
from tests.cluster.scrape import Scrape
from tests.cluster.site import MANIFESTS
from tests.cluster.volcano import http_get
from tests.fakes.hami_core import empty_library
from tests.fakes.nvml.machine import Machine

SERVES_WITHIN: Final = 60.0
# The first two are cut by HAMi-core, the others by MIG.
GPUS: Final = (False, False, True, True)

_BEARER: Final = "agent.token"  # the file, in the folder of its host

# What a driver adds to what the kernel tells: majors of its own, and a minor for every instance.
_MAJORS: Final = ("195 nvidia", "508 nvidia-uvm", "509 nvidia-caps")
_FIRST_MINOR, _PER_GPU, _PER_INSTANCE = 3, 135, 9


@dataclass(frozen=True, kw_only=True)  # no slots: cached_property
class GpuNode:
    """A node, its GPUs, and the agent that serves them; the ports stay over a restart."""

    node: Node
    machine: Machine
    kubeconfig: Path
    port: int
    options: tuple[str, ...] = ()  # of the agent

    @cached_property
    def agent(self) -> Process:
        """The agent's program, which can be stopped and started again."""
        return self.program("agent")

    def program(self, name: str, *options: str) -> Process:
        """Return an agent that runs with further *options* and is not started yet."""
        command: list[str | Path] = [
            sys.executable,
            MANIFESTS.parent / "vgpu.py",
            "agent",
            f"--node-name={self.node.name}",
            f"--kubeconfig={self.kubeconfig}",
            f"--metrics=127.0.0.1:{self.port}",
            *self.options,
            *options,
        ]
        return self.node.host.process(name, command, **self.machine.environment)

    def renew_token(self) -> None:
        """Put a token that is good for this node only where the agent reads its own."""
        api = self.site.api
        *_, team, account = AGENT.split(":")
        tokens = f"/api/v1/namespaces/{team}/serviceaccounts/{account}/token"
        uid = api.get(f"{NODES}/{self.node.name}")["metadata"]["uid"]
        bound = {"kind": "Node", "apiVersion": "v1", "name": self.node.name, "uid": uid}
        spec = {"spec": {"expirationSeconds": 7200, "boundObjectRef": bound}}
        token = api.create(tokens, spec).body["status"]["token"]
        unfinished = self.node.host.folder / f"{_BEARER}.new"
        unfinished.write_text(token)
        unfinished.replace(self.node.host.folder / _BEARER)

    @property
    def site(self) -> Installation:
        return self.node.site

    @property
    def uuids(self) -> tuple[str, ...]:
        """Return the UUIDs of its GPUs by index."""
        found = self.machine.read()
        return tuple(found.gpus[index].uuid.decode() for index in range(found.gpu_count))

    def start(self) -> None:
        """Start the agent, for the first time or again, and return once kubelet has its slots."""
        self.agent.start(lambda: bool(http_get(self.port, "/healthz")), within=SERVES_WITHIN)
        self.wait_until_serving()

    def wait_until_serving(self) -> None:
        """Return once the agent is ready and kubelet has told of its slots."""
        wait_for(lambda: http_get(self.port, "/readyz"), within=SERVES_WITHIN)
        wait_for(lambda: self.node.allocatable(NUMBER) not in {"", "0"}, within=SERVES_WITHIN)

    def scrape(self) -> Scrape:
        """Return what the agent tells Prometheus now."""
        return Scrape(http_get(self.port, "/metrics"))

    def ledger(self) -> Ledger:
        """Return the promises of the node and what its agent says of them."""
        return parse_ledger(self.site.api.get(f"{GPU_NODES}/{self.node.name}"))

    def promised(self) -> frozenset[str]:
        """Return the uids of the pods that have a promise."""
        return frozenset(entry.uid for entry in self.ledger().entries)

    def instances(self) -> dict[str, tuple[str, int]]:
        """Return the MIG instances that exist: GPU and first slot by UUID."""
        found = self.machine.read()
        return {
            compute.uuid.decode(): (gpu.uuid.decode(), instance.start)
            for gpu in found.gpus[: found.gpu_count]
            for instance in gpu.instances
            if instance.used
            for compute in instance.computes
            if compute.used
        }

    def halves(self) -> list[tuple[str, int]]:
        """Return GPU and first slot of every GPU instance, with compute or without."""
        found = self.machine.read()
        return [
            (gpu.uuid.decode(), instance.start)
            for gpu in found.gpus[: found.gpu_count]
            for instance in gpu.instances
            if instance.used
        ]

    def reboot(self) -> None:
        """Restart the node with everything on it; its agent waits for the kubelet."""
        self.node.host.power_off()
        self.machine.reboot("rebooted")
        self.node.host.boot()
        self.node.runtime.start()
        self.agent.start(lambda: bool(http_get(self.port, "/healthz")), within=SERVES_WITHIN)
        self.node.start()
        self.wait_until_serving()


@contextlib.contextmanager
def served(node: Node, gpus: Sequence[bool] = GPUS, *options: str) -> Iterator[GpuNode]:
    """Give a node GPUs, which are in MIG mode or are not, and run the agent on it."""
    found = replace(gpus_on(node, gpus), options=options)
    found.start()
    try:
        yield found
    finally:
        found.agent.stop()


def gpus_on(node: Node, gpus: Sequence[bool] = GPUS) -> GpuNode:
    """Give a node GPUs, and an agent that is not started yet."""
    host = node.host
    machine = Machine(host.folder / "gpus", _gpus(node.name, gpus))
    _driver(host.folder, len(gpus))
    library = host.folder / str(SOURCE).lstrip("/")
    library.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(empty_library(), library)
    found = GpuNode(node=node, machine=machine, kubeconfig=_kubeconfig(node), port=free_port())
    found.renew_token()
    return found


def _gpus(name: str, gpus: Sequence[bool]) -> State:
    board = model(A100_40)
    chips = (
        simulated_device(board, node=name, index=index, mig=mig) for index, mig in enumerate(gpus)
    )
    return new_machine(chips, "first")


def _driver(folder: Path, count: int) -> None:
    """Tell of the driver what it tells itself, below /proc."""
    devices = folder / "proc/devices"
    before, block, after = devices.read_text().partition("\nBlock devices:")
    # In place: the machine shows this very file.
    devices.write_text("\n".join((before, *_MAJORS, block + after)))
    caps = folder / "proc/driver/nvidia-caps"
    caps.mkdir(parents=True, exist_ok=True)
    (caps / "mig-minors").write_text("config 1\nmonitor 2\n" + "".join(_minors(count)))


def _minors(count: int) -> Iterator[str]:
    for gpu in range(count):
        for instance in range(15):
            first = _FIRST_MINOR + _PER_GPU * gpu + _PER_INSTANCE * instance
            yield f"gpu{gpu}/gi{instance}/access {first}\n"
            for compute in range(8):
                yield f"gpu{gpu}/gi{instance}/ci{compute}/access {first + 1 + compute}\n"


def _kubeconfig(node: Node) -> Path:
    """Write a kubeconfig whose token is in a file beside it, which changes while the agent runs."""
    config: Json = json.loads(node.site.plane.kubeconfig.read_text())
    config["users"] = [{"name": "admin", "user": {"tokenFile": _BEARER}}]
    path = node.host.folder / "agent.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def log_lines(process: Process) -> list[Mapping[str, object]]:
    """Return what a program of ours has logged."""
    text = process.log.read_text(errors="replace")
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
