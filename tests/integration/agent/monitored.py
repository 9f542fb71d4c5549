"""A node under the monitor: simulated GPUs, real regions, a ``/proc`` of our own."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from agent.driver.driver import Device, Instance, Process
from agent.driver.driver_thread import DriverThread
from agent.driver.simulated_files import SimulatedDriver
from agent.driver.simulated_machine import SimulatedGpu, change_gpu, new_machine
from agent.monitor.inspection_thread import Inspector
from agent.monitor.monitor_controller import Monitor, MonitorServices
from agent.monitor.violation import LocalPod, ViolationKind
from agent.mps.plan import MpsProgress
from agent.node.process_files import Processes
from agent.region.repair import RepairKind
from agent.serve.node_events import NodeEvents
from agent.share import Share
from allocator.config.settings import Enforcement
from allocator.model.units import MiB
from kube.events import Event, Reference
from tests.fakes.hami_core import Tenant, bury, enrol
from tests.fakes.kube_clock import FakeClock
from tests.integration.agent.shares import GPU, ID, OTHER, UID, device, regions, share

POD: Final = LocalPod(
    uid=UID, namespace="team-a", name="train-0", containers=MappingProxyType({ID: "main"})
)

NODE: Final = Reference(api_version="v1", kind="Node", name="gpu-1", uid="n")


@dataclass(slots=True)
class MonitoredNode:
    """What the monitor is told, and what it does about it; fields are for a test to set."""

    root: Path
    promised: tuple[Share, ...] | None = (share(),)
    local_pods: Mapping[str, LocalPod] = field(default_factory=lambda: {UID: POD})
    enforced: Enforcement = Enforcement.REPORT
    broken: bool = False
    mps: Mapping[str, MpsProgress] = field(default_factory=dict)
    unpromised: Mapping[tuple[str, str], MiB] = field(default_factory=dict)
    clock: FakeClock = field(default_factory=FakeClock)
    events: list[Event] = field(default_factory=list)
    counted_violations: list[ViolationKind] = field(default_factory=list)
    counted_repairs: list[RepairKind] = field(default_factory=list)
    evictions: list[str] = field(default_factory=list)
    failures: int = 0
    ahead: float = 0.0  # seconds by which the agent's day is later than the programs'
    driver: SimulatedDriver = field(init=False)
    worker: DriverThread = field(init=False)
    monitor: Monitor = field(init=False)

    def __post_init__(self) -> None:
        gpus = [device(), device(OTHER, index=1)]
        self.driver = SimulatedDriver(new_machine(gpus, "boot-1"))
        self.worker = DriverThread(self.driver)
        clock = self.clock.clock()
        region_files = regions(self.root)
        self.monitor = Monitor(
            MonitorServices(
                node="gpu-1",
                worker=self.worker,
                source=self,
                inspector=Inspector(
                    region_files,
                    Processes(self.root),
                    now=lambda: time.time() + self.ahead,
                    ticks=clock.monotonic,
                ),
                regions=region_files,
                remove_unused=lambda: None,
                evictor=self,
                events=NodeEvents(lambda: NODE, self.events.append),
                counters=self,
                clock=clock,
            )
        )

    def run_cycle(self) -> None:
        """Let the monitor look once."""
        asyncio.run(self.monitor.run_cycle())

    def seed(self, of: Share) -> Path:
        """Return the file that *of*'s container finds."""
        return Path(asyncio.run(regions(self.root).seed(of))) / "vgpu.cache"

    def region(self, of: Share, *, seeded: bool) -> Path:
        """Return the file that *of*'s container finds, or where its library makes one."""
        found = self.seed(of)
        if not seeded:
            found.unlink()
        return found

    def enrol(self, tenant: Tenant, *, uid: str = UID) -> None:
        """Let the tenant's process be one of a container."""
        enrol(self.root / "proc", tenant.pid, uid=uid, container=ID)

    def use(self, tenant: Tenant, memory: int, *, gpu: str = GPU, percent: int = 40) -> None:
        """Let the driver see the tenant's process on a GPU, and no other there."""
        seen = Process(pid=tenant.pid, gpu=gpu, memory=MiB(memory), utilization=percent)
        self._set_processes(gpu, processes=(seen,))

    def kill(self, tenant: Tenant) -> None:
        """Let the tenant end without a chance to tidy up."""
        tenant.kill()
        bury(self.root / "proc", tenant.pid)
        self._set_processes(GPU, processes=())

    def lose(self, gpu: str, *, lost: bool = True) -> None:
        """Let a GPU stop answering, or answer again."""
        self.driver.change(lambda state: change_gpu(state, gpu, lambda g: replace(g, lost=lost)))

    def _set_processes(self, gpu: str, processes: tuple[Process, ...]) -> None:
        def with_processes(running: SimulatedGpu) -> SimulatedGpu:
            return replace(running, processes=processes)

        self.driver.change(lambda state: change_gpu(state, gpu, with_processes))

    def devices(self) -> tuple[Device, ...]:
        return device(), device(OTHER, index=1)

    def shares(self) -> tuple[Share, ...] | None:
        return self.promised

    def unpromised_memory(self) -> Mapping[tuple[str, str], MiB]:
        return self.unpromised

    def pods(self) -> Mapping[str, LocalPod]:
        return self.local_pods

    def instances(self) -> tuple[Instance, ...]:
        if self.broken:
            raise RuntimeError("as the test says")
        return ()

    def unhealthy_gpus(self) -> Mapping[str, str]:
        return {}

    def stuck_instances(self) -> Mapping[str, int]:
        return {}

    def mps_progress(self) -> Mapping[str, MpsProgress]:
        return self.mps

    def enforcement(self) -> Enforcement:
        return self.enforced

    async def evict(self, pod: LocalPod, why: str) -> None:
        self.evictions.append(f"{pod.name}: {why}")

    def count_violation(self, kind: ViolationKind) -> None:
        self.counted_violations.append(kind)

    def count_repair(self, kind: RepairKind) -> None:
        self.counted_repairs.append(kind)

    def count_eviction(self) -> None:
        """Be told that somebody was evicted, which ``evictions`` says already."""

    def count_failure(self) -> None:
        self.failures += 1
