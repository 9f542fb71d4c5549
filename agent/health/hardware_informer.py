"""Polls the GPUs and their health, and keeps them as one value.

GPUs stay listed when the driver stops answering or no longer lists them. They are reported as
unhealthy, because containers may still use them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Never, Protocol

import structlog

from agent.driver.driver import Device, DriverError, DriverEvent, Fault
from agent.driver.driver_thread import DriverThread, HungCall
from agent.health.health import (
    DEFAULT_POLICY,
    NO_CONDITIONS,
    Conditions,
    HealthObservation,
    HealthPolicy,
    next_conditions,
)
from agent.mig.instance_state import LiveInstance
from agent.node.status import Hardware, RealisedInstance
from allocator.model.units import MiB
from kube.clock import SYSTEM, Clock

INTERVAL: Final = 5.0  # seconds between polls
LIST_TIMEOUT: Final = 30.0  # seconds for the driver to list its GPUs
PROBE_TIMEOUT: Final = 10.0  # seconds for any other answer
_UNKNOWN_PROFILE: Final = "it has a MIG instance whose profile the driver does not list"
log = structlog.get_logger(__name__)


class InstanceSource(Protocol):
    """The MIG instances of the node."""

    def live_instances(self) -> tuple[LiveInstance, ...]:
        """Return all that exist."""

    def watch_mig_gpus(self, devices: Iterable[Device]) -> None:
        """Watch those GPUs that are in MIG mode."""


class MpsSource(Protocol):
    """The daemons of GPUs in mode mps."""

    @property
    def most_clients(self) -> int:
        """Return the most clients that one server was seen with."""

    def client_limits(self) -> Mapping[str, int]:
        """Return how many clients a server takes that refused one, by the UUID of its GPU."""

    def chunks(self) -> Mapping[str, int]:
        """Return into how many chunks GPUs are divided, by UUID."""

    def followed(self) -> frozenset[str]:
        """Return the GPUs of which it is known what mode they are to be in, by UUID."""

    def unready(self) -> Mapping[str, str]:
        """Return why GPUs that are to be in the mode take no clients, by UUID."""


@dataclass(frozen=True, slots=True)
class HardwareListeners:
    """Callbacks for changes of the hardware and of a GPU's health."""

    changed: Callable[[], None]
    health: Callable[[str, str], None]  # UUID and reason; "" once it is healthy again


