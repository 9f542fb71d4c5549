"""Instances: creates the MIG instances of a node when entries need them, and reports them.

Level-triggered: callers say what is promised now, as often as they like. Each GPU has its own task,
so that a stuck one does not delay the others.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, Never

import structlog

from agent.driver.driver import Device, DriverError
from agent.mig.gpu_client import READ_TIMEOUT
from agent.mig.gpu_controller import DesiredInstances, GpuController, MigServices
from agent.mig.instance_state import LiveInstance
from agent.mig.progress import Delay, FailedReconfiguration, instance_or_delay, waiting_message
from agent.settling_controller import SettlingController
from agent.share import NotYetError, ReadyInstance
from allocator.model.board import Placement

ENSURE_TIMEOUT: Final = (
    15.0  # seconds; kubelet gives PreStartContainer 30, of which others need some
)
PlacementsByGpu = Mapping[str, Collection[Placement]]
log = structlog.get_logger(__name__)


def _ignore() -> None:
    """Do nothing."""


class InstancesController:
    """Creates and reports the MIG instances of a node; ``run`` does the work."""

    def __init__(
        self,
        services: MigServices,
        *,
        changed: Callable[[], None] = _ignore,
        patience: float = ENSURE_TIMEOUT,
    ) -> None:
        """Touch nothing yet.

        *changed* is called when ``live_instances`` or ``failures`` may have changed; *patience* is
        how many seconds ``ensure`` waits.
        """
        self._services = services
        self._changed = changed
        self._settling = SettlingController[GpuController](patience=patience)
        self._desired: Mapping[str, DesiredInstances] | None = None

    async def set_desired(
        self, promised: PlacementsByGpu, *, held: PlacementsByGpu | None = None
    ) -> None:
        """Set the promised placements by the GPU's UUID, and those where containers may run.

        GPUs that are named are watched, even with nothing promised; on all others nothing is
        promised. Until the first call nothing is created or destroyed. *held* must not be from
        before the node's last boot.
        """
        held_by_gpu = held or {}
        self._desired = {
            gpu: DesiredInstances(
                frozenset(promised.get(gpu, ())), frozenset(held_by_gpu.get(gpu, ()))
            )
            for gpu in promised.keys() | held_by_gpu.keys()
        }
        for gpu in self._desired:
            self._watch(gpu)
        for gpu, controller in self._settling.gpus.items():
            if controller.set_desired(self._desired.get(gpu, DesiredInstances())):
                self._settling.wake(gpu)
        self._settling.tell_progress()

    async def ensure(self, gpu: str, placed: Placement) -> ReadyInstance:
        """Return the instance at exactly this placement of *gpu*, once it is promised and ready.

        Raises NotYetError with a text for the user where that takes too long, or where waiting
        is pointless.
        """
        deadline = self._settling.deadline()
        while True:
            result = self._instance_or_delay(gpu, placed)
            if isinstance(result, ReadyInstance):
                return result
            if result.lasting or not await self._settling.await_progress(deadline):
                raise NotYetError(waiting_message(gpu, placed, result.why))

    def live_instances(self) -> tuple[LiveInstance, ...]:
        """Return all instances as they were last seen, by GPU and id."""
        live_instances = [
            live for gpu in self._settling.gpus.values() for live in gpu.progress.instances
        ]
        return tuple(sorted(live_instances, key=lambda live: (live.instance.gpu, live.instance.id)))

    def failures(self) -> Mapping[str, tuple[FailedReconfiguration, ...]]:
        """Return the reconfigurations that failed and are tried again, by the GPU's UUID."""
        return {
            gpu: tuple(controller.progress.failures.values())
            for gpu, controller in sorted(self._settling.gpus.items())
        }

    async def settle(self) -> None:
        """Settle all GPUs once, before registering with kubelet."""
        driver = self._services.worker.driver
        try:
            self.watch_mig_gpus(
                await self._services.worker.call(driver.devices, within=READ_TIMEOUT)
            )
        except DriverError as error:  # the hardware informer lists them later
            log.warning("GPUs not listed yet", why=str(error))
        await self._settling.settle()

    def watch_mig_gpus(self, devices: Iterable[Device]) -> None:
        """Watch the GPUs in MIG mode: their instances are reported, promised or not."""
        for device in devices:
            if device.mig is not None and device.mig.current:
                self._watch(device.uuid)

    async def run(self) -> Never:
        """Settle every GPU again and again, each in its own task."""
        await self._settling.run()

    def _instance_or_delay(self, gpu: str, placed: Placement) -> ReadyInstance | Delay:
        controller = self._settling.get(gpu)
        if controller is None or not controller.is_promised(controller.key_of(placed)):
            return Delay("the agent has not seen its entry yet")
        return instance_or_delay(controller.progress, controller.key_of(placed))

    def _watch(self, gpu: str) -> None:
        self._settling.watch(gpu, partial(self._new_gpu, gpu))

    def _new_gpu(self, gpu: str) -> GpuController:
        controller = GpuController(gpu, self._services, changed=self._notify)
        if self._desired is not None:
            controller.set_desired(self._desired.get(gpu, DesiredInstances()))
        return controller

    def _notify(self) -> None:
        self._settling.tell_progress()
        self._changed()
