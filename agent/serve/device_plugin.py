"""Service: registers the device plugin once it may serve, and keeps its slots up to date."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Never

import structlog

from agent.deviceplugin.entry_client import EntryClient
from agent.deviceplugin.identity import CheckpointError, PodName, registered_ids
from agent.deviceplugin.owner_client import OwnerClient
from agent.deviceplugin.plugin_server import DevicePlugin
from agent.deviceplugin.podresources_client import PodResources
from agent.deviceplugin.prestart_server import (
    InstanceProvider,
    PreStart,
    RegionProvider,
    StartEvents,
    StartServices,
)
from agent.deviceplugin.registration_client import PluginPlace, RegistrationClient
from agent.deviceplugin.slot_files import Slots
from agent.health.hardware_informer import HardwareInformer
from agent.node.capacity import slots
from agent.node.capacity_controller import CapacityController
from agent.node.node_informer import NodeInformer
from agent.node.slots import SlotOffer
from agent.node.status import ServedGpu, served_gpus
from agent.node.status_controller import Alive
from allocator.model.request import Mode

CHECKPOINT: Final = "kubelet_internal_checkpoint"
EVERY: Final = 5.0  # seconds between two looks at slots whose holders are gone
SOON: Final = 1.0  # seconds in which a registration that came or went is noticed
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Where things are: the node's ``root``, kubelet's folder, and ours for what must last."""

    root: Path
    kubelet: Path
    state: Path

    @property
    def plugins(self) -> Path:
        """Return kubelet's folder of device plugins."""
        return self.kubelet / "device-plugins"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginServices:
    """What the starts of containers rest on."""

    informer: NodeInformer
    survey: HardwareInformer
    keeper: CapacityController
    promises: EntryClient
    instances: InstanceProvider
    regions: RegionProvider
    alive: Alive
    news: StartEvents


class Service:
    """Registers the plugin once it may, and keeps its offer true."""

    def __init__(self, backing: PluginServices, paths: Paths, *, cdi: Path | None) -> None:
        """Touch nothing yet; *cdi* is where the runtime reads documents, ``None`` if it does not.

        The resource is the one that is configured now: under another name we start anew.
        """
        self._backing = backing
        self._paths = paths
        self._resource = backing.informer.devices.count_name
        self._slots = Slots(paths.root, cdi=cdi)
        self._changed = backing.informer.subscribe()

    async def run(self) -> Never:
        """Serve for ever; raises OSError where the node's files cannot be written."""
        lister = PodResources(self._paths.kubelet / "pod-resources/kubelet.sock", self._resource)
        owners = OwnerClient(
            self._resource, self._paths.plugins / CHECKPOINT, lister=lister, pods=self._pods
        )
        backing = self._backing
        parts = StartServices(
            owners=owners,
            promises=backing.promises,
            instances=backing.instances,
            regions=backing.regions,
            slots=self._slots,
            news=backing.news,
        )
        plugin = DevicePlugin(self._slots, PreStart(parts))
        await self._wait_until_allowed()
        place = PluginPlace(
            resource=self._resource,
            folder=self._paths.plugins,
            lock=self._paths.state / "slots.lock",
        )
        registration = RegistrationClient(plugin, place)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._update_offer(plugin, registration))
            group.create_task(self._sweep_forever())
            await registration.run()
        raise RuntimeError("the registration ended")

    async def _wait_until_allowed(self) -> None:
        """Wait until slots may be offered: GPUs are known and no other plugin serves them."""
        told = ""
        while True:
            self._changed.clear()
            informer = self._backing.informer
            known = await asyncio.to_thread(self._registered_ids)
            if known != informer.registered:
                informer.registered = known
                informer.notify()
            node, hardware = informer.node, self._backing.survey.hardware
            if informer.plugin_conflict != told:
                told = informer.plugin_conflict
                log.warning("competing device plugin", why=told)
            ready = informer.is_configured and hardware is not None and hardware.devices
            if ready and node is not None and self._backing.keeper.may_show(node):
                informer.registered = frozenset()  # from here on they are ours
                return
            await self._changed.wait()

    def _registered_ids(self) -> frozenset[str]:
        """Return the ids that kubelet has for our resource; nothing where it does not say."""
        try:
            text = (self._paths.plugins / CHECKPOINT).read_bytes()
            return registered_ids(text, self._resource)
        except (OSError, CheckpointError):
            return frozenset()

    async def _update_offer(self, plugin: DevicePlugin, registration: RegistrationClient) -> None:
        """Tell kubelet of as many slots as the GPUs have, and others that it knows."""
        informer, survey = self._backing.informer, self._backing.survey
        while True:
            self._changed.clear()
            if informer.devices.count_name != self._resource:
                raise RuntimeError(f"the slot resource is now {informer.devices.count_name}")
            if survey.hardware is not None:
                stored_gpu_node = informer.gpu_node
                told = served_gpus(
                    survey.hardware,
                    informer.devices,
                    informer.node_config,
                    before=None if stored_gpu_node is None else stored_gpu_node.ledger,
                )
                well = [one.gpu for one in told if one.gpu.healthy]
                total, soft = slots(one.gpu for one in told), not told or any(map(_soft, told))
                plugin.offer(SlotOffer(total=total, healthy=slots(well), soft=soft))
            if registration.registered != self._backing.keeper.serving:
                self._backing.keeper.serving = registration.registered
                informer.notify()
            await _wait_at_most(self._changed, SOON)

    async def _sweep_forever(self) -> Never:
        """Empty the slots of pods that are over and have no process left."""
        informer = self._backing.informer
        while True:
            if informer.synced:
                alive = frozenset(await self._backing.alive())
                live = {uid for uid, tenant in informer.tenants.items() if not tenant.over}
                await asyncio.to_thread(self._slots.sweep, live | alive)
            await asyncio.sleep(EVERY)

    def _pods(self) -> Mapping[str, PodName]:
        tenants = self._backing.informer.tenants
        return {uid: PodName(t.namespace, t.name) for uid, t in tenants.items() if not t.over}


def _soft(served_gpu: ServedGpu) -> bool:
    """Say whether the GPU may be shared without MIG."""
    return served_gpu.gpu.mode is not Mode.MIG


async def _wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait for *event*, but not for longer than *seconds*."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
