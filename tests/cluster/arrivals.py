"""Pods that arrive at a steady pace while something is done to their node's agent or relay.

Kubelet reports here as rarely as it does by default, so the scheduler learns late that no plugin
serves. Whoever is bound meanwhile ends for good, unless the node itself takes no bind.
"""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tests.builders.pods import CORES, MEMORY, NUMBER
from tests.cluster.api import Json, wait_for
from tests.cluster.kubelet import pods_of
from tests.cluster.node_agent import GpuNode
from tests.cluster.node_pods import looking, phase, soft
from tests.cluster.process import Process
from tests.cluster.site import MANIFESTS
from tests.cluster.volcano import http_get

PAUSE: Final = 0.5  # seconds between two pods that arrive
STUCK_SECONDS: Final = 120.0  # without the end of any pod, on a machine with other work
READY_WITHIN: Final = 60.0
RESTART_SECONDS: Final = 1.0  # in which kubelet notices that a container has died, and starts it
STOP_WITHIN: Final = 20.0  # the DaemonSet's grace period
FOLDER: Final = "--relay-dir=/run/vgpu-admission"
SMALL: Final = {NUMBER: 1, MEMORY: 200, CORES: 1}
FREQUENCIES: Final = ("nodeStatusUpdateFrequency", "nodeStatusReportFrequency")


@contextlib.contextmanager
def rare_reports(gpu_node: GpuNode) -> Iterator[None]:
    """Let the node's kubelet report with the frequency that it has by default, 10 s."""
    written = gpu_node.node.host.folder / "kubelet.json"
    before = written.read_text()
    config = {key: value for key, value in json.loads(before).items() if key not in FREQUENCIES}
    try:
        _reconfigure(gpu_node, written, json.dumps(config))
        yield
    finally:
        _reconfigure(gpu_node, written, before)


def _reconfigure(gpu_node: GpuNode, written: Path, config: str) -> None:
    gpu_node.node.kubelet.stop()
    written.write_text(config)
    gpu_node.node.start()
    gpu_node.wait_until_serving()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPod:
    """The two containers of the agent's pod on a node, as processes."""

    gpu_node: GpuNode
    agent: Process
    relay: Process

    def start(self) -> None:
        """Start both, as kubelet does, and return once the agent is ready."""
        self.relay.start(lambda: True, within=READY_WITHIN)
        self._start_agent()

    def roll_out(self) -> None:
        """Replace both as a DaemonSet does; return once the next agent is ready."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """Tell both to stop at the same time, as kubelet does, and return once they have."""
        with ThreadPoolExecutor() as pool:
            for _ in pool.map(lambda process: process.stop(STOP_WITHIN), (self.agent, self.relay)):
                pass

    def kill_agent(self) -> None:
        """Kill the agent, which kubelet starts again."""
        self.agent.kill()
        time.sleep(RESTART_SECONDS)
        self._start_agent()

    def kill_relay(self) -> None:
        """Kill the relay, which kubelet starts again."""
        self.relay.kill()
        time.sleep(RESTART_SECONDS)
        self.relay.start(lambda: True, within=READY_WITHIN)
        wait_for(lambda: http_get(self.gpu_node.port, "/readyz"), within=READY_WITHIN)

    def _start_agent(self) -> None:
        ready = lambda: bool(http_get(self.gpu_node.port, "/readyz"))  # noqa: E731
        self.agent.start(ready, within=READY_WITHIN)


@contextlib.contextmanager
def agent_pod(gpu_node: GpuNode) -> Iterator[AgentPod]:
    """Run agent and relay on a node, instead of its agent alone, as the DaemonSet does."""
    gpu_node.agent.stop(STOP_WITHIN)
    program: list[str | Path] = [
        *("setpriv", "--bounding-set=-all", "--inh-caps=-all"),  # as in its container
        *(sys.executable, MANIFESTS.parent / "vgpu.py", "relay", FOLDER),
        f"--node-name={gpu_node.node.name}",
        f"--kubeconfig={gpu_node.kubeconfig}",
    ]
    pod = AgentPod(
        gpu_node=gpu_node,
        agent=gpu_node.program("agent", FOLDER),
        relay=gpu_node.node.host.process("relay", program),
    )
    try:
        pod.start()
        with rare_reports(gpu_node):
            yield pod
    finally:
        pod.stop()
        gpu_node.start()


class Arrivals:
    """Pods that arrive one after another until the block is left; each ends by itself."""

    def __init__(self, gpu_node: GpuNode, team: str) -> None:
        self._gpu_node, self._team = gpu_node, team
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._arrive)
        self.count = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _arrive(self) -> None:
        brief = looking(limits=SMALL, then=("sleep", "1"))
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            found = soft(brief, name=f"p{self.count}", restartPolicy="Never")
            self._gpu_node.site.create(self._team, found)
            self.count += 1
            due += PAUSE

    def ended(self) -> list[Json]:
        """Return the pods once all have ended, or once none has for two minutes."""
        pods: dict[str, Json] = {}
        done, since = 0, time.monotonic()
        while time.monotonic() - since < STUCK_SECONDS:
            pods = pods_of(self._gpu_node.site, self._team)
            ended = sum(phase(pod) in {"Succeeded", "Failed"} for pod in pods.values())
            if ended == self.count:
                break
            if ended > done:
                done, since = ended, time.monotonic()
            time.sleep(1)
        return list(pods.values())


def lost(pods: list[Json]) -> list[str]:
    """Return what kubelet says of each pod that did not succeed."""
    return [
        f"{pod['metadata']['name']}: {phase(pod)}: {pod['status'].get('reason')}: "
        f"{pod['status'].get('message')}"
        for pod in pods
        if phase(pod) != "Succeeded"
    ]
