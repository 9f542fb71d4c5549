"""The monitor: compares use with the ledger every two seconds, and reports or evicts.

A cycle asks the driver, one GPU at a time so that other calls do not wait long; reads the regions,
in a thread; and reports the result. What fails is left out of that cycle only.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Never, Protocol

import structlog

from agent.driver.driver import Device, Driver, DriverError, Fault, Instance, Process, Usage
from agent.driver.driver_thread import DriverThread
from agent.monitor.drift import HardwareDrift, LastingDrift, drifts
from agent.monitor.inspection_thread import InspectedNode, InspectionResult, Inspector
from agent.monitor.measurement import measure_shares
from agent.monitor.samples import MonitorSnapshot
from agent.monitor.violation import (
    LocalPod,
    ObservedUse,
    Violation,
    ViolationChanges,
    ViolationKind,
    change,
    evicts,
    foreign,
    unique_violations,
    violations,
)
from agent.region.region_files import RegionFiles, limits_of
from agent.share import Share
from allocator.config.settings import Enforcement
from allocator.model.units import MiB
from kube.clock import SYSTEM, Clock

EVERY: Final = 1.8  # seconds from look to look: what one finds was never there for two seconds
SOON: Final = 0.4  # seconds to the look that confirms a violation before its pod is evicted
PATIENCE: Final = 5.0  # seconds that the driver has to tell of one GPU
AGAIN: Final = 10.0  # seconds between attempts to evict one pod
EVICTING: Final = 1.0  # seconds that a look waits for the API server
SWEEP: Final = 30.0  # seconds between searches for regions of pods that are over
log = structlog.get_logger(__name__)


class MonitorSource(Protocol):
    """What others know of this node; ``None`` is not known yet."""

    def devices(self) -> tuple[Device, ...] | None:
        """Return the GPUs that are served."""

    def shares(self) -> tuple[Share, ...] | None:
        """Return what the ledger promises here, container by container."""

    def unpromised_gpus(self) -> frozenset[tuple[str, str]]:
        """Return the uids of pods with each GPU that the status says they use without an entry."""

    def pods(self) -> Mapping[str, LocalPod]:
        """Return the pods that are bound here, by uid."""

    def instances(self) -> tuple[Instance, ...] | None:
        """Return the MIG instances that exist."""

    def unhealthy_gpus(self) -> Mapping[str, str]:
        """Return why GPUs must not be promised, by UUID."""

    def stuck_instances(self) -> Mapping[str, int]:
        """Return how many MIG instances could not be made or removed, by the GPU's UUID."""

    def enforcement(self) -> Enforcement:
        """Return what a site wants done about violations."""


class PodEvictor(Protocol):
    """Who removes pods."""

    async def evict(self, pod: LocalPod, why: str) -> None:
        """Ask for the eviction of exactly this pod; what stands against it is logged."""


class MonitorEvents(Protocol):
    """Who tells users and operators; must neither wait nor raise."""

    def record_violation(self, violation: Violation) -> None:
        """Tell of a violation that began."""

    def record_drift(self, drift: HardwareDrift) -> None:
        """Tell of a difference that has lasted."""


