"""The NVML driver: one session with the node's NVIDIA driver, kept while the agent runs.

Concurrent sessions and lookups are slow, so all callers share one session. Reloading the driver
ends it; the next call starts another.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import structlog

from agent.driver.driver import (
    ComputeMode,
    Device,
    DriverError,
    DriverEvent,
    Instance,
    MigMode,
    Process,
    Usage,
    Versions,
)
from agent.nvml.calls import ends_session
from agent.nvml.devices import compute_mode, set_compute_mode, switch_mig_on
from agent.nvml.session import NvmlSession

T = TypeVar("T")
log = structlog.get_logger()
SYS: Final = Path("/sys")


class NvmlDriver:
    """The driver of this node; *sysfs* is the path of ``/sys``, *clock* returns Unix seconds."""

    def __init__(self, *, sysfs: Path = SYS, clock: Callable[[], float] = time.time) -> None:
        """Start no session yet: the driver may still be being installed."""
        self._sysfs = sysfs
        self._clock = clock
        self._session: NvmlSession | None = None

    def versions(self) -> Versions:
        """Return the versions of driver and library."""
        return self._in_session(NvmlSession.versions)

    def devices(self) -> tuple[Device, ...]:
        """Return the GPUs that can be read, by index."""
        return self._in_session(NvmlSession.devices)

    def instances(self, gpu: str) -> tuple[Instance, ...]:
        """Return all GPU instances of one GPU, those without a compute instance too."""
        return self._in_session(lambda session: session.instances(gpu))

    def processes(self, gpu: str) -> tuple[Process, ...]:
        """Return the processes that use one GPU or an instance of it."""
        return self._in_session(lambda session: session.processes(gpu))

    def usage(self, gpu: str) -> Usage:
        """Return the usage of one GPU, if possible without the memory that the driver reserves."""
        return self._in_session(lambda session: session.usage(gpu))

    def events(self) -> tuple[DriverEvent, ...]:
        """Return the critical errors since the last call, without waiting."""
        return self._in_session(NvmlSession.events)

    def create_instance(self, gpu: str, profile: int, start: int) -> Instance:
        """Create a GPU instance at exactly this placement, still without compute."""
        return self._in_session(lambda session: session.create_instance(gpu, profile, start))

    def create_compute(self, gpu: str, instance: int) -> Instance:
        """Create the compute instance that fills a GPU instance, and return both as one."""
        return self._in_session(lambda session: session.create_compute(gpu, instance))

    def destroy_compute(self, gpu: str, instance: int, compute: int) -> None:
        """Destroy a compute instance; IN_USE while something holds it."""
        self._in_session(lambda session: session.destroy_compute(gpu, instance, compute))

    def destroy_instance(self, gpu: str, instance: int) -> None:
        """Destroy a GPU instance without compute; IN_USE while something holds it."""
        self._in_session(lambda session: session.destroy_instance(gpu, instance))

    def enable_mig(self, gpu: str) -> MigMode:
        """Switch MIG mode on and return it; IN_USE while the GPU has clients."""
        return self._in_session(lambda _: switch_mig_on(gpu))

    def compute_mode(self, gpu: str) -> ComputeMode:
        """Return which processes may compute on one GPU at once."""
        return self._in_session(lambda _: compute_mode(gpu))

    def set_compute_mode(self, gpu: str, mode: ComputeMode) -> None:
        """Set which processes may compute on one GPU at once; NO_PERMISSION unless we are root."""
        self._in_session(lambda _: set_compute_mode(gpu, mode))

    def close(self) -> None:
        """End the session, if there is one."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _in_session(self, operation: Callable[[NvmlSession], T]) -> T:
        """Return the result of *operation*, in a new session if the present one is lost.

        Repeating it is safe: a lost session has done nothing.
        """
        session = self._session
        if session is not None:
            try:
                return operation(session)
            except DriverError as error:
                if not ends_session(error):
                    raise
                log.warning("driver session lost", error=str(error))
                self.close()
        self._session = session = NvmlSession(sysfs=self._sysfs, clock=self._clock)
        return operation(session)
