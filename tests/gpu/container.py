"""CUDA programs, alone and in a container: region, variables and mounts as the product makes them.

The container is a mount namespace where this machine allows one (``room.py``). Otherwise the
library is preloaded by a variable, as no container of the product does, and what depends on mounts
is skipped.
"""

import asyncio
import json
import os
import select
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from types import TracebackType
from typing import Any, Final, Self

from agent.deviceplugin.container_edits import ContainerEdits, hami_core_edits
from agent.driver.driver import Device, Driver
from agent.monitor.inspection_thread import InspectedNode, InspectionResult, Inspector
from agent.monitor.violation import LocalPod
from agent.node.process_files import Processes
from agent.region.library_files import NAME, Absent, install
from agent.region.region_files import FILE, RegionFiles
from agent.share import Owner, Share
from allocator.model.allocation import Grant
from allocator.model.request import Mode
from allocator.model.units import CorePercent, MiB
from tests.gpu import room, tenant
from tests.gpu.child_program import ChildProgram
from tests.gpu.report import FailedError, SkippedError

Answer = Mapping[str, Any]
PATIENCE: Final = 90.0  # seconds for one answer; the first of a program initializes the driver
OUT_OF_MEMORY: Final = 2  # CUDA_ERROR_OUT_OF_MEMORY
# What a program needs to find the driver's libraries, and a stand-in for them its machine.
_DRIVER_VARIABLES: Final = ("LD_LIBRARY_PATH", "VGPU_FAKE_NVML", "VGPU_FAKE_CUDA")
_CONTAINER_ID: Final = "0123456789abcdef" * 4
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MIB: Final = 1 << 20


