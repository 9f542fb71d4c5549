"""Modes: whether a GPU is in MIG mode, and the one case in which the agent enables it."""

from collections.abc import Callable
from dataclasses import replace

import structlog

from agent.core.driver import Device
from agent.core.progress import mode_off
from agent.shell.cuts import CUTTING, LOOKING, DriverCaller

log = structlog.get_logger(__name__)


class UnfitGpuError(Exception):
    """The GPU cannot carry instances as it is."""


class MigOffError(UnfitGpuError):
    """It is out of MIG mode, so that it has none any more."""


class MigModeClient:
    """Knows the GPU called *gpu* as a device, in ``known`` once it was found."""

    def __init__(self, gpu: str, worker: DriverCaller, may_switch: Callable[[], bool]) -> None:
        """Look at nothing yet; *may_switch* says whether the node's owner lets us."""
        self._gpu = gpu
        self._worker = worker
        self._may_switch = may_switch
        self.known: Device | None = None

    async def device(self, *, promised: bool) -> Device:
        """Return the GPU, in MIG mode; asked for again while it is not.

        Where instances are *promised* the GPU was in MIG mode when they were, and nothing else is
        promised on it. From Hopper on, a reboot ends the mode and enabling it needs no reset. Older
        GPUs need a reset, which the agent never makes.

        Raises UncutError with what the node's owner should do, UnfitError for a GPU that is not
        listed, or DriverError.
        """
        if self.known is None or not _cut(self.known):
            self.known = await self._device()
            ours = promised and self._may_switch() and not self.known.ampere_or_older
            if ours and self.known.mig is not None and not _cut(self.known):
                self.known = await self._enable_mig(self.known)
        if not _cut(self.known):
            raise MigOffError(mode_off(self.known))
        return self.known

    def forget(self) -> None:
        """Ask the driver again before the next look."""
        self.known = None

    async def _device(self) -> Device:
        driver = self._worker.driver
        for device in await self._worker.call(driver.devices, within=LOOKING):
            if device.uuid == self._gpu:
                return device
        raise UnfitGpuError("the driver does not list this GPU")

    async def _enable_mig(self, device: Device) -> Device:
        driver = self._worker.driver
        clients = await self._worker.call(driver.processes, self._gpu, within=LOOKING)
        if clients:
            return device
        log.warning("enabling MIG mode", gpu=self._gpu, model=device.model)
        mode = await self._worker.call(driver.enable_mig, self._gpu, within=CUTTING)
        return replace(device, mig=mode)


def _cut(device: Device) -> bool:
    return device.mig is not None and device.mig.current
