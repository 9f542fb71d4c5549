"""The machine that the stand-in for NVIDIA's library plays: made, watched and disturbed by tests.

It is a file; processes whose environment names it by ``VGPU_FAKE_NVML`` and that load the library
see the same GPUs, and keep seeing them when one of them is killed.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import sizeof
from enum import IntEnum
from pathlib import Path
from typing import Final

from agent.driver.driver import Process
from agent.driver.simulated_machine import State
from tests.fakes.nvml.boards import furnished
from tests.fakes.nvml.layout import (
    EVENTS,
    MAGIC,
    NO_INSTANCE,
    UNKNOWN,
    CGpu,
    CInstance,
    CMachine,
    CShared,
)
from tests.fakes.nvml.library import library

VARIABLE: Final = "VGPU_FAKE_NVML"
DIES_BEFORE: Final = 9998  # in the place of a code: the process is killed, nothing was changed
DIES_AFTER: Final = 9999  # likewise, but the change was made
_AHEAD: Final = 2**60  # later than any time since which samples are asked for
_HOPPER: Final = 9  # the number of its architecture


class Kind(IntEnum):
    """In which of NVML's three listings a process is."""

    COMPUTE = 0
    GRAPHICS = 1
    MPS = 2


class Machine:
    """The GPUs in *path*: those of *state* if given, else those that the file already holds."""

    def __init__(self, path: Path, state: State | None = None) -> None:
        self.path = path
        if state is not None:
            self._create(state)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to find library and machine."""
        return {"LD_LIBRARY_PATH": str(library().parent), VARIABLE: str(self.path)}

    @contextmanager
    def changing(self) -> Iterator[CMachine]:
        """Change the machine at once for everybody; nothing changes if the body raises."""
        with self._shared() as shared:
            active = shared.active & 1
            shared.copies[1 - active] = shared.copies[active]
            yield shared.copies[1 - active]
            shared.active = 1 - active

    def read(self) -> CMachine:
        """Return the machine as it is, as a copy."""
        with self._shared() as shared:
            return CMachine.from_buffer_copy(shared.copies[shared.active & 1])

    def fail(self, call: str, code: int, *, nth: int = 1) -> None:
        """Let the *nth* call of a function from now on fail with *code*; 0 is every call.

        Instead of a code of NVML it may be ``DIES_BEFORE`` or ``DIES_AFTER``.
        """
        with self._shared() as shared:
            fault = next(each for each in shared.faults if not each.used)
            fault.call = call.encode()
            fault.nth, fault.code, fault.seen, fault.used = nth, code, 0, 1

    def calls(self, call: str) -> int:
        """Return how often a function was called since the first :meth:`fail` that named it."""
        with self._shared() as shared:
            found = [f.seen for f in shared.faults if f.used and f.call == call.encode()]
            return max(found, default=0)

    def mend(self, call: str | None = None) -> None:
        """Take all faults back, or those of one function."""
        with self._shared() as shared:
            for fault in shared.faults:
                if call is None or fault.call == call.encode():
                    fault.used = 0

    def add(self, process: Process, *, kind: Kind = Kind.COMPUTE, seen: int = _AHEAD) -> None:
        """Start a process, last sampled at *seen* (Unix time in microseconds)."""
        with self.changing() as machine:
            index, gpu = self._gpu(machine, process.gpu)
            new = next(each for each in machine.processes if not each.used)
            new.used, new.gpu, new.pid = 1, index, process.pid
            new.memory = UNKNOWN if process.memory is None else process.memory << 20
            new.gi, new.ci = self._place(gpu, process.instance)
            new.utilization, new.type, new.seen = process.utilization or 0, kind, seen

    def end(self, pid: int) -> None:
        """End a process on all GPUs."""
        with self.changing() as machine:
            for process in machine.processes:
                if process.pid == pid:
                    process.used = 0

    def leak(self, gpu: str, instance: int, *, open_: bool = True) -> None:
        """Let somebody who is no process keep a handle of a GPU instance open, or close it."""
        with self.changing() as machine:
            for each in self._gpu(machine, gpu)[1].instances:
                if each.used and each.id == instance:
                    each.leaked = int(open_)

    def report(self, xid: int, gpu: str | None = None, instance: int | None = None) -> None:
        """Report a critical error of one GPU, or of all."""
        with self.changing() as machine:
            event = machine.events[machine.reported % EVENTS]
            event.xid = xid
            event.gpu = NO_INSTANCE if gpu is None else self._gpu(machine, gpu)[0]
            event.gi = NO_INSTANCE if instance is None else instance
            event.ci = NO_INSTANCE
            machine.reported += 1

    def set(self, gpu: str, **fields: int) -> None:
        """Set fields of one GPU, such as ``lost``, ``guest`` and ``memory_hidden``."""
        with self.changing() as machine:
            for name, value in fields.items():
                setattr(self._gpu(machine, gpu)[1], name, value)

    def reboot(self, boot: str) -> None:
        """Restart the machine: instances and processes go; only Ampere remembers MIG mode."""
        with self.changing() as machine:
            machine.boot = boot.encode()
            for process in machine.processes:
                process.used = 0
            for gpu in machine.gpus:
                gpu.mig_current = gpu.mig_pending if gpu.architecture < _HOPPER else 0
                gpu.mig_pending = gpu.mig_current
                gpu.lost = gpu.recovery = gpu.compute_mode = 0
        self.clear()

    def clear(self) -> None:
        """Remove all MIG instances, as somebody does with nvidia-smi."""
        with self.changing() as machine:
            for gpu in machine.gpus:
                gpu.instances = (CInstance * len(gpu.instances))()

    def _create(self, state: State) -> None:
        shared = CShared(magic=MAGIC, size=sizeof(CShared))
        shared.copies[0] = furnished(state)
        unfinished = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        unfinished.write_bytes(bytes(shared))
        unfinished.replace(self.path)
        for running in state.gpus:
            for process in running.processes:
                self.add(process)

    @contextmanager
    def _shared(self) -> Iterator[CShared]:
        """Change the file alone; the word that says which copy is valid is written last."""
        with self.path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            shared = CShared.from_buffer_copy(os.pread(file.fileno(), sizeof(CShared), 0))
            yield shared
            written = bytes(shared)
            word = CShared.active.offset
            os.pwrite(file.fileno(), written[word + 4 :], word + 4)
            os.pwrite(file.fileno(), written[word : word + 4], word)

    @staticmethod
    def _gpu(machine: CMachine, uuid: str) -> tuple[int, CGpu]:
        for index in range(machine.gpu_count):
            if machine.gpus[index].uuid == uuid.encode():
                return index, machine.gpus[index]
        raise LookupError(f"no GPU {uuid!r}")

    @staticmethod
    def _place(gpu: CGpu, uuid: str | None) -> tuple[int, int]:
        if uuid is None:
            return NO_INSTANCE, NO_INSTANCE
        for instance in gpu.instances:
            for compute in instance.computes:
                if instance.used and compute.used and compute.uuid == uuid.encode():
                    return instance.id, compute.id
        raise LookupError(f"no MIG device {uuid!r}")
