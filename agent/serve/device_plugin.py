"""Service: registers the device plugin once it may serve, and keeps its slots up to date."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Never

import structlog

from agent.deviceplugin.entry_client import EntryClient
from agent.deviceplugin.identity import CheckpointError, PodName, registered_ids, registered_names
from agent.deviceplugin.owner_client import OwnerClient
from agent.deviceplugin.plugin_server import DevicePlugin
from agent.deviceplugin.podresources_client import PodResources
from agent.deviceplugin.prestart_server import (
    InstanceProvider,
    MpsProvider,
    PreStart,
    RegionProvider,
    StartEvents,
    StartServices,
)
from agent.deviceplugin.registration_client import PluginPaths, RegistrationClient
from agent.deviceplugin.slot_files import SlotFiles
from agent.doctor.container_runtime import containerd_major, reads_cdi
from agent.doctor.facts_files import configurations
from agent.health.hardware_informer import HardwareInformer
from agent.node.capacity import total_slots
from agent.node.capacity_controller import CapacityController
from agent.node.node_informer import NodeInformer
from agent.node.slots import SlotOffer
from agent.node.status import ServedGpu, served_gpus
from agent.node.status_controller import Alive
from allocator.model.request import Mode

CHECKPOINT: Final = "kubelet_internal_checkpoint"
SWEEP_INTERVAL: Final = 5.0  # seconds between two looks at slots whose holders are gone
OFFER_INTERVAL: Final = 1.0  # seconds in which a registration that came or went is noticed
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Directories."""

    root: Path  # of the node
    host_root: Path  # of the node, as we see it
    kubelet: Path
    state: Path  # ours, for files that outlive the agent
    relay: Path | None = None  # of the relay's sockets; without one kubelet calls the agent itself

    @property
    def plugins(self) -> Path:
        """Return kubelet's folder of device plugins."""
        return self.kubelet / "device-plugins"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginServices:
    """What the device plugin works with."""

    informer: NodeInformer
    hardware_informer: HardwareInformer
    capacity_controller: CapacityController
    entries: EntryClient
    instances: InstanceProvider
    regions: RegionProvider
    mps: MpsProvider
    alive: Alive
    events: StartEvents
    hasten: Callable[[], None] = lambda: None  # write the node's status at once