class MonitorCounters(Protocol):
    """Who counts, for metrics."""

    def count_violation(self, kind: ViolationKind) -> None:
        """Count a violation that began."""

    def count_eviction(self) -> None:
        """Count a pod whose eviction was asked for."""

    def count_failure(self) -> None:
        """Count a monitoring cycle that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorServices:
    """What a monitor works with; *node* is our Node's name.

    *unused* is called now and then while no container has an entry that uses the library.
    """

    node: str
    worker: DriverThread
    around: MonitorSource
    inspector: Inspector
    regions: RegionFiles
    unused: Callable[[], object]
    evictor: PodEvictor
    news: MonitorEvents
    tally: MonitorCounters
    clock: Clock = SYSTEM


@dataclass(frozen=True, slots=True, kw_only=True)
class _Host:
    """The driver's view: processes and usage of those GPUs of which it told."""

    processes: Mapping[str, tuple[Process, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    usage: Mapping[str, Usage] = field(default_factory=lambda: MappingProxyType({}))


class Monitor:
    """Keeps ``figures``, which is replaced and never edited, and acts by them."""

    def __init__(self, means: MonitorServices) -> None:
        """Know nothing yet."""
        self._means = means
        self._standing: tuple[Violation, ...] = ()
        self._course = LastingDrift()
        self._asked: dict[str, float] = {}
        self._swept: float | None = None
        self.figures: MonitorSnapshot | None = None
        self.told: Callable[[], None] = lambda: None

    @property
    def foreign(self) -> Mapping[str, MiB]:
        """Return the memory that nobody was promised and somebody holds, by GPU; may be partial."""
        figures = self.figures
        return {} if figures is None or figures.foreign is None else figures.foreign

    async def run(self) -> Never:
        """Look again and again; how long a look takes is part of the time between two."""
        clock = self._means.clock
        while True:
            began = clock.monotonic()
            try:
                unconfirmed = await self.look()
            except Exception:
                # What a tenant wrote must never end the agent, which serves all others.
                log.exception("monitor cycle failed")
                self._means.tally.count_failure()
                unconfirmed = False
            pause = SOON if unconfirmed else max(SOON, EVERY - (clock.monotonic() - began))
            await clock.sleep(pause)

    async def look(self) -> bool:
        """Look once; say whether somebody is to be evicted if the next look finds the same."""
        around = self._means.around
        devices, shares = around.devices(), around.shares()
        if devices is None or shares is None:
            self.figures = None
            return False
        site = InspectedNode(devices=devices, shares=shares, pods=around.pods())
        host = await self._host(devices)
        seen = [process for found in host.processes.values() for process in found]
        inspection_result = await asyncio.to_thread(self._means.inspector.inspect, seen, site)
        picture = ObservedUse(
            seen=inspection_result.seen,
            shares=shares,
            pods=site.pods,
            instances=around.instances(),
            unpromised=around.unpromised_gpus(),
        )
        self.figures = self._figures(picture, site, host, inspection_result=inspection_result)
        self.told()
        self._follow(self.figures.drifts)
        unconfirmed = await self._follow_up(self.figures.violations, host.processes.keys())
        await self._sweep(shares, {uid for uid, _ in picture.unpromised})
        return unconfirmed

    async def release(self) -> None:
        """Release the containers that are held back, because nothing would until the next agent."""
        around = self._means.around
        devices, shares = around.devices(), around.shares()
        if devices is not None and shares is not None:
            site = InspectedNode(devices=devices, shares=shares, pods=around.pods())
            await asyncio.to_thread(self._means.inspector.release, site)

    async def _host(self, devices: Sequence[Device]) -> _Host:
        processes: dict[str, tuple[Process, ...]] = {}
        usage: dict[str, Usage] = {}
        worker = self._means.worker
        for device in devices if worker.hung_call is None else ():  # who would only wait behind it
            try:
                found = await worker.call(
                    _processes_and_usage, worker.driver, device.uuid, within=PATIENCE
                )
                processes[device.uuid], usage[device.uuid] = found
            except DriverError as error:
                log.debug("GPU not read", gpu=device.uuid, why=str(error))
                if error.fault is Fault.UNAVAILABLE:  # nor will it tell of the others
                    break
        return _Host(processes=processes, usage=usage)

    def _figures(
        self,
        picture: ObservedUse,
        site: InspectedNode,
        host: _Host,
        *,
        inspection_result: InspectionResult,
    ) -> MonitorSnapshot:
        around, answered = self._means.around, host.processes.keys()
        # What a driver that is silent for a moment does not confirm is not over.
        held = (
            v
            for v in self._standing
            if v.gpu not in answered and v.kind is not ViolationKind.LIMITS
        )
        wrong = unique_violations((*violations(picture), *held, *inspection_result.violations))
        return MonitorSnapshot(
            node=self._means.node,
            now=self._means.clock.wall().timestamp(),
            devices=site.devices,
            shares=site.shares,
            instances=tuple(picture.instances or ()),
            usage=host.usage,
            foreign=foreign(picture, answered),
            sick=around.unhealthy_gpus(),
            stuck=around.stuck_instances(),
            measured=measure_shares(picture, inspection_result.counts, answered=answered),
            violations=wrong,
            drifts=(*drifts(picture, wrong), *self._silent_gpu_drifts(answered)),
            held_back=inspection_result.held_back,
            faults=inspection_result.faults,
        )

    def _silent_gpu_drifts(self, answered: Collection[str]) -> tuple[HardwareDrift, ...]:
        """Return the last known foreign use of GPUs that did not answer in this cycle."""
        before = () if self.figures is None else self.figures.drifts
        return tuple(d for d in before if d.pod is None and d.gpu not in answered)

    def _follow(self, hardware_drifts: Sequence[HardwareDrift]) -> None:
        """Tell once of each difference that has lasted."""
        self._course, due = self._course.advance(hardware_drifts, self._means.clock.monotonic())
        for drift in due:
            self._means.news.record_drift(drift)
            log.warning("drift found", gpu=drift.gpu, what=drift.what)

    async def _follow_up(self, now: Sequence[Violation], answered: Collection[str]) -> bool:
        """Tell what began and evict what is confirmed; say whether what began may evict."""
        means = self._means
        enforcement = means.around.enforcement()
        violation_changes: ViolationChanges = change(self._standing, now, enforcement)
        self._standing = tuple(now)
        for violation in violation_changes.begun:
            means.tally.count_violation(violation.kind)
            means.news.record_violation(violation)
            log.warning("isolation violation", kind=str(violation.kind), **_log_fields(violation))
        await asyncio.gather(*(self._evict(v) for v in violation_changes.due if v.gpu in answered))
        self._asked = {v.pod.uid: self._asked[v.pod.uid] for v in now if v.pod.uid in self._asked}
        return enforcement is Enforcement.EVICT and any(map(evicts, violation_changes.begun))

    async def _evict(self, violation: Violation) -> None:
        pod, now = violation.pod, self._means.clock.monotonic()
        asked = self._asked.get(pod.uid)
        if asked is None or now - asked >= AGAIN:
            self._asked[pod.uid] = now
            self._means.tally.count_eviction()
            with suppress(TimeoutError):  # it is asked for again if the pod stays
                async with asyncio.timeout(EVICTING):
                    await self._means.evictor.evict(pod, violation.note)

    async def _sweep(self, shares: Sequence[Share], unpromised: Collection[str]) -> None:
        """Remove now and then what pods that are over left behind."""
        now = self._means.clock.monotonic()
        if self._swept is not None and now - self._swept < SWEEP:
            return
        self._swept = now
        live = frozenset(share.owner.uid for share in shares).union(unpromised)
        for name in await asyncio.to_thread(self._means.regions.collect, live):
            log.info("region removed", name=name)
        if not any(map(limits_of, shares)):
            await asyncio.to_thread(self._means.unused)


def _processes_and_usage(driver: Driver, gpu: str) -> tuple[tuple[Process, ...], Usage]:
    """Return what runs on a GPU and what is used of it: two answers for one turn of the driver."""
    return driver.processes(gpu), driver.usage(gpu)


def _log_fields(violation: Violation) -> dict[str, str]:
    who = f"{violation.pod.namespace}/{violation.pod.name}"
    return {"pod": who, "container": violation.container, "note": violation.note}
