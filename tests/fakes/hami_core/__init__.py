"""A container's program under the interception library, played by a C program of ours.

It is built from what is known of the binary layout alone, so that it and the agent's tables are
two accounts of the same facts.
"""

import os
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.fakes.native import built
from tests.gpu.child_program import ChildProgram

SOURCE: Final = Path(__file__).parent / "source"
_EMPTY: Final = Path(__file__).parent / "empty"
_FLAGS: Final = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread")


def program(generation: str = "E", *flags: str) -> Path:
    """Return the program whose region is of one generation, A to E, built with further *flags*."""
    return built(SOURCE, "hami-core", [*_FLAGS, *flags, f"-DGENERATION='{generation}'"])


def empty_library() -> Path:
    """Return a library that the agent serves, and that intercepts nothing."""
    return built(_EMPTY, "libvgpu.so", ("-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"))


def library_bytes(generation: str = "E", *, tail: bytes = b"") -> bytes:
    """Return what the file of a library has that tells its generation, A to E."""
    sizes = {"A": 804680, "B": 1197896, "C": 2008952, "D": 2008984, "E": 2008952}
    header = struct.pack("<4sBBB9xHHI", b"\x7fELF", 2, 1, 1, 3, 62, 1)
    text = b"failed to take the postinit semaphore\0" if generation in "DE" else b""
    return header + 3 * (b"\xbe" + struct.pack("<I", sizes[generation])) + text + tail


class Tenant(ChildProgram[str]):
    """A running process of a container; closing it kills what still runs."""

    def __init__(
        self,
        region: Path,
        *,
        uuids: tuple[str, ...] = (),
        generation: str = "E",
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start it, and wait until it is attached to *region*."""
        variables = {
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(region),
            "PLAYED_UUIDS": ",".join(uuids),
        }
        process = subprocess.Popen(
            [program(generation)],
            env=variables | dict(env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        super().__init__(process)
        self.attached = self._answer()

    def tell(self, command: str) -> str:
        """Return the answer to one command; ``library.c`` lists them."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._answer()

    def exit(self) -> None:
        """End as a program does."""
        self.tell("exit")
        self._process.wait(10)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def offsets(generation: str) -> tuple[int, ...]:
    """Return what the compiler makes of the region's struct; ``library.c`` has the order."""
    answer = subprocess.run(
        [program(generation), "offsets"], capture_output=True, text=True, check=True, timeout=30
    )
    return tuple(map(int, answer.stdout.split()))


def enrol(proc: Path, pid: int, *, uid: str, container: str, inner: int | None = None) -> None:
    """Tell in a folder that stands for ``/proc`` where process *pid* runs; its maps are its own."""
    folder = proc / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    real = Path("/proc") / str(pid)
    (folder / "stat").write_text((real / "stat").read_text())
    (folder / "status").write_text(f"Name:\tx\nNSpid:\t{pid}\t{inner or pid}\n")
    (folder / "cgroup").write_text(f"0::/kubepods/burstable/pod{uid}/{container}\n")
    for name in ("maps", "uid_map"):
        if not os.path.lexists(folder / name):
            (folder / name).symlink_to(real / name)


def bury(proc: Path, pid: int) -> None:
    """Take a process out of the folder again, as the kernel does when one has ended."""
    folder = proc / str(pid)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