class CudaProcess(ChildProgram[bytes]):
    """A running ``tenant.py``, or another program that obeys as it does; closing it kills it."""

    def __init__(
        self, before: Sequence[str], env: Mapping[str, str], program: Sequence[str] = ()
    ) -> None:
        """Start it after the words *before*, with exactly *env* in its environment."""
        self._errors = TemporaryFile()  # noqa: SIM115 -- closed with the process
        process = subprocess.Popen(
            [*before, *(program or _python(tenant.__file__))],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        super().__init__(process, self._errors)
        self._unread = b""

    def order(self, name: str, **arguments: float | str) -> None:
        """Give an order; ``tenant.py`` lists them."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"order": name, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise FailedError(self._end_text(name)) from error

    def answer(self, name: str, within: float = PATIENCE) -> Answer | None:
        """Return the answer to the order *name*, ``None`` if there is none *within* seconds."""
        assert self._process.stdout is not None
        fd, end = self._process.stdout.fileno(), time.monotonic() + within
        while b"\n" not in self._unread:
            if not select.select([fd], [], [], max(0.0, end - time.monotonic()))[0]:
                return None
            part = os.read(fd, 65536)
            if not part:
                raise FailedError(self._end_text(name))
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        found: Answer = json.loads(line)
        return found

    def ask(self, name: str, **arguments: float | str) -> Answer:
        """Give an order and return its answer."""
        self.order(name, **arguments)
        answer = self.answer(name)
        if answer is None:
            raise FailedError(f"{name} was not answered within {PATIENCE:g} s")
        return answer

    def open(self, device: int) -> Answer:
        """Make a context on a device; skips the check where there is no CUDA."""
        answer = self.ask("open", device=device)
        if answer["code"] == tenant.NO_LIBRARY:
            raise SkippedError(f"no CUDA here: {answer['call']}")
        return _require_success(answer)

    def allocate(self, size: MiB) -> bool:
        """Allocate, and say whether there was room."""
        answer = self.ask("alloc", bytes=size * MIB)
        if answer["code"] == OUT_OF_MEMORY:
            return False
        _require_success(answer)
        return True

    def figures(self, name: str, **arguments: float | str) -> Answer:
        """Return the answer to an order that must succeed."""
        return _require_success(self.ask(name, **arguments))

    def _end_text(self, name: str) -> str:
        code = self._process.wait(PATIENCE)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        return f"the program ended with {code} during {name}: {' / '.join(lines[-3:])}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What all checks work with."""

    driver: Driver
    devices: tuple[Device, ...]
    folder: Path  # scratch
    no_rooms: str  # why there is no mount namespace here; empty: there are some

    @property
    def device(self) -> Device:
        """Return the GPU for CUDA programs; skips the check where there is none."""
        whole = [each for each in self.devices if each.mig is None or not each.mig.current]
        if not whole:
            raise SkippedError("every GPU is in MIG mode, and programs here need a whole one")
        return whole[0]

    def program(self, program: Sequence[str] = ()) -> CudaProcess:
        """Start a program outside any container, which sees all GPUs in PCI order."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
        return CudaProcess((), {**env, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, program)


@dataclass(slots=True)
class Container:
    """A container with a slice of one GPU, and the monitor that looks at it."""

    bench: Bench
    device: Device
    share: Share
    edits: ContainerEdits
    host_root: Path
    region: Path  # folder
    inspector: Inspector
    proc: Path  # stands for /proc, where the container's processes are a pod's
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def limit(self) -> MiB:
        """Return the memory of the slice."""
        return self.share.grants[0].memory

    def program(self, *, empty: bool = False) -> CudaProcess:
        """Start a program in the container, *empty* without the variables of the container."""
        process = self.start(empty=empty)
        process.open(0)
        return process

    def start(self, program: Sequence[str] = (), *, empty: bool = False) -> CudaProcess:
        """Start a program that has no context yet: ``tenant.py``, or the words of another."""
        kept = {name: os.environ[name] for name in _DRIVER_VARIABLES if name in os.environ}
        env = kept if empty else {"PATH": _PATH, **kept, **dict(self.edits.env)}
        if self.bench.no_rooms:
            library = str(self.host_root / NAME)
            env |= {"LD_PRELOAD": library, "CUDA_REDIRECT": library}
            env |= {"CUDA_DEVICE_MEMORY_SHARED_CACHE": str(self.region / FILE)}
            process = CudaProcess((), env, program)
        else:
            hidden = [f"/dev/nvidia{d.minor}" for d in self.bench.devices if d != self.device]
            mounts = [
                {"host": mount.host, "path": mount.path, "read_only": mount.read_only}
                for mount in self.edits.mounts
            ]
            before = room_command(self.bench.folder, mounts=mounts, hidden=hidden, env=env)
            process = CudaProcess(before, dict(os.environ), program)
        self._stack.enter_context(process)
        self._enrol(process.pid)
        return process

    @property
    def pods(self) -> Mapping[str, LocalPod]:
        """Return the one pod of the node, as the API server would describe it."""
        owner = self.share.owner
        ids = {_CONTAINER_ID: owner.container}
        pod = LocalPod(uid=owner.uid, namespace=owner.namespace, name=owner.pod, containers=ids)
        return {owner.uid: pod}

    def inspect(self) -> InspectionResult:
        """Let the product's monitor look at the container once, with the driver's processes."""
        node = InspectedNode(
            devices=self.bench.devices,
            shares=(self.share,),
            pods=self.pods,
            answered=frozenset({self.device.uuid}),
        )
        return self.inspector.inspect(self.bench.driver.processes(self.device.uuid), node)

    def _enrol(self, pid: int) -> None:
        """Show a process in the container's ``/proc`` as one of a pod; the rest is the kernel's."""
        folder = self.proc / str(pid)
        folder.mkdir()
        for name in ("stat", "status", "maps"):
            (folder / name).symlink_to(f"/proc/{pid}/{name}")
        path = f"0::/kubepods/burstable/pod{self.share.owner.uid}/{_CONTAINER_ID}\n"
        (folder / "cgroup").write_text(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


def new_container(bench: Bench, library: Path, *, memory: MiB, cores: int) -> Container:
    """Prepare a container with a slice of the bench's GPU, for the build *library*."""
    device = bench.device
    if bench.no_rooms and len(bench.devices) > 1:
        raise SkippedError(f"other GPUs cannot be hidden here: {bench.no_rooms}")
    root = Path(mkdtemp(prefix="node-", dir=bench.folder))
    (root / "proc").mkdir()
    host_root = root / "usr/local/vgpu"
    installed = install(host_root, library)
    if isinstance(installed, Absent):
        raise FailedError(installed.why)
    owner = Owner(uid=str(uuid.uuid4()), namespace="gpu", pod="slice", containers=("main",))
    grant = Grant(gpu=device.uuid, mode=Mode.HAMI_CORE, memory=memory, cores=CorePercent(cores))
    share = Share(owner=owner, grants=(grant,), key="c0")
    processes = Processes(root)
    regions = RegionFiles(host_root, processes, library=installed)
    region = asyncio.run(regions.seed(share))
    return Container(
        bench=bench,
        device=device,
        share=share,
        edits=hami_core_edits(share, library=str(host_root), region=region),
        host_root=host_root,
        region=Path(region),
        inspector=Inspector(regions, processes),
        proc=root / "proc",
    )


def room_command(
    folder: Path, *, mounts: Sequence[Mapping[str, object]], hidden: Sequence[str],
    env: Mapping[str, str],
) -> list[str]:  # fmt: skip
    """Return the words before a command that is to run in a room."""
    base = mkdtemp(prefix="room-", dir=folder)
    spec = {"base": base, "mounts": mounts, "hidden": hidden, "env": env}
    return [*_python(room.__file__), json.dumps(spec)]


def no_rooms_reason(folder: Path) -> str:
    """Return why a room cannot be made on this machine; empty if it can."""
    command = room_command(folder, mounts=(), hidden=(), env={})
    try:
        tried = subprocess.run(
            [*command, sys.executable, "-ISc", ""],
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "a mount namespace was not ready in time"
    if tried.returncode == 0:
        return ""
    why = tried.stderr.strip().splitlines()[-1:] or [f"exit code {tried.returncode}"]
    return f"no mount namespace can be made: {why[0]}"


def _python(script: str) -> list[str]:
    return [sys.executable, "-IS", script]


def _require_success(answer: Answer) -> Answer:
    if answer["code"]:
        raise FailedError(f"{answer['call']} returned {answer['code']}")
    return answer
