"""Memory and CPU of one agent process on a full node.

Everything that the agent reads lies below one folder: 8 simulated GPUs, 64 running
containers with a process each in ``/proc`` and in their region, an API server with their pods and
promises, a kubelet. The agent is the program itself, in a process of its own.
"""

import asyncio
import json
import os
import struct
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from uuid import UUID

import yaml

from agent.node.process_files import Processes
from agent.region.layout import SEEDED
from agent.region.library_files import install_simulated
from agent.region.region_files import FILE, RegionFiles
from agent.share import Owner, Share
from allocator.catalog.injection import HOST_ROOT
from allocator.config.fleet_file import stable_uuid
from allocator.ledger.schema import spec_of
from tests.builders.gpunodes import entry
from tests.builders.model import soft_grant
from tests.fakes.api_objects import parsed
from tests.fakes.api_server import ApiServer
from tests.fakes.kubelet import Kubelet

NODE: Final = "n0"
GPUS: Final = 8
CONTAINERS: Final = 64
SETTLING: Final = 15.0  # seconds before anything counts: imports, first reads, registration
INNER: Final = 7  # every container's process under its own number
BOOT: Final = "0d1c0000-0000-4000-8000-000000000000"
SERIES: Final = "vGPU_device_memory_usage_in_bytes{"
LOG: Final = "agent.log"
_FLEET: Final = {"nodes": [{"name": NODE, "model": "NVIDIA A100-SXM4-40GB", "gpus": GPUS}]}
_MEBI: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The most resident memory in MB, and the share of one core in percent, over *seconds*.

    ``starts`` are the milliseconds that kubelet then waited for each container's PreStartContainer,
    with everything that belongs to it: the promise is looked up and noted down as held.
    """

    rss_mb: float
    cpu_pct: float
    seconds: float
    starts: tuple[float, ...] = ()


async def cost(seconds: float) -> Cost:
    """Run an agent for *seconds* after it has settled; raises RuntimeError if it does not live."""
    with TemporaryDirectory(prefix="vgpu-") as folder:
        root = Path(folder)
        await _furnish(root)
        async with ApiServer() as server, _kubelet(root) as kubelet:
            _store(server)
            async with _agent(root, server.url) as process:
                await asyncio.sleep(SETTLING)
                said = (root / LOG).read_text()
                if process.returncode is not None or not kubelet.allocatable:
                    raise RuntimeError(f"the agent did not register with kubelet: {said[-2000:]}")
                found = await asyncio.to_thread(_monitored_count, said)
                if found != CONTAINERS:
                    raise RuntimeError(
                        f"only {found} of {CONTAINERS} containers are monitored: {said}"
                    )
                spent = await _measure(process, seconds)
                return replace(spent, starts=await _start_times(kubelet))


def _monitored_count(log: str) -> int:
    """Return of how many containers the agent tells what their regions say they use."""
    lines = (json.loads(line) for line in log.splitlines() if line.startswith("{"))
    port = next(line["port"] for line in lines if line["event"] == "serving")
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    return sum(
        line.startswith(SERIES) and line.endswith(" 1.073741824e+09") for line in text.splitlines()
    )


async def _measure(process: asyncio.subprocess.Process, seconds: float) -> Cost:
    loop = asyncio.get_running_loop()
    began, before, most = loop.time(), _ticks(process.pid), 0
    while loop.time() - began < seconds:
        await asyncio.sleep(1)
        most = max(most, _resident_bytes(process.pid))
    lasted = loop.time() - began
    used = (_ticks(process.pid) - before) / os.sysconf("SC_CLK_TCK")
    return Cost(rss_mb=most / 1e6, cpu_pct=100 * used / lasted, seconds=lasted)


async def _start_times(kubelet: Kubelet) -> tuple[float, ...]:
    """Start every container once more, one after the other, as after a reboot."""
    waited = []
    for i in range(CONTAINERS):
        held = await kubelet.admit(_uid(i), _uid(i))
        began = time.perf_counter()
        await kubelet.prestart(held.slots)
        waited.append((time.perf_counter() - began) * 1e3)
    return tuple(waited)


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@asynccontextmanager
async def _kubelet(root: Path) -> AsyncIterator[Kubelet]:
    kubelet = Kubelet(root / "kubelet")
    await kubelet.start()
    try:
        yield kubelet
    finally:
        await kubelet.stop()


@asynccontextmanager
async def _agent(root: Path, url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    config = root / "kubeconfig"
    config.write_text(yaml.safe_dump(_kubeconfig(url)))
    fleet = root / "fleet.yaml"
    fleet.write_text(yaml.safe_dump(_FLEET))
    with (root / LOG).open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "vgpu", "agent", f"--node-name={NODE}", "--driver=simulated",
            f"--fleet={fleet}", f"--root={root}", f"--kubelet-dir={root / 'kubelet'}",
            "--metrics=127.0.0.1:0", f"--kubeconfig={config}", stderr=log,
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }


async def _furnish(root: Path) -> None:
    """Put on disk what a node with running containers has."""
    boot = root / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text(f"{BOOT}\n")
    folder = root / HOST_ROOT.lstrip("/")
    regions = RegionFiles(folder, Processes(root), library=install_simulated(folder))
    for i in range(CONTAINERS):
        region = await regions.seed(_share(i))
        _attach(Path(region) / FILE, i)
        _process(root / "proc" / str(_pid(i)), i)


def _uid(i: int) -> str:
    return str(UUID(int=i + 1))


def _pid(i: int) -> int:
    return 5_000_000 + i


def _gpu(i: int) -> str:
    return stable_uuid("GPU", f"{NODE}/{i % GPUS}")


def _share(i: int) -> Share:
    owner = Owner(uid=_uid(i), namespace="team-a", pod=_uid(i), containers=("main",))
    return Share(owner=owner, grants=(soft_grant(4000, 10, gpu=_gpu(i)),), key="c0")


def _attach(file: Path, i: int) -> None:
    """Write what the library writes of one process that holds 1 GiB on its first device."""
    slot = SEEDED.slot
    with file.open("r+b") as region:
        for at, form, value in (
            (SEEDED.slots, "<ii", (INNER, _pid(i))),
            (SEEDED.uuids, "<40s", (_gpu(i).encode(),)),
            (SEEDED.slots + slot.used + 32, "<Q", (1024 * _MEBI,)),
            (SEEDED.slots + slot.status, "<i", (1,)),
            (SEEDED.device_count, "<i", (1,)),
            (SEEDED.process_count, "<i", (1,)),
        ):
            region.seek(at)
            region.write(struct.pack(form, *value))


def _process(folder: Path, i: int) -> None:
    """Write what the kernel tells of a process in a pod's container."""
    folder.mkdir(parents=True)
    after = " ".join(["S", *["0"] * 18, "4711", *["0"] * 20])
    (folder / "stat").write_text(f"{folder.name} (train) {after}\n")
    (folder / "status").write_text(f"Name:\ttrain\nNSpid:\t{folder.name}\t{INNER}\n")
    (folder / "cgroup").write_text(f"0::/kubepods/burstable/pod{_uid(i)}/{i:064x}\n")
    (folder / "maps").write_text("")


