"""How the programs of the cluster tests are compiled once and kept outside the tree.

Run as `python -m tests.cluster.controlplane.build [name …]`; it prints where each program lies.
With `--all` none is left for a test to build, whose time would run out on a machine without any.
"""

import argparse
import fcntl
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.controlplane import toolchain
from tests.cluster.controlplane.binaries import BINARIES, DEFAULT, Binary, Module
from tests.cluster.controlplane.toolchain import BuildError, Go, Say

_REPORT_EVERY = 15.0


def build(names: Iterable[str], say: Say) -> dict[str, Path]:
    """Return an executable for each name, compiling those that are neither given nor cached."""
    given = {name: _given(name) for name in names}
    try:
        cached = _cached([name for name, path in given.items() if path is None], say)
    except (OSError, subprocess.CalledProcessError) as error:  # no room, no rights, no ensurepip
        raise BuildError(f"cannot build below {cache_folder()}: {error}") from error
    return {name: path or cached[name] for name, path in given.items()}


def cache_folder() -> Path:
    """Where built programs live: VGPU_CACHE, or the user's cache folder."""
    if chosen := os.environ.get("VGPU_CACHE"):
        return Path(chosen).expanduser().absolute()
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser().absolute() / "vgpu-admission"


def _given(name: str) -> Path | None:
    """Return the program the environment names, by the variables of envtest."""
    if name not in BINARIES:
        raise BuildError(f"no program {name!r}; there are {', '.join(BINARIES)}")
    variable = f"TEST_ASSET_{name.upper().replace('-', '_')}"
    if chosen := os.environ.get(variable):
        if not os.access(chosen, os.X_OK):
            raise BuildError(f"{variable} names {chosen!r}, which is not an executable file")
        return Path(chosen).absolute()
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        # envtest ships no kube-controller-manager, so a folder without one is not an error.
        path = Path(assets, name).absolute()
        return path if os.access(path, os.X_OK) else None
    return None


def _cached(names: list[str], say: Say) -> dict[str, Path]:
    wanted = {name: BINARIES[name] for name in names}
    if not wanted:
        return {}
    cache = cache_folder()
    go = toolchain.locate(max(b.module.needs_go for b in wanted.values()), cache, say)
    folder = cache / "controlplane"
    targets = {name: folder / _key(b.module, go) / name for name, b in wanted.items()}
    if not all(target.exists() for target in targets.values()):
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder / "lock", say):
            for name, target in targets.items():
                if not target.exists():
                    _compile(wanted[name], target, go=go, say=say)
    return targets


def _key(module: Module, go: Go) -> str:
    digest = hashlib.sha256("\0".join((go.version, *module.flags)).encode())
    for name in ("go.mod", "go.sum"):
        digest.update((module.folder / name).read_bytes())
    return f"{module.name}-{module.version}-{digest.hexdigest()[:12]}"


@contextmanager
def _alone(lock: Path, say: Say) -> Iterator[None]:
    """Hold the lock: two builds at once would do the same work twice on the same cores."""
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another process that is building")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _compile(binary: Binary, target: Path, *, go: Go, say: Say) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    log = target.with_name(f"{target.name}.log")
    command: list[str | Path] = [
        go.executable,
        "build",
        *binary.module.flags,
        "-o",
        unfinished,
        binary.package,
    ]
    started = time.monotonic()
    pinned = f"{binary.module.name} {binary.module.version}"
    say(f"building {target.name} ({pinned}) with {go.version}")
    try:
        status = _run(command, log, module=binary.module, name=target.name, say=say)
        if status:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
            raise BuildError(f"go build {binary.package} ended with {status}:\n{tail}")
        unfinished.rename(target)
    finally:
        unfinished.unlink(missing_ok=True)
    size = target.stat().st_size / 1e6
    say(f"built {target.name} in {time.monotonic() - started:.0f} s, {size:.0f} MB")


def _run(command: list[str | Path], log: Path, *, module: Module, name: str, say: Say) -> int:
    started = time.monotonic()
    with (
        log.open("wb") as sink,
        subprocess.Popen(
            command,
            cwd=module.folder,
            env=toolchain.environment(cgo=module.cgo),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            while True:
                try:
                    return process.wait(timeout=_REPORT_EVERY)
                except subprocess.TimeoutExpired:
                    say(f"building {name}: {time.monotonic() - started:.0f} s")
        finally:
            process.terminate()  # does nothing to one that has ended


def to_stderr(line: str) -> None:
    """Tell a person at a terminal, apart from the paths on standard output."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="controlplane.build")
    parser.add_argument("names", nargs="*", default=DEFAULT, metavar="name", help="what to build")
    parser.add_argument("--all", action="store_true", help="build whatever any test needs")
    options = parser.parse_args()
    try:
        programs = build(BINARIES if options.all else options.names, to_stderr)
    except BuildError as error:
        to_stderr(str(error))
        return 1
    sys.stdout.writelines(f"{path}\n" for path in programs.values())
    return 0


if __name__ == "__main__":
    sys.exit(_main())
