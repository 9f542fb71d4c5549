"""Instances: creates the MIG instances of a node when entries need them, and reports them.

Level-triggered: callers say what is promised now, as often as they like. Each GPU has its own task,
so that a stuck one does not delay the others.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Never

import structlog

from agent.driver.driver import Device, DriverError
from agent.mig.gpu_client import READ_TIMEOUT
from agent.mig.gpu_controller import DesiredInstances, GpuController, MigServices
from agent.mig.instance_state import LiveInstance
from agent.mig.progress import Delay, FailedReconfiguration, instance_or_delay, waiting_message
from agent.share import NotYetError, ReadyInstance
from allocator.model.board import Placement

PATIENCE: Final = 15.0  # seconds; kubelet gives PreStartContainer 30, of which others need some
ByGpu = Mapping[str, Collection[Placement]]
log = structlog.get_logger(__name__)


def _ignore() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class _Watched:
    """A GPU and what wakes its task."""

    gpu: GpuController
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class InstancesController:
    """Creates and reports the MIG instances of a node; ``run`` does the work."""

    def __init__(
        self,
        services: MigServices,
        *,
        changed: Callable[[], None] = _ignore,
        patience: float = PATIENCE,
    ) -> None:
        """Look at nothing yet.

        *changed* is called when ``present`` or ``troubles`` may have changed; *patience* is how
        many seconds ``ensure`` waits.
        """
        self._services = services
        self._changed = changed
        self._patience = patience
        self._gpus: dict[str, _Watched] = {}
        self._desired: Mapping[str, DesiredInstances] | None = None
        self._gpu_added = asyncio.Event()
        self._progress_made = asyncio.Event()

    async def set_desired(self, promised: ByGpu, *, held: ByGpu | None = None) -> None:
        """Set what is promised, by the GPU's UUID, and at which places containers may run.

        GPUs that are named are looked at, even with nothing promised; those that are not are
        promised nothing. Until the first call nothing is created or destroyed. *held* must not be
        from before the node's last boot.
        """
        running = held or {}
        self._desired = {
            gpu: DesiredInstances(frozenset(promised.get(gpu, ())), frozenset(running.get(gpu, ())))
            for gpu in promised.keys() | running.keys()
        }
        for gpu in self._desired:
            self._watch(gpu)
        for gpu, watched in self._gpus.items():
            if watched.gpu.set_desired(self._desired.get(gpu, DesiredInstances())):
                watched.wake.set()
        self._wake()

    async def ensure(self, gpu: str, placed: Placement) -> ReadyInstance:
        """Return the instance at exactly this place of *gpu*, once it is promised and there.

        Raises NotYetError, with a text for the user, where that outlasts our patience, or where
        waiting is pointless.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        while True:
            progress_made = self._progress_made
            result = self._instance_or_delay(gpu, placed)
            if isinstance(result, ReadyInstance):
                return result
            left = deadline - loop.time()
            if result.lasting or left <= 0:
                raise NotYetError(waiting_message(gpu, placed, result.why))
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await progress_made.wait()

    def live_instances(self) -> tuple[LiveInstance, ...]:
        """Return all instances as they were last seen, by GPU and id."""
        live_instances = [
            one for watched in self._gpus.values() for one in watched.gpu.progress.instances
        ]
        return tuple(sorted(live_instances, key=lambda one: (one.instance.gpu, one.instance.id)))

    def failures(self) -> Mapping[str, tuple[FailedReconfiguration, ...]]:
        """Return what failed and is tried again, by the GPU's UUID."""
        return {
            gpu: tuple(watched.gpu.progress.failures.values())
            for gpu, watched in sorted(self._gpus.items())
        }

    async def settle(self) -> None:
        """Settle all GPUs once, before registering with kubelet."""
        driver = self._services.worker.driver
        try:
            self.notice(await self._services.worker.call(driver.devices, within=READ_TIMEOUT))
        except DriverError as error:  # they are noticed later
            log.warning("GPUs not listed yet", why=str(error))
        async with asyncio.TaskGroup() as group:
            for watched in self._gpus.values():
                group.create_task(watched.gpu.settle())

    def notice(self, devices: Iterable[Device]) -> None:
        """Watch those in MIG mode: their instances are reported, promised or not."""
        for device in devices:
            if device.mig is not None and device.mig.current:
                self._watch(device.uuid)

    async def run(self) -> Never:
        """Keep every GPU as it is wanted."""
        async with asyncio.TaskGroup() as group:
            followed: set[str] = set()
            while True:
                self._gpu_added.clear()
                for gpu in self._gpus.keys() - followed:
                    group.create_task(self._keep_settled(self._gpus[gpu]))
                    followed.add(gpu)
                await self._gpu_added.wait()

    def _instance_or_delay(self, gpu: str, placed: Placement) -> ReadyInstance | Delay:
        watched = self._gpus.get(gpu)
        if watched is None or not watched.gpu.is_promised(watched.gpu.place(placed)):
            return Delay("the agent has not seen its entry yet")
        return instance_or_delay(watched.gpu.progress, watched.gpu.place(placed))

    def _watch(self, gpu: str) -> None:
        if gpu not in self._gpus:
            watched = _Watched(GpuController(gpu, self._services, changed=self._notify))
            if self._desired is not None:
                watched.gpu.set_desired(self._desired.get(gpu, DesiredInstances()))
            self._gpus[gpu] = watched
            self._gpu_added.set()

    async def _keep_settled(self, watched: _Watched) -> Never:
        while True:
            watched.wake.clear()
            await watched.gpu.settle()
            with suppress(TimeoutError):
                async with asyncio.timeout(watched.gpu.pause):
                    await watched.wake.wait()

    def _notify(self) -> None:
        self._wake()
        self._changed()

    def _wake(self) -> None:
        """Let everyone who waits look again."""
        self._progress_made.set()
        self._progress_made = asyncio.Event()
