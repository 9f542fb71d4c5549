"""The library of our image is found, and where nothing is limited nothing is preloaded."""

from pathlib import Path

import pytest

from agent.region.library_files import Absent, Installed, install_from, install_simulated
from tests.fakes.hami_core import library_bytes

LIBRARY = library_bytes()


@pytest.mark.parametrize(
    "place", ["libvgpu.so", "lib/nvidia/libvgpu.so", "lib/nvidia/libvgpu.so.v2"]
)
def test_the_library_is_found_where_images_have_it(tmp_path: Path, place: str) -> None:
    """Its authors' image puts a version behind the name."""
    source = tmp_path / "image" / place
    source.parent.mkdir(parents=True)
    source.write_bytes(LIBRARY)

    found = install_from(tmp_path / "node" / "usr/local/vgpu", tmp_path / "image")

    assert isinstance(found, Installed)
    assert (tmp_path / "node/usr/local/vgpu/libvgpu.so").read_bytes() == LIBRARY


def test_an_image_without_a_library_says_so(tmp_path: Path) -> None:
    """Containers that it should limit do not start, and their users read why."""
    found = install_from(tmp_path / "node" / "usr/local/vgpu", tmp_path / "image")

    assert isinstance(found, Absent)
    assert str(tmp_path / "image/libvgpu.so") in found.why


def test_what_is_played_acts_on_nothing(tmp_path: Path) -> None:
    """A preload that named a file which is no library would make every program complain."""
    folder = tmp_path / "usr/local/vgpu"

    assert (
        install_simulated(tmp_path / "usr/local/vgpu")
        == install_simulated(tmp_path / "usr/local/vgpu")
        == Installed("libvgpu.so")
    )
    assert (folder / "ld.so.preload").read_bytes() == b""
    assert (folder / "ld.so.preload.empty").read_bytes() == b""
    assert {path.name for path in folder.iterdir()} == {
        *("libvgpu.so", "ld.so.preload", "ld.so.preload.empty"),
    }


def test_a_disk_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """The agent goes on: MIG needs no library."""
    (tmp_path / "usr").write_text("in the way")

    assert isinstance(install_simulated(tmp_path / "usr/local/vgpu"), Absent)
