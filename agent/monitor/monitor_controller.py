"""The monitor: compares use with the ledger every two seconds, and reports or evicts.

A cycle queries the driver, one GPU at a time so that other calls do not wait long, then inspects
the regions in a thread, and reports the result. A failure affects only its own cycle.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Final, Never, Protocol

import structlog

from agent.driver.driver import Device, Driver, DriverError, Fault, Instance, Process, Usage
from agent.driver.driver_thread import DriverThread
from agent.monitor.drift import HardwareDrift, LastingDrift, drifts
from agent.monitor.inspection_thread import InspectedNode, InspectionResult, Inspector
from agent.monitor.measurement import measure_shares
from agent.monitor.repair_thread import RegionRepair
from agent.monitor.samples import MonitorSnapshot
from agent.monitor.violation import (
    OF_REGIONS,
    LocalPod,
    ObservedUse,
    Violation,
    ViolationChanges,
    ViolationKind,
    evicts,
    foreign_memory,
    reached_devices,
    unique_violations,
    violation_changes,
    violations,
)
from agent.mps.plan import MpsProgress
from agent.region.region_files import RegionFiles, limits_of
from agent.region.repair import RepairKind
from agent.share import Share
from allocator.config.settings import Enforcement
from allocator.model.units import MiB
from kube.clock import SYSTEM, Clock

# Seconds between two cycles, so that a violation is seen less than two seconds after it began.
INTERVAL: Final = 1.8
CONFIRM_INTERVAL: Final = 0.4  # seconds to the cycle that confirms a violation before an eviction
GPU_TIMEOUT: Final = 5.0  # seconds that the driver has to answer for one GPU
EVICTION_INTERVAL: Final = 10.0  # seconds between attempts to evict one pod
EVICTION_TIMEOUT: Final = 1.0  # seconds that a cycle waits for the API server
# Seconds for which further repairs of one kind in a container are only counted: a tenant can break
# its region at every look.
REPAIR_INTERVAL: Final = 600.0
SWEEP_INTERVAL: Final = 30.0  # seconds between searches for regions of ended pods
log = structlog.get_logger(__name__)


class MonitorSource(Protocol):
    """What the agent knows of this node; ``None`` means not known yet."""

    def devices(self) -> tuple[Device, ...] | None:
        """Return the GPUs that are served."""

    def shares(self) -> tuple[Share, ...] | None:
        """Return what the ledger promises on this node, by container."""

    def unpromised_memory(self) -> Mapping[tuple[str, str], MiB]:
        """Return what the status says is used without an entry, by pod uid and GPU."""

    def pods(self) -> Mapping[str, LocalPod]:
        """Return the pods that are bound here, by uid."""

    def instances(self) -> tuple[Instance, ...] | None:
        """Return the MIG instances that exist."""

    def unhealthy_gpus(self) -> Mapping[str, str]:
        """Return why GPUs accept no new pods, by UUID."""

    def stuck_instances(self) -> Mapping[str, int]:
        """Return how many MIG instances could not be created or removed, by GPU."""

    def mps_progress(self) -> Mapping[str, MpsProgress]:
        """Return how far the GPUs in mode mps are, by UUID."""

    def enforcement(self) -> Enforcement:
        """Return what the settings demand on violations."""


class PodEvictor(Protocol):
    """Evicts pods."""

    async def evict(self, pod: LocalPod, why: str) -> None:
        """Request the eviction of exactly this pod; a refusal is logged."""


class MonitorEvents(Protocol):
    """Writes Events for users and operators; must neither wait nor raise."""

    def record_violation(self, violation: Violation) -> None:
        """Report a violation that began."""

    def record_repair(self, repair: RegionRepair) -> None:
        """Report that a region was repaired."""

    def record_drift(self, drift: HardwareDrift) -> None:
        """Report a difference that has lasted."""


class MonitorCounters(Protocol):
    """Counts for metrics."""

    def count_violation(self, kind: ViolationKind) -> None:
        """Count a violation that began."""

    def count_repair(self, kind: RepairKind) -> None:
        """Count a repair of a region."""

    def count_eviction(self) -> None:
        """Count a pod whose eviction was requested."""

    def count_failure(self) -> None:
        """Count a monitoring cycle that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorServices:
    """What a monitor works with."""

    node: str  # name of our Node
    worker: DriverThread
    source: MonitorSource
    inspector: Inspector
    regions: RegionFiles
    remove_unused: Callable[[], object]  # called while no entry uses the library
    evictor: PodEvictor
    events: MonitorEvents
    counters: MonitorCounters
    clock: Clock = SYSTEM


