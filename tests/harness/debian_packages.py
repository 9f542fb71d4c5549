"""What of Debian's packages the tests need and this machine lacks.

``python -m tests.harness.debian_packages`` installs all of it where the suite is the gate, before
any test runs: installing takes longer than one test may. Elsewhere it names what is missing, and
the tests that need it are skipped.
"""

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.cluster.controlplane.build import cache_folder, to_stderr
from tests.cluster.gate import is_gate, missing

# By package: the programs of it that tests run. A program may be a pattern of a path.
BROWSER: Final = "chromium"
METRICS: Final = "prometheus"
DATABASE: Final = "postgresql"
IMAGE_TOOLS: Final = (
    "buildah",
    "debootstrap",
    "iptables",
    "iproute2",
    "containernetworking-plugins",
)
_PROGRAMS: Final = MappingProxyType(
    {
        BROWSER: ("chromium",),
        METRICS: ("prometheus", "promtool"),
        DATABASE: ("/usr/lib/postgresql/*/bin/initdb",),
        "buildah": ("buildah",),
        "debootstrap": ("debootstrap",),
        "iptables": ("iptables",),
        "iproute2": ("ip",),
        "containernetworking-plugins": ("/usr/lib/cni/bridge",),
    }
)


def require(*packages: str) -> None:
    """Skip where this machine lacks one of *packages*; where the suite is the gate, install it."""
    lacking = _lacking(packages)
    if lacking and is_gate() and not (problem := _install(lacking)):
        return
    if lacking:
        advice = f"apt-get install -y {' '.join(lacking)}"
        missing(f"not installed: {advice}{f': {problem}' if is_gate() else ''}")


def main() -> int:
    """Install or name what is lacking; return the exit code."""
    lacking = _lacking(_PROGRAMS)
    if lacking and not is_gate():
        to_stderr(f"tests skip what needs these: apt-get install -y {' '.join(lacking)}")
    elif lacking and (problem := _install(lacking)):
        to_stderr(problem)  # the tests that need them fail, and say so
    return 0


def _lacking(packages: Iterable[str]) -> list[str]:
    return [name for name in packages if not all(map(_is_there, _PROGRAMS[name]))]


def _is_there(program: str) -> bool:
    if "*" in program:
        return any(Path("/").glob(program.removeprefix("/")))
    return shutil.which(program) is not None


def _install(packages: Iterable[str]) -> str:
    """Install *packages*, one caller at a time as apt has one lock; return what went wrong."""
    names = sorted(packages)
    to_stderr(f"installing Debian's {' '.join(names)}")
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    options = ("--yes", "--quiet", "--no-install-recommends")
    with (folder / "packages.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (("update", "--quiet"), ("install", *options, *names)):
            done = subprocess.run(
                ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *command),
                capture_output=True,
                check=False,
                text=True,
            )
            if done.returncode:
                return f"apt-get {command[0]}: {done.stderr[-2000:]}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
