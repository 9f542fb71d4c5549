"""Real builds are told apart by their bytes, and those that cannot be held are not installed."""

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from agent.node.process_files import Processes
from agent.region.layout import library_problem
from agent.region.library_files import Absent, install_from
from agent.region.region_files import RegionFiles
from agent.share import NotYetError
from tests.cluster.gate import unable
from tests.harness.real_library import GENERATIONS, REFUSED, SERVED, build_of
from tests.integration.agent.shares import share

pytestmark = pytest.mark.library
RELEASES = {"B": "HAMi 2.4.0", "C": "HAMi 2.4.1 to 2.8.0", "D": "HAMi 2.8.1"}


@pytest.mark.parametrize("stripped", [False, True], ids=["as-built", "stripped"])
@pytest.mark.parametrize("commit", GENERATIONS)
def test_its_generation_is_known(commit: str, tmp_path: Path, *, stripped: bool) -> None:
    """Also without its table of symbols."""
    library = tmp_path / "libvgpu.so"
    shutil.copyfile(build_of(commit), library)
    if stripped:
        if shutil.which("strip") is None:
            unable("this machine has no strip")
        subprocess.run(["strip", library], check=True, capture_output=True)

    problem = library_problem(library.read_bytes())

    assert (problem == "") is (commit in SERVED)
    assert RELEASES.get(GENERATIONS[commit], "") in problem


@pytest.mark.parametrize("commit", REFUSED)
def test_a_container_does_not_start_with_what_cannot_be_held(commit: str, tmp_path: Path) -> None:
    """HAMi 2.8.1's waits 330 s for each first call, and is unlimited because of our region."""
    image, folder = tmp_path / "image", tmp_path / "usr/local/vgpu"
    image.mkdir()
    shutil.copyfile(build_of(commit), image / "libvgpu.so.v2")
    (tmp_path / "proc").mkdir()

    found = install_from(folder, image)
    node = RegionFiles(folder, Processes(tmp_path), library=found)

    assert isinstance(found, Absent)
    assert not folder.exists()
    release = RELEASES[GENERATIONS[commit]]
    with pytest.raises(NotYetError, match=f"hami-core is unavailable on this node: .*{release}"):
        asyncio.run(node.seed(share()))