@dataclass(frozen=True, slots=True, kw_only=True)
class _DriverView:
    """Processes and usage, by those GPUs for which the driver answered."""

    processes: Mapping[str, tuple[Process, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    usage: Mapping[str, Usage] = field(default_factory=lambda: MappingProxyType({}))


class Monitor:
    """Replaces ``snapshot`` in every cycle, and reports and evicts by it."""

    def __init__(self, services: MonitorServices) -> None:
        """Know nothing yet."""
        self._services = services
        self._ongoing: tuple[Violation, ...] = ()
        self._lasting_drift = LastingDrift()
        self._eviction_requested_at: dict[str, float] = {}
        self._repairs_told_at: dict[tuple[RepairKind, str, str], float] = {}
        self._swept_at: float | None = None
        self.snapshot: MonitorSnapshot | None = None
        self.on_snapshot: Callable[[], None] = lambda: None
        self.on_observed: Callable[[ObservedUse], None] = _ignore

    @property
    def foreign(self) -> Mapping[str, MiB]:
        """Return the memory held without an entry, by the GPUs for which the driver answered."""
        snapshot = self.snapshot
        return {} if snapshot is None or snapshot.foreign is None else snapshot.foreign

    async def run(self) -> Never:
        """Run cycles for ever; the interval includes the time that a cycle takes."""
        clock = self._services.clock
        while True:
            began = clock.monotonic()
            try:
                unconfirmed = await self.run_cycle()
            except Exception:
                # Content that a tenant wrote must never end the agent, which serves all others.
                log.exception("monitor cycle failed")
                self._services.counters.count_failure()
                unconfirmed = False
            pause = (
                CONFIRM_INTERVAL
                if unconfirmed
                else max(CONFIRM_INTERVAL, INTERVAL - (clock.monotonic() - began))
            )
            await clock.sleep(pause)

    async def run_cycle(self) -> bool:
        """Run one cycle; say whether a violation that may evict began and awaits confirmation."""
        source = self._services.source
        devices, shares = source.devices(), source.shares()
        if devices is None or shares is None:
            self.snapshot = None
            return False
        host = await self._driver_view(devices)
        node = InspectedNode(
            devices=devices,
            shares=shares,
            pods=source.pods(),
            answered=frozenset(host.processes),
        )
        inspection_result = await asyncio.to_thread(
            self._services.inspector.inspect, [*chain.from_iterable(host.processes.values())], node
        )
        observed = self._observed_use(node, inspection_result)
        self.snapshot = self._take_snapshot(
            observed, node, host, inspection_result=inspection_result
        )
        self.on_snapshot()
        self.on_observed(observed)
        self._report_drift(self.snapshot.drifts)
        self._report_repairs(inspection_result.repairs)
        unconfirmed = await self._report_violations(self.snapshot.violations, host.processes.keys())
        await self._sweep(shares, {uid for uid, _ in observed.unpromised})
        return unconfirmed

    def _observed_use(
        self, node: InspectedNode, inspection_result: InspectionResult
    ) -> ObservedUse:
        """Return what is in use; servers of MPS are the agent's, and nobody is blamed for them."""
        source, located = self._services.source, inspection_result.processes
        servers = {pid for each in source.mps_progress().values() for pid in each.servers}
        return ObservedUse(
            processes=tuple(each for each in located if each.process.pid not in servers),
            reserved=tuple(each.process for each in located if each.process.pid in servers),
            shares=node.shares,
            pods=node.pods,
            instances=source.instances(),
            unpromised=source.unpromised_memory(),
            counted=inspection_result.counted,
        )

    async def release(self) -> None:
        """Release held-back containers, because nothing else would until the next agent runs."""
        source = self._services.source
        devices, shares = source.devices(), source.shares()
        if devices is not None and shares is not None:
            node = InspectedNode(devices=devices, shares=shares, pods=source.pods())
            await asyncio.to_thread(self._services.inspector.release, node)

    async def _driver_view(self, devices: Sequence[Device]) -> _DriverView:
        processes: dict[str, tuple[Process, ...]] = {}
        usage: dict[str, Usage] = {}
        worker = self._services.worker
        # A call would only wait behind one that hangs.
        for device in devices if worker.hung_call is None else ():
            try:
                answer = await worker.call(
                    _processes_and_usage, worker.driver, device.uuid, within=GPU_TIMEOUT
                )
                processes[device.uuid], usage[device.uuid] = answer
            except DriverError as error:
                log.debug("GPU not read", gpu=device.uuid, why=str(error))
                if error.fault is Fault.UNAVAILABLE:  # no GPU will answer
                    break
        return _DriverView(processes=processes, usage=usage)

    def _take_snapshot(
        self,
        observed: ObservedUse,
        node: InspectedNode,
        driver_view: _DriverView,
        *,
        inspection_result: InspectionResult,
    ) -> MonitorSnapshot:
        source, answered = self._services.source, driver_view.processes.keys()
        # A violation lasts while the driver does not answer for its GPU.
        unconfirmed = (
            v for v in self._ongoing if v.gpu not in answered and v.kind not in OF_REGIONS
        )
        ongoing = unique_violations(
            (*violations(observed), *unconfirmed, *inspection_result.violations)
        )
        return MonitorSnapshot(
            node=self._services.node,
            now=self._services.clock.wall().timestamp(),
            devices=node.devices,
            shares=node.shares,
            instances=tuple(observed.instances or ()),
            usage=driver_view.usage,
            foreign=foreign_memory(observed, answered),
            reached=self._reached(observed, answered),
            unhealthy=source.unhealthy_gpus(),
            stuck=source.stuck_instances(),
            measured=measure_shares(observed, inspection_result.counts, answered=answered),
            violations=ongoing,
            drifts=(*drifts(observed, ongoing), *self._silent_gpu_drifts(answered)),
            held_back=inspection_result.held_back,
            faults=inspection_result.faults,
            mps_clients={gpu: each.clients for gpu, each in source.mps_progress().items()},
        )

    def _silent_gpu_drifts(self, answered: Collection[str]) -> tuple[HardwareDrift, ...]:
        """Return the last known foreign use of GPUs that did not answer in this cycle."""
        before = () if self.snapshot is None else self.snapshot.drifts
        return tuple(d for d in before if d.pod is None and d.gpu not in answered)

    def _reached(
        self, observed: ObservedUse, answered: Collection[str]
    ) -> dict[str, frozenset[str]]:
        """Return what pods without a share use; as before while a GPU does not answer."""
        if self.snapshot and any(d.uuid not in answered for d in self.snapshot.devices):
            return dict(self.snapshot.reached)
        return reached_devices(observed)

    def _report_drift(self, hardware_drifts: Sequence[HardwareDrift]) -> None:
        """Report each difference once, when it has lasted."""
        self._lasting_drift, to_report = self._lasting_drift.advance(
            hardware_drifts, self._services.clock.monotonic()
        )
        for drift in to_report:
            self._services.events.record_drift(drift)
            log.warning("drift found", gpu=drift.gpu, what=drift.what)

    def _report_repairs(self, region_repairs: Sequence[RegionRepair]) -> None:
        """Count every repair, and tell one of each kind and container at intervals."""
        now = self._services.clock.monotonic()
        self._repairs_told_at = {
            key: at for key, at in self._repairs_told_at.items() if now - at < REPAIR_INTERVAL
        }
        for repair in region_repairs:
            self._services.counters.count_repair(repair.kind)
            key = repair.kind, repair.owner.uid, repair.owner.container
            # That the file itself was put back is told as a violation.
            if repair.kind is not RepairKind.FILE and key not in self._repairs_told_at:
                self._repairs_told_at[key] = now
                self._services.events.record_repair(repair)
                who = f"{repair.owner.namespace}/{repair.owner.pod}"
                log.warning("region repaired", kind=str(repair.kind), pod=who)

    async def _report_violations(
        self, ongoing: Sequence[Violation], answered: Collection[str]
    ) -> bool:
        """Report new violations and evict for confirmed ones; say whether a new one may evict."""
        services = self._services
        enforcement = services.source.enforcement()
        changes: ViolationChanges = violation_changes(self._ongoing, ongoing, enforcement)
        self._ongoing = tuple(ongoing)
        for violation in changes.begun:
            services.counters.count_violation(violation.kind)
            services.events.record_violation(violation)
            log.warning("isolation violation", kind=str(violation.kind), **_log_fields(violation))
        await asyncio.gather(*(self._evict(v) for v in changes.to_evict if v.gpu in answered))
        self._eviction_requested_at = {
            v.pod.uid: self._eviction_requested_at[v.pod.uid]
            for v in ongoing
            if v.pod.uid in self._eviction_requested_at
        }
        return enforcement is Enforcement.EVICT and any(map(evicts, changes.begun))

    async def _evict(self, violation: Violation) -> None:
        pod, now = violation.pod, self._services.clock.monotonic()
        requested_at = self._eviction_requested_at.get(pod.uid)
        if requested_at is None or now - requested_at >= EVICTION_INTERVAL:
            self._eviction_requested_at[pod.uid] = now
            self._services.counters.count_eviction()
            with suppress(TimeoutError):  # requested again if the pod stays
                async with asyncio.timeout(EVICTION_TIMEOUT):
                    await self._services.evictor.evict(pod, violation.note)

    async def _sweep(self, shares: Sequence[Share], unpromised: Collection[str]) -> None:
        """Remove, at intervals, the regions of ended pods, and unused libraries."""
        now = self._services.clock.monotonic()
        if self._swept_at is not None and now - self._swept_at < SWEEP_INTERVAL:
            return
        self._swept_at = now
        live = frozenset(share.owner.uid for share in shares).union(unpromised)
        for name in await asyncio.to_thread(self._services.regions.collect, live):
            log.info("region removed", name=name)
        if not any(map(limits_of, shares)):
            await asyncio.to_thread(self._services.remove_unused)


def _ignore(_observed: ObservedUse) -> None:
    """Do nothing with what was observed."""


def _processes_and_usage(driver: Driver, gpu: str) -> tuple[tuple[Process, ...], Usage]:
    """Return the processes and the usage of a GPU in one call of the driver thread."""
    return driver.processes(gpu), driver.usage(gpu)


def _log_fields(violation: Violation) -> dict[str, str]:
    who = f"{violation.pod.namespace}/{violation.pod.name}"
    return {"pod": who, "container": violation.container, "note": violation.note}
