"""The driver of simulated GPUs, kept in memory or in a file.

With a file, several processes act on the same GPUs. Instances outlive the process that created
them, as with hardware.
"""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from agent.driver import simulated_machine
from agent.driver.driver import (
    SIMULATED,
    ComputeMode,
    Device,
    DriverError,
    DriverEvent,
    Fault,
    Instance,
    MigMode,
    Process,
    Usage,
    Versions,
)
from agent.driver.simulated_machine import Created, DriverRefusal, SimulatedGpu, State

T = TypeVar("T")
_VERSIONS: Final = Versions(driver=SIMULATED, nvml=SIMULATED, cuda="13.1")


class SimulatedDriver:
    """Implements the driver over the GPUs of *fresh*, or over those that *file* already has.

    GPUs of *file* are kept while they are built as in *fresh* and the boot is the same. A file that
    cannot be decoded is replaced.
    """

    def __init__(self, fresh: State, *, file: Path | None = None) -> None:
        """Open a session; raises DriverError where the file cannot be written."""
        self._fresh = fresh
        self._file = file
        self._state = fresh
        self.change(lambda state: state)
        self._seen = self._state.reported
        self._faulty = tuple(gpu.chip.uuid for gpu in self._state.gpus if gpu.faulty)

    def change(self, act: Callable[[State], State]) -> None:
        """Change the machine from outside the driver, by a function of its state."""
        with self._lock("change"):
            self._store(act(self._load()))

    def state(self) -> State:
        """Return the machine as it is."""
        return self._state if self._file is None else self._load()

    def versions(self) -> Versions:
        """Return the versions, which say that it is simulated."""
        return _VERSIONS

    def devices(self) -> tuple[Device, ...]:
        """Return all GPUs by index."""
        return simulated_machine.devices(self.state())

    def instances(self, gpu: str) -> tuple[Instance, ...]:
        """Return all GPU instances of one GPU."""
        return self._find_gpu(gpu, "instances").instances

    def processes(self, gpu: str) -> tuple[Process, ...]:
        """Return the processes that use one GPU or an instance of it."""
        return simulated_machine.processes(self._find_gpu(gpu, "processes"))

    def usage(self, gpu: str) -> Usage:
        """Return what is used of one GPU."""
        return simulated_machine.usage(self._find_gpu(gpu, "usage"))

    def events(self) -> tuple[DriverEvent, ...]:
        """Return the critical errors since the last call."""
        faulty, self._faulty = self._faulty, ()
        state = self.state()
        new = simulated_machine.events_since(state, self._seen)
        self._seen = state.reported
        return (*(DriverEvent(gpu=gpu, xid=simulated_machine.FALLEN_OFF) for gpu in faulty), *new)

    def create_instance(self, gpu: str, profile: int, start: int) -> Instance:
        """Create a GPU instance at exactly this placement."""
        return self._create(
            "create_instance",
            lambda state: simulated_machine.create_instance(
                state, gpu, profile=profile, start=start
            ),
        )

    def create_compute(self, gpu: str, instance: int) -> Instance:
        """Create the compute instance that fills a GPU instance."""
        return self._create(
            "create_compute", lambda state: simulated_machine.create_compute(state, gpu, instance)
        )

    def destroy_compute(self, gpu: str, instance: int, compute: int) -> None:
        """Destroy a compute instance."""
        self._apply(
            "destroy_compute",
            lambda state: simulated_machine.destroy_compute(
                state, gpu, number=instance, compute=compute
            ),
        )

    def destroy_instance(self, gpu: str, instance: int) -> None:
        """Destroy a GPU instance without compute."""
        self._apply(
            "destroy_instance",
            lambda state: simulated_machine.destroy_instance(state, gpu, instance),
        )

    def enable_mig(self, gpu: str) -> MigMode:
        """Switch MIG mode on and return it."""
        self._apply("enable_mig", lambda state: simulated_machine.set_mode(state, gpu, on=True))
        mode = self._find_gpu(gpu, "enable_mig").mig
        if mode is None or not mode.current:
            raise DriverError(Fault.IN_USE, "enable_mig", "MIG mode is pending")
        return mode

    def compute_mode(self, gpu: str) -> ComputeMode:
        """Return which processes may compute on one GPU at once."""
        return self._find_gpu(gpu, "compute_mode").compute

    def set_compute_mode(self, gpu: str, mode: ComputeMode) -> None:
        """Set which processes may compute on one GPU at once."""
        self._apply(
            "set_compute_mode", lambda state: simulated_machine.set_compute_mode(state, gpu, mode)
        )

    def close(self) -> None:
        """End the session, which holds nothing open between calls."""

    def _find_gpu(self, gpu: str, call: str) -> SimulatedGpu:
        return _value_or_raise(simulated_machine.find_gpu(self.state(), gpu), call)

    def _create(self, call: str, act: Callable[[State], Created | DriverRefusal]) -> Instance:
        with self._lock(call):
            created = _value_or_raise(act(self._load()), call)
            self._store(created.state)
        return created.instance

    def _apply(self, call: str, act: Callable[[State], State | DriverRefusal]) -> None:
        with self._lock(call):
            self._store(_value_or_raise(act(self._load()), call))

    @contextmanager
    def _lock(self, call: str) -> Iterator[None]:
        """Keep other processes from changing the machine meanwhile."""
        if self._file is None:
            yield
            return
        try:
            with self._file.with_name(f"{self._file.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # held for one change; ends with its process
                yield
        except OSError as error:
            raise DriverError(Fault.UNAVAILABLE, call, str(error)) from error

    def _load(self) -> State:
        if self._file is None:
            return self._state
        try:
            stored = msgspec.json.decode(self._file.read_bytes(), type=State)
        except (FileNotFoundError, ValueError):  # of msgspec, and of text that is no UTF-8
            return self._fresh
        except OSError as error:
            raise DriverError(Fault.UNAVAILABLE, "state", str(error)) from error
        if stored.boot != self._fresh.boot:
            return self._fresh
        return simulated_machine.refit(stored, self._fresh)

    def _store(self, state: State) -> None:
        self._state = state
        if self._file is not None:
            unfinished = self._file.with_name(f"{self._file.name}.new")
            unfinished.write_bytes(msgspec.json.encode(state))
            unfinished.replace(self._file)


def _value_or_raise(answer: T | DriverRefusal, call: str) -> T:
    if isinstance(answer, DriverRefusal):
        raise DriverError(answer.fault, call, answer.text)
    return answer
