"""The interception library on the node: present, whole, and never changed under a running pod."""

import os
from pathlib import Path

import pytest

from agent.region.library_files import (
    LARGEST,
    Absent,
    Installed,
    install,
    missing_reason,
    sweep,
)
from tests.fakes.hami_core import library_bytes

OLD = library_bytes(tail=b"old")
NEW = library_bytes(tail=b"new")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "image.so"
    path.write_bytes(OLD)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "node"


def installed(root: Path, source: Path) -> Installed:
    found = install(root / "usr/local/vgpu", source)
    assert isinstance(found, Installed)
    return found


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "usr/local/vgpu").iterdir())


def test_containers_find_what_they_mount(root: Path, source: Path) -> None:
    """The library, the file that preloads it, and the one that preloads nothing."""
    name = installed(root, source).name
    folder = root / "usr/local/vgpu"

    assert (folder / "libvgpu.so").read_bytes() == (folder / name).read_bytes() == OLD
    assert (folder / "ld.so.preload").read_text() == "/usr/local/vgpu/libvgpu.so\n"
    assert (folder / "ld.so.preload.empty").read_bytes() == b""
    assert names(root) == ["ld.so.preload", "ld.so.preload.empty", "libvgpu.so", name]


def test_installing_twice_changes_nothing(root: Path, source: Path) -> None:
    """Not even the time of a file: running pods have it mapped."""
    installed(root, source)
    before = [path.stat() for path in sorted((root / "usr/local/vgpu").iterdir())]

    installed(root, source)

    after = [path.stat() for path in sorted((root / "usr/local/vgpu").iterdir())]
    assert [(s.st_ino, s.st_mtime_ns) for s in after] == [(s.st_ino, s.st_mtime_ns) for s in before]


def test_a_library_that_others_put_in_its_place_is_not_ours(root: Path, source: Path) -> None:
    """Another plugin installs its own under the same name; ours has the limits that we count on."""
    found = installed(root, source)
    assert missing_reason(root / "usr/local/vgpu", found) == ""
    name = root / "usr/local/vgpu/libvgpu.so"
    name.unlink()
    name.write_bytes(NEW)

    assert "restart the agent" in missing_reason(root / "usr/local/vgpu", found)


def test_an_upgrade_leaves_the_file_that_pods_have_open(root: Path, source: Path) -> None:
    """The name goes to the new file; the old one is what it was, until nobody needs it."""
    old = installed(root, source)
    with (root / "usr/local/vgpu/libvgpu.so").open("rb") as mapped:
        source.write_bytes(NEW)
        new = installed(root, source)

        assert mapped.read() == OLD
    assert (root / "usr/local/vgpu/libvgpu.so").read_bytes() == NEW
    assert (root / "usr/local/vgpu" / old.name).read_bytes() == OLD
    (root / "usr/local/vgpu/libvgpu.so.v2.10.0").touch()  # another plugin's
    (root / "usr/local/vgpu/libvgpu.so.0a1b2c3d.unfinished").touch()
    assert sweep(root / "usr/local/vgpu", new) == ("libvgpu.so.0a1b2c3d.unfinished", old.name)
    assert names(root) == [
        *("ld.so.preload", "ld.so.preload.empty", "libvgpu.so"),
        *sorted((new.name, "libvgpu.so.v2.10.0")),
    ]


def test_what_another_plugin_copied_there_is_replaced_not_overwritten(
    root: Path, source: Path
) -> None:
    """Volcano's plugin copies into the one file; its pods go on with it."""
    folder = root / "usr/local/vgpu"
    folder.mkdir(parents=True)
    (folder / "libvgpu.so").write_bytes(NEW)
    with (folder / "libvgpu.so").open("rb") as mapped:
        installed(root, source)

        assert mapped.read() == NEW
    assert (folder / "libvgpu.so").read_bytes() == OLD


def test_half_a_file_is_finished(root: Path, source: Path) -> None:
    """A disk that lost what was written brings no broken library into containers."""
    name = installed(root, source).name
    (root / "usr/local/vgpu/libvgpu.so").unlink()
    (root / "usr/local/vgpu" / name).write_bytes(OLD[:3])

    installed(root, source)

    assert (root / "usr/local/vgpu/libvgpu.so").read_bytes() == OLD


@pytest.mark.parametrize("generation", ["A", "B", "C", "D"])
def test_a_library_of_another_generation_is_refused(
    root: Path, source: Path, generation: str
) -> None:
    """It would abort every CUDA program, or run it without limits because of the agent's region."""
    source.write_bytes(library_bytes(generation))

    found = install(root / "usr/local/vgpu", source)

    assert isinstance(found, Absent)
    assert str(source) in found.why
    assert "HAMi 2." in found.why
    assert not root.exists()


def test_what_is_installed_outlives_a_refusal(root: Path, source: Path) -> None:
    """Running pods have it mapped, and restart with it; only new starts wait for a better image."""
    name = installed(root, source).name
    source.write_bytes(library_bytes("D"))

    assert isinstance(install(root / "usr/local/vgpu", source), Absent)
    assert (root / "usr/local/vgpu/libvgpu.so").read_bytes() == OLD
    assert (root / "usr/local/vgpu" / name).read_bytes() == OLD


@pytest.mark.parametrize("kind", ["fifo", "folder", "device", "huge"])
def test_reading_a_library_ends(root: Path, source: Path, kind: str) -> None:
    """Whatever an image has in its place, and however much of it."""
    source.unlink()
    if kind == "fifo":
        os.mkfifo(source)
    elif kind == "folder":
        source.mkdir()
    elif kind == "device":
        source.symlink_to("/dev/zero")
    else:
        source.write_bytes(OLD)
        os.truncate(source, LARGEST + 1)

    assert isinstance(install(root / "usr/local/vgpu", source), Absent)
    assert not root.exists()


@pytest.mark.parametrize("content", [None, b"#!"], ids=["absent", "no-library"])
def test_an_image_without_the_library_is_a_state(
    root: Path, source: Path, content: bytes | None
) -> None:
    """The agent says so and serves MIG."""
    source.unlink()
    if content is not None:
        source.write_bytes(content)

    found = install(root / "usr/local/vgpu", source)

    assert isinstance(found, Absent)
    assert str(source) in found.why
    assert not root.exists()


def test_a_node_that_cannot_be_written_is_a_state(root: Path, source: Path) -> None:
    """Some systems have no place for it."""
    root.mkdir()
    (root / "usr").write_text("a file")

    assert isinstance(install(root / "usr/local/vgpu", source), Absent)
