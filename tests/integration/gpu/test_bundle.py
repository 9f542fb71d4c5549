"""The folder for a machine without network has all that the checks need, and little else."""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

from tests.fakes.driver import machine
from tests.fakes.nvml.library import library as nvml
from tests.fakes.nvml.machine import Machine
from tests.gpu.bundle import PACKAGES, ROOT, copy_files, requirements_of


def _link_packages(site: Path) -> None:
    """Show in *site* the packages that the bundle carries, as they are installed here."""
    site.mkdir()
    for package in PACKAGES:
        files = importlib.metadata.files(package) or ()
        here = {file.parts[0] for file in files if not file.parts[0].startswith(("..", "__"))}
        for name in here:
            (site / name).symlink_to(
                Path(str(importlib.metadata.distribution(package).locate_file(name)))
            )


def test_it_runs_alone(tmp_path: Path) -> None:
    """Without this repository, the packages of this environment, or any variable."""
    folder, build = tmp_path / "bundle", tmp_path / "libvgpu-x.so"
    build.write_bytes(b"\x7fELF")
    copy_files(folder, [build])
    _link_packages(folder / "site")
    Machine(tmp_path / "machine", machine("Tesla T4"))

    done = subprocess.run(
        [sys.executable, "-ES", folder],
        env={"LD_LIBRARY_PATH": str(nvml().parent), "VGPU_FAKE_NVML": str(tmp_path / "machine")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "pass catalogue" in done.stdout
    assert "no build in" in done.stdout  # the folder of builds is the bundle's own


def test_its_packages_are_those_of_the_image() -> None:
    """The same versions, held by the same hashes."""
    lock = (ROOT / "requirements/run.txt").read_text()
    found = requirements_of(lock)

    assert re.findall(r"(?m)^([a-z-]+)==", found) == sorted(PACKAGES)
    assert found.count("--hash=sha256:") > len(PACKAGES)
    assert all(line in lock for line in found.splitlines())
