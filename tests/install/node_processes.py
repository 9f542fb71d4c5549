"""Processes of a node: those of our components, to be killed, and those of pods on its GPUs.

The driver of the node is the simulated one. It knows of processes what its state file says, so a
test writes there what a driver would see.
"""

import os
import signal
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from agent.driver.driver import Process
from agent.driver.simulated_files import SimulatedDriver
from agent.driver.simulated_machine import SimulatedGpu, State, change_gpu
from agent.node.cgroup import pod_cgroup_of
from allocator.model.units import MiB
from tests.cluster.api import Json, wait_for
from tests.cluster.host import Host

STATE: Final = "var/lib/vgpu-admission/simulated.json"
COMPONENTS: Final = ("webhook", "agent", "relay", "console")
RESTARTED_WITHIN: Final = 120.0  # seconds; kubelet waits longer after each crash


def component_pids(host: Host, component: str) -> frozenset[int]:
    """Return the processes of one of our components by the numbers of the real machine."""
    return frozenset(pid for pid in host.pids() if _words(pid)[1:4] == ("-m", "vgpu", component))


def kill_components(host: Host, *components: str) -> None:
    """Kill all processes of *components* at once, and return when each has others."""
    killed = {name: component_pids(host, name) for name in components}
    for name, pids in killed.items():
        assert pids, f"no process of {name} runs"
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    for name, pids in killed.items():
        wait_for(
            lambda name=name, pids=pids: len(component_pids(host, name) - pids) >= len(pids),  # type: ignore[misc]
            within=RESTARTED_WITHIN,
        )


def _words(pid: int) -> tuple[str, ...]:
    """Return the command line of a process; empty where it has ended."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ()
    return tuple(text.split("\0"))


def use_gpu(host: Host, entry: Json, memory: int) -> None:
    """Let a process of the pod of *entry* hold *memory*, in MiB, on its only GPU."""
    (device,) = entry["containers"][0]["devices"]
    process = Process(pid=_pid_of(host, entry["pod"]["uid"]), gpu=device["gpu"], memory=MiB(memory))
    _put(host, device["gpu"], (process,))


def leave_gpu(host: Host, gpu: str) -> None:
    """Let nobody use a GPU, as when its processes have ended."""
    _put(host, gpu, ())


def _pid_of(host: Host, uid: str) -> int:
    """Return a process of a pod's workload by the number that it has on the node."""
    found = (pid for pid in host.pids() if _words(pid)[:1] == ("sleep",) and _in_pod(pid, uid))
    return host.number(next(found))


def _in_pod(pid: int, uid: str) -> bool:
    group = pod_cgroup_of(Path(f"/proc/{pid}/cgroup").read_text())
    return group is not None and group.uid == uid


def _put(host: Host, gpu: str, processes: Iterable[Process]) -> None:
    """Write into the state file who uses a GPU; the agent locks the same file."""
    file = host.folder / STATE
    machine = SimulatedDriver(_stored(file), file=file)

    def used(one: SimulatedGpu) -> SimulatedGpu:
        return replace(one, processes=tuple(processes))

    machine.change(lambda state: change_gpu(state, gpu, used))


def _stored(file: Path) -> State:
    found = msgspec.json.decode(file.read_bytes(), type=State)
    assert found.gpus
    return found
