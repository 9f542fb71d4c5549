"""Containers made of namespaces of this machine, with the mounts that a runtime would make.

They have their own root, processes and, if asked for, users. What a GPU node's runtime brings
into them comes from stand-ins: the two driver libraries, and the folder ``/run/vgpu-driver``.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.deviceplugin.container_edits import HostMount
from tests.cluster.gate import unable
from tests.fakes import cuda
from tests.fakes.nvml import library as nvml
from tests.harness.cuda_program import CudaProgram, program

FIRST_ID: Final = 100_000  # the id on the node of root in a user namespace
_IDS: Final = 65_536  # in a user namespace
_SCRIPT: Final = Path(__file__).with_name("container.sh")
_DRIVER: Final = "/run/vgpu-driver"
_PROGRAM: Final = "/opt/cuda-program"
_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/"}
# What a container runtime leaves to root unless it is told otherwise.
_CAPABILITIES: Final = (
    *("-all", "+chown", "+dac_override", "+fowner", "+fsetid", "+kill", "+setgid", "+setuid"),
    *("+setpcap", "+net_bind_service", "+net_raw", "+sys_chroot", "+mknod", "+audit_write"),
    "+setfcap",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What of a container is not its mounts."""

    tmp_mode: int | None = 0o1777  # of /tmp; None: the image has none
    read_only: bool = False
    user_namespace: bool = False

    @property
    def owner(self) -> int:
        """Return the id on the node of the container's root user."""
        return FIRST_ID if self.user_namespace else 0


PLAIN: Final = Image()


@dataclass(slots=True)
class Container:
    """A running container; ``env`` is what a program finds that is started in it."""

    folder: Path
    image: Image
    env: Mapping[str, str]
    first_pid: int  # on the node, of its first process
    _programs: ExitStack = field(default_factory=ExitStack)
    _started: int = 0

    def run(
        self, *command: str, uid: int = 1000, env: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end as user *uid* of the container."""
        return subprocess.run(
            self._entering(uid, command),
            env=self.env if env is None else env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def program(
        self, *, uid: int = 1000, env: Mapping[str, str] | None = None, cleared: bool = False
    ) -> CudaProgram:
        """Start the CUDA program, with *cleared* by ``env -i``; it ends with the container."""
        self._started += 1
        errors = self.folder / f"errors-{self._started}"
        command = ("env", "-i", _PROGRAM) if cleared else (_PROGRAM,)
        with errors.open("wb") as file:
            process = subprocess.Popen(
                self._entering(uid, command),
                env=self.env if env is None else env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
            )
        return self._programs.enter_context(CudaProgram(process, errors))

    def close(self) -> None:
        """End the programs that still run."""
        self._programs.close()

    def _entering(self, uid: int, command: Sequence[str]) -> list[str]:
        user = ("--user",) if self.image.user_namespace else ()
        rights = (
            ("--bounding-set", ",".join(_CAPABILITIES), "--inh-caps=-all")
            if uid == 0
            else (f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
        )
        enter = ("nsenter", f"--target={self.first_pid}", "--mount", "--pid", *user, "--")
        return [*enter, "setpriv", *rights, "--", *command]


@contextmanager
def sandbox(image: Image) -> Iterator[int]:
    """Run the first process of a pod, which holds its namespaces; yield its pid on the node."""
    own = ("unshare", "--user") if image.user_namespace else ()
    command = ["setpriv", "--pdeathsig=KILL", *own, "sh", "-c", "echo ready && exec sleep infinity"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            if image.user_namespace:
                _map_users(process.pid)
            yield process.pid
        finally:
            process.kill()


@contextmanager
def container(
    folder: Path,
    driver: Path,
    *,
    mounts: Sequence[HostMount] = (),
    env: Mapping[str, str] | None = None,
    image: Image = PLAIN,
) -> Iterator[Container]:
    """Run a container below *folder*, with the socket and the machine in folder *driver*."""
    if os.geteuid() != 0:
        unable("containers need root")
    root = folder / "root"
    _make_root(root, image)
    own = (
        HostMount(host=str(cuda.library()), path=f"/lib/{cuda.SONAME}", read_only=True),
        HostMount(host=str(nvml.library()), path=f"/lib/{nvml.SONAME}", read_only=True),
        HostMount(host=str(program()), path=_PROGRAM, read_only=True),
        HostMount(host=str(driver), path=_DRIVER, read_only=False),
    )
    arguments = (str(root), str(image.owner), "ro" if image.read_only else "rw")
    spaces = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
    with subprocess.Popen(
        ["setpriv", "--pdeathsig=KILL", *spaces, "sh", _SCRIPT, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            first = _first_process(process, _table((*own, *mounts)), image)
            made = Container(folder, image, {**_ENVIRONMENT, **(env or {})}, first)
            try:
                yield made
            finally:
                made.close()
        finally:
            process.kill()


def _make_root(root: Path, image: Image) -> None:
    for name in ("usr", "proc", "dev", "etc", "run", "opt", "lib"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    # The loader looks into /lib itself too, which is where the stand-ins are mounted.
    for path in Path("/usr/lib").iterdir():
        if path.is_dir() and "-linux-gnu" in path.name:
            (root / "lib" / path.name).symlink_to(f"/usr/lib/{path.name}")
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n")
    if image.tmp_mode is not None:
        (root / "tmp").mkdir()
        (root / "tmp").chmod(image.tmp_mode)
    for path in (root, *root.iterdir()):
        os.chown(path, image.owner, image.owner, follow_symlinks=False)


def _table(mounts: Sequence[HostMount]) -> str:
    """Return the mounts as the script reads them, by depth as runtimes order them."""
    ordered = sorted(mounts, key=lambda mount: len(Path(mount.path).parts))
    return "".join(f"{m.host} {m.path} {'ro' if m.read_only else 'rw'}\n" for m in ordered)


def _first_process(process: "subprocess.Popen[str]", table: str, image: Image) -> int:
    """Return the pid of a container's first process once it has all its mounts."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(table)
    process.stdin.close()
    if process.stdout.readline() != "ready\n":
        why = process.stderr.read()
        (unable if "not permitted" in why else _broken)(f"no container: {why}")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    first = int(children[0])
    if image.user_namespace:
        _map_users(first)
    return first


def _map_users(pid: int) -> None:
    for name in ("gid_map", "uid_map"):
        Path(f"/proc/{pid}/{name}").write_text(f"0 {FIRST_ID} {_IDS}")


def _broken(why: str) -> None:
    raise RuntimeError(why)