class DevicePluginService:
    """Registers the plugin when it is allowed to, and keeps its offer up to date."""

    def __init__(self, services: PluginServices, paths: Paths, *, cdi: Path | None) -> None:
        """Touch nothing yet; *cdi* is where the runtime reads documents, ``None`` if it does not.

        The resource is the one that is configured now: under another name we start anew.
        """
        self._services = services
        self._paths = paths
        self._resource = services.informer.device_config.count_name
        self._slots = SlotFiles(paths.host_root, cdi=cdi)
        self._soft: bool | None = None  # as written for the relay
        # Resources that kubelet still had of plugins which had ended when we began to serve.
        self._ended: frozenset[str] = frozenset()
        self._checkpoint_time: int | None = None  # of the last look, in ns; None: there was no file
        self._changed = services.informer.subscribe()

    async def run(self) -> Never:
        """Serve for ever; raises OSError where the node's files cannot be written."""
        lister = PodResources(self._paths.kubelet / "pod-resources/kubelet.sock", self._resource)
        owners = OwnerClient(
            self._resource, self._paths.plugins / CHECKPOINT, lister=lister, pods=self._pods
        )
        services = self._services
        start_services = StartServices(
            owners=owners,
            entries=services.entries,
            instances=services.instances,
            regions=services.regions,
            mps=services.mps,
            slots=self._slots,
            events=services.events,
        )
        plugin = DevicePlugin(self._slots, PreStart(start_services))
        await self._wait_until_allowed()
        paths = PluginPaths(
            resource=self._resource,
            folder=self._paths.relay or self._paths.plugins,
            lock=self._paths.state / "slots.lock",
        )
        registration = RegistrationClient(plugin, paths)
        registration.on_change = self._changed.set
        async with asyncio.TaskGroup() as group:
            group.create_task(self._update_offer(plugin, registration))
            group.create_task(self._sweep_forever())
            await registration.run()
        raise RuntimeError("the registration ended")

    async def _wait_until_allowed(self) -> None:
        """Wait until slots may be offered: GPUs are known and no other plugin serves them."""
        logged = ""
        while True:
            self._changed.clear()
            informer = self._services.informer
            registered = await asyncio.to_thread(self._registered_ids)
            if registered != informer.registered_ids:
                informer.registered_ids = registered
                informer.notify()
            node, hardware = informer.node, self._services.hardware_informer.hardware
            if informer.plugin_conflict != logged:
                logged = informer.plugin_conflict
                log.warning("competing device plugin", why=logged)
            ready = informer.is_configured and hardware is not None and hardware.devices
            if (
                ready
                and node is not None
                and self._services.capacity_controller.may_write_capacity(node)
            ):
                informer.registered_ids = frozenset()  # from now on the ids are ours
                self._ended = await asyncio.to_thread(self._registered_names)
                return
            await self._changed.wait()

    def _registered_ids(self) -> frozenset[str]:
        """Return the ids that kubelet has for our resource; nothing where it does not say."""
        try:
            return registered_ids(self._checkpoint(), self._resource)
        except (OSError, CheckpointError):
            return frozenset()

    def _registered_names(self) -> frozenset[str]:
        """Return the resources that plugins have registered; nothing where kubelet is silent."""
        try:
            return registered_names(self._checkpoint()) - {self._resource}
        except (OSError, CheckpointError):
            return frozenset()

    def _changed_at(self) -> int | None:
        try:
            return (self._paths.plugins / CHECKPOINT).stat().st_mtime_ns
        except OSError:
            return None

    def _checkpoint(self) -> bytes:
        return (self._paths.plugins / CHECKPOINT).read_bytes()

    async def _look_for_other_plugins(self) -> None:
        """Note the resources of plugins that registered after us."""
        informer, time = self._services.informer, await asyncio.to_thread(self._changed_at)
        if time == self._checkpoint_time:
            return
        self._checkpoint_time = time
        registered = await asyncio.to_thread(self._registered_names)
        self._ended &= registered
        others = registered - self._ended
        if others != informer.other_registrations:
            informer.other_registrations = others
            informer.notify()

    async def _update_offer(self, plugin: DevicePlugin, registration: RegistrationClient) -> None:
        """Offer kubelet as many slots as the GPUs have; notify others of the registration."""
        informer, hardware_informer = self._services.informer, self._services.hardware_informer
        while True:
            self._changed.clear()
            if informer.device_config.count_name != self._resource:
                raise RuntimeError(f"the slot resource is now {informer.device_config.count_name}")
            await self._look_for_other_plugins()
            if hardware_informer.hardware is not None:
                stored_gpu_node = informer.gpu_node
                served = served_gpus(
                    hardware_informer.hardware,
                    informer.device_config,
                    informer.node_config,
                    before=None if stored_gpu_node is None else stored_gpu_node.ledger,
                )
                healthy = [s.gpu for s in served if s.gpu.healthy]
                total, soft = (
                    total_slots(s.gpu for s in served),
                    not served or any(map(_is_shareable, served)),
                )
                await self._write_setup(soft=soft)
                plugin.offer(SlotOffer(total=total, healthy=total_slots(healthy), soft=soft))
            if registration.registered != self._services.capacity_controller.serving:
                self._services.capacity_controller.serving = registration.registered
                informer.notify()
                self._services.hasten()
            await _wait_at_most(self._changed, OFFER_INTERVAL)

    async def _write_setup(self, *, soft: bool) -> None:
        """Write for the relay what Allocate's answers depend on, before it can be asked."""
        if self._paths.relay is not None and soft != self._soft:
            await asyncio.to_thread(self._slots.write_setup, soft=soft)
            self._soft = soft

    async def _sweep_forever(self) -> Never:
        """Empty the slots of pods that have ended and have no process left."""
        informer = self._services.informer
        while True:
            if informer.synced:
                alive = frozenset(await self._services.alive())
                live = {uid for uid, pod in informer.pods.items() if not pod.ended}
                await asyncio.to_thread(self._slots.sweep, live | alive)
            await asyncio.sleep(SWEEP_INTERVAL)

    def _pods(self) -> Mapping[str, PodName]:
        pods = self._services.informer.pods
        return {uid: PodName(t.namespace, t.name) for uid, t in pods.items() if not t.ended}


async def runtime_reads_cdi(runtime: str, root: Path) -> bool:
    """Say whether *runtime*, as configured now below *root*, reads CDI documents."""
    major = containerd_major(runtime)
    configured = await asyncio.to_thread(configurations, root, major=major)
    with_cdi = reads_cdi(runtime, configured)
    paths = [configuration.path for configuration in configured]
    log.info("container runtime inspected", runtime=runtime, configured=paths, reads_cdi=with_cdi)
    return with_cdi


def _is_shareable(served_gpu: ServedGpu) -> bool:
    """Say whether the GPU may be shared without MIG."""
    return served_gpu.gpu.mode is not Mode.MIG


async def _wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait for *event*, but not for longer than *seconds*."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