def _store(server: ApiServer) -> None:
    """Put the node, its promises and its pods into the API server."""
    entries = [entry(_uid(i), *_share(i).grants) for i in range(CONTAINERS)]
    node = {
        "metadata": {"name": NODE, "labels": {"vgpu-admission.io/agent": ""}},
        "status": {
            "capacity": {},
            "allocatable": {},
            "nodeInfo": {"bootID": BOOT, "containerRuntimeVersion": "containerd://2.2.1"},
        },
    }
    gpu_node = {
        "apiVersion": "vgpu-admission.io/v1alpha1",
        "kind": "GPUNode",
        "metadata": {"name": NODE},
        "spec": spec_of(entries),
    }
    server.objects.create(parsed("/api/v1/nodes"), node)
    server.objects.create(parsed("/apis/vgpu-admission.io/v1alpha1/gpunodes"), gpu_node)
    for i in range(CONTAINERS):
        place = parsed(f"/api/v1/namespaces/team-a/pods/{_uid(i)}")
        server.objects.create(place, _pod(i))["metadata"]["uid"] = _uid(i)


def _pod(i: int) -> dict[str, Any]:
    path = "metadata.annotations['vgpu-admission.io/c0.visible']"
    visible = {
        "name": "NVIDIA_VISIBLE_DEVICES",
        "valueFrom": {"fieldRef": {"fieldPath": path}},
    }
    running = {
        "name": "main",
        "containerID": f"containerd://{i:064x}",
        "state": {"running": {"startedAt": "2026-11-21T17:00:00Z"}},
    }
    return {
        "metadata": {"name": _uid(i)},
        "spec": {"nodeName": NODE, "containers": [{"name": "main", "env": [visible]}]},
        "status": {"phase": "Running", "containerStatuses": [running]},
    }