class HardwareInformer:
    """Keeps ``hardware``; :meth:`refresh` takes in changes of instances and foreign memory.

    ``instances_known`` says that the instances on the GPUs were listed. Until then the status is
    not written, because instances that others created would be missing from it.
    """

    def __init__(
        self,
        worker: DriverThread,
        hardware_listeners: HardwareListeners,
        *,
        policy: HealthPolicy = DEFAULT_POLICY,
        clock: Clock = SYSTEM,
    ) -> None:
        """Call the driver through *worker*; *policy* says what takes a GPU out of service."""
        self._worker = worker
        self._listeners = hardware_listeners
        self._policy = policy
        self._clock = clock
        self._devices: tuple[Device, ...] | None = None
        self._driver = ""
        self._cuda = ""
        self._unlisted_reason = ""
        self._was_hanging = False
        self._conditions: Conditions = NO_CONDITIONS
        self.instances: InstanceSource | None = None
        self.mps: MpsSource | None = None
        self.instances_known = False
        # by UUID, memory of processes without an entry
        self.foreign_memory: Mapping[str, MiB] = {}
        # by pod without an entry, the GPUs and MIG instances on which it has processes
        self.reached: Mapping[str, frozenset[str]] = {}
        self.hardware: Hardware | None = None

    async def run(self) -> Never:
        """Poll again and again."""
        while True:
            await self.poll()
            await self._clock.sleep(INTERVAL)

    @property
    def hung_call(self) -> HungCall | None:
        """Return the driver call that has run for LIST_TIMEOUT or longer, if there is one."""
        hung = self._worker.hung_call
        return hung if hung is not None and hung.seconds >= LIST_TIMEOUT else None

    async def poll(self) -> None:
        """List the GPUs, probe each, read the driver's events and update ``hardware``."""
        self._log_hang()
        before = self._devices or ()
        try:
            devices = await self._list_devices()
        except DriverError as error:
            if not before:
                self._log_unlisted(str(error))
                return
            probes: dict[str, Fault | None] = {d.uuid: Fault.UNAVAILABLE for d in before}
        else:
            listed = {device.uuid for device in devices}
            gone = tuple(device for device in before if device.uuid not in listed)
            self._devices = (*devices, *gone)
            if self.instances is not None:
                self.instances.watch_mig_gpus(
                    devices
                )  # MIG mode may have been switched on meanwhile
            probes = {device.uuid: await self._probe(device.uuid) for device in devices}
            probes |= {device.uuid: Fault.ABSENT for device in gone}
        needs = {device.uuid: device.recovery for device in self._devices or ()}
        self._update_conditions(
            HealthObservation(events=await self._events(), probes=probes, needs=needs)
        )
        self.refresh()

    async def _list_devices(self) -> tuple[Device, ...]:
        """List the GPUs; fails at once while a call hangs, which would only delay this one."""
        if (hung := self.hung_call) is not None:
            raise DriverError(Fault.UNAVAILABLE, hung.call, "the call hangs")
        driver, call = self._worker.driver, self._worker.call
        devices = await call(driver.devices, within=LIST_TIMEOUT)
        versions = await call(driver.versions, within=PROBE_TIMEOUT)
        self._driver, self._cuda = versions.driver, versions.cuda
        return devices

    def _log_hang(self) -> None:
        """Log once that the driver hangs, and once that it answers again."""
        hung = self.hung_call
        if (hung is not None) is self._was_hanging:
            return
        self._was_hanging = hung is not None
        if hung is None:
            log.warning("driver answers again")
        else:
            log.warning("driver hangs", call=hung.call)

    def _log_unlisted(self, why: str) -> None:
        """Log each reason once: a node without a driver may stay so for ever."""
        if why != self._unlisted_reason:
            self._unlisted_reason = why
            log.warning("GPUs not listed yet", why=why)

    async def _probe(self, gpu: str) -> Fault | None:
        try:
            await self._worker.call(self._worker.driver.usage, gpu, within=PROBE_TIMEOUT)
        except DriverError as error:
            return error.fault
        return None

    async def _events(self) -> tuple[DriverEvent, ...]:
        if self.hung_call is not None:
            return ()
        try:
            return await self._worker.call(self._worker.driver.events, within=PROBE_TIMEOUT)
        except DriverError:  # the probes say so too
            return ()

    def _update_conditions(self, observation: HealthObservation) -> None:
        before = self._conditions
        self._conditions = next_conditions(
            before, observation, now=self._clock.monotonic(), policy=self._policy
        )
        for gpu, condition in self._conditions.items():
            earlier_reason = before[gpu].why if gpu in before else None
            if condition.why != earlier_reason:
                log.warning("GPU health changed", gpu=gpu, why=condition.why)
                self._listeners.health(gpu, condition.why or "")

    def refresh(self) -> None:
        """Rebuild the value, and report it if it changed."""
        if self._devices is None:
            return
        present = () if self.instances is None else self.instances.live_instances()
        hardware = Hardware(
            devices=self._devices,
            driver=self._driver,
            cuda=self._cuda,
            mps_clients=0 if self.mps is None else self.mps.most_clients,
            mps_limits={} if self.mps is None else dict(self.mps.client_limits()),
            mps_chunks={} if self.mps is None else dict(self.mps.chunks()),
            mps_followed=None if self.mps is None else self.mps.followed(),
            instances=tuple(_realised_instances(present)),
            unhealthy=dict(self._unhealthy_gpus(self._devices, present)),
            foreign_memory=dict(self.foreign_memory),
            reached=dict(self.reached),
        )
        if hardware != self.hardware:
            self.hardware = hardware
            self._listeners.changed()

    def _unhealthy_gpus(
        self, devices: tuple[Device, ...], present: tuple[LiveInstance, ...]
    ) -> Iterator[tuple[str, str]]:
        unready = {} if self.mps is None else self.mps.unready()
        unknown_profiles = {live.instance.gpu for live in present if live.placed is None}
        for device in devices:
            condition = self._conditions.get(device.uuid)
            if condition is not None and condition.why:
                yield device.uuid, condition.why
            elif device.uuid in unknown_profiles:
                yield device.uuid, _UNKNOWN_PROFILE
            elif device.uuid in unready:
                yield device.uuid, unready[device.uuid]


def _realised_instances(present: tuple[LiveInstance, ...]) -> Iterator[RealisedInstance]:
    for live in present:
        if live.placed is not None:
            yield RealisedInstance(
                gpu=live.instance.gpu,
                placed=live.placed,
                uuid=live.instance.uuid,
                foreign=live.is_reserved,
            )
