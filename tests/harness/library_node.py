"""A node whose containers run the real interception library on GPUs that the tests play.

The library is installed, regions are seeded and edits are made by the agent's code. Containers are
namespaces; the driver's view of them is that of the stand-ins for NVML and CUDA.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from agent.deviceplugin.container_edits import ContainerEdits, HostMount, hami_core_edits
from agent.driver.driver import Device, Process
from agent.monitor.inspection_thread import InspectedNode, InspectionResult, Inspector
from agent.monitor.violation import LocalPod
from agent.node.process_files import Processes
from agent.region.library_files import Installed, install
from agent.region.region_files import FILE, RegionFiles
from agent.share import Share
from allocator.model.units import MiB
from tests.builders.model import soft_grant
from tests.fakes.cuda.driver import CudaDriver
from tests.fakes.driver import A100, machine
from tests.fakes.hami_core import bury, enrol
from tests.fakes.nvml.machine import Machine
from tests.harness.container import PLAIN, Container, Image, container, sandbox
from tests.harness.cuda_program import CudaProgram
from tests.integration.agent import shares

MIB: Final = 1024**2
GIB: Final = 1024**3
BOARD: Final = 40 * GIB  # bytes of each GPU


class LibraryNode:
    """A node with *gpus* GPUs in *folder*, whose agent has installed *library*."""

    def __init__(self, folder: Path, library: Path, *, gpus: int = 1) -> None:
        folder.chmod(0o755)  # containers run as any user
        (folder / "driver").mkdir()
        (folder / "proc").mkdir()
        self.folder = folder
        state = machine(*[A100] * gpus, mig=False)
        self.machine = Machine(folder / "driver/machine", state)
        self.machine.path.chmod(0o666)
        self.driver = CudaDriver(self.machine)
        self.devices: tuple[Device, ...] = tuple(gpu.chip for gpu in state.gpus)
        self.uuids = tuple(device.uuid for device in self.devices)
        self.host_root = folder / "usr/local/vgpu"
        installed = install(self.host_root, library)
        assert isinstance(installed, Installed), installed
        self.processes = Processes(folder)
        self.regions = RegionFiles(self.host_root, self.processes, library=installed)
        self.ahead = 0.0  # seconds by which the agent's day is later than the programs'
        self.percent = 40  # of compute that each process is said to use
        self.inspector = Inspector(
            self.regions, self.processes, now=lambda: time.time() + self.ahead
        )
        self._started = 0

    def share(self, *memory: int, cores: int = 30) -> Share:
        """Return a share of so many MiB on the first GPU, on the second and so on."""
        grants = [
            soft_grant(amount, cores, gpu=gpu)
            for amount, gpu in zip(memory, self.uuids, strict=False)
        ]
        return shares.share(*grants)

    def edits(self, share: Share) -> ContainerEdits:
        """Seed the region of a container, and return what the container receives by CDI."""
        region = asyncio.run(self.regions.seed(share, by_cdi=True))
        return hami_core_edits(share, library=str(self.host_root), region=region)

    def region(self, share: Share) -> Path:
        """Return the file of a container's region."""
        owner = share.owner
        return self.host_root / "vgpu/containers" / f"{owner.uid}_{owner.container}" / FILE

    @contextmanager
    def container(
        self,
        share: Share,
        *,
        image: Image = PLAIN,
        volumes: Sequence[HostMount] = (),
        env: Mapping[str, str] | None = None,
    ) -> Iterator[Container]:
        """Run a container of *share*, with its pod's own *volumes*.

        Its environment is what the agent gives it, changed by *env*.
        """
        self._started += 1
        with sandbox(image) as pid:
            self._enrol(pid, share, inner=1)
            edits = self.edits(share)
            with container(
                self.folder / f"container-{self._started}",
                self.folder / "driver",
                mounts=(*volumes, *edits.mounts),
                env={**dict(edits.env), **(env or {})},
                image=image,
            ) as made:
                yield made
            bury(self.folder / "proc", pid)

    def enrol(self, program: CudaProgram, share: Share) -> None:
        """Let the agent know a program's process as one of its pod's container."""
        self._enrol(program.pid, share, inner=int(program.tell("pid")))

    def _enrol(self, pid: int, share: Share, *, inner: int) -> None:
        uid = share.owner.uid
        enrol(self.folder / "proc", pid, uid=uid, container=shares.ID, inner=inner)

    def bury(self, program: CudaProgram) -> None:
        """Kill a program that was enrolled."""
        pid = program.pid
        program.kill()
        bury(self.folder / "proc", pid)

    def inspect(self, *of: Share) -> InspectionResult:
        """Let the agent look at the node, on which *of* have entries, as it does all the time."""
        pods = {
            each.owner.uid: LocalPod(
                uid=each.owner.uid,
                namespace=each.owner.namespace,
                name=each.owner.pod,
                containers={shares.ID: each.owner.container},
            )
            for each in of
        }
        node = InspectedNode(
            devices=self.devices, shares=of, pods=pods, answered=frozenset(self.uuids)
        )
        return self.inspector.inspect(self.seen(), node)

    def seen(self) -> tuple[Process, ...]:
        """Return the processes on GPUs as the driver sees them."""
        return tuple(
            Process(pid=pid, gpu=gpu, memory=MiB(held // MIB), utilization=self.percent)
            for gpu in self.uuids
            for pid, held in sorted(self.driver.held(gpu).items())
        )
