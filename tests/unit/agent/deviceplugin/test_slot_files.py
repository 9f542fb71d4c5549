"""Slots on disk: content and holders over crashes, restarts and hostile leftovers."""

from pathlib import Path

import pytest

from agent.deviceplugin.container_edits import ContainerEdits, HostMount
from agent.deviceplugin.slot_files import SlotFiles
from agent.share import Owner

OWNER = Owner(uid="uid-1", namespace="team-a", pod="train-0", containers=("main",))
OTHER = Owner(uid="uid-2", namespace="team-a", pod="train-1", containers=("main",))
CONTENT = ContainerEdits(
    env=(("NVIDIA_VISIBLE_DEVICES", "GPU-1"),),
    mounts=(HostMount(host="/regions/uid-1_main", path="/tmp/vgpu/vgpu.cache", read_only=False),),
)
DOCUMENT = "vgpu-admission.io-slot_slot-0000.json"


def slots(root: Path, *, cdi: bool = True) -> SlotFiles:
    """Open the slots below *root* as a process that starts does."""
    slot_files = SlotFiles(root / "usr/local/vgpu", cdi=root / "cdi" if cdi else None)
    slot_files.recover()
    return slot_files


def test_a_holder_is_remembered_and_a_document_is_not(tmp_path: Path) -> None:
    """After a restart it is known whose processes to wait for; content is written anew."""
    slots(tmp_path).write(["slot-0000", "slot-0001"], OWNER, CONTENT)

    again = slots(tmp_path)

    assert again.used_slots == {"slot-0000", "slot-0001"}
    assert again.holders(["slot-0001"]) == {"uid-1"}
    assert list((tmp_path / "cdi").iterdir()) == []


def test_a_restart_leaves_other_vendors_documents(tmp_path: Path) -> None:
    """Only documents and drafts of ours are removed."""
    (tmp_path / "cdi").mkdir()
    for name in (DOCUMENT, f"{DOCUMENT}.new", "nvidia.com-gpu.json", "notes"):
        (tmp_path / "cdi" / name).write_text("{}")

    slots(tmp_path)

    assert {path.name for path in (tmp_path / "cdi").iterdir()} == {"nvidia.com-gpu.json", "notes"}


@pytest.mark.parametrize("left", [b"", b'{"uid', b"[]", b"\xff", b'{"uid": null}'])
def test_a_holder_cut_short_is_nobody(tmp_path: Path, left: bytes) -> None:
    """A power cut may leave anything; the slot then counts as free."""
    slots(tmp_path).write(["slot-0000"], OWNER, CONTENT)
    (tmp_path / "usr/local/vgpu/slots/slot-0000/holder").write_bytes(left)

    assert slots(tmp_path).used_slots == frozenset()


def test_writing_again_changes_no_file(tmp_path: Path) -> None:
    """A container that restarts wakes no runtime: its document stays the very file it was."""
    slot_files = slots(tmp_path)
    slot_files.write(["slot-0000"], OWNER, CONTENT)
    before = (tmp_path / "cdi" / DOCUMENT).stat()

    slot_files.write(["slot-0000"], OWNER, CONTENT)

    after = (tmp_path / "cdi" / DOCUMENT).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_emptying_twice_is_emptying(tmp_path: Path) -> None:
    """Allocate may come for slots that were never used."""
    slot_files = slots(tmp_path)
    slot_files.write(["slot-0000"], OWNER, CONTENT)

    for _ in range(2):
        slot_files.empty(["slot-0000", "slot-0007"])

    assert list((tmp_path / "cdi").iterdir()) == []
    assert slot_files.holders(["slot-0000"]) == {"uid-1"}


@pytest.mark.parametrize("cdi", [True, False], ids=["cdi", "folder"])
def test_a_sweep_forgets_who_is_gone(tmp_path: Path, cdi: bool) -> None:
    """What the dead held is empty and free, what the living hold is untouched, also later."""
    slot_files = slots(tmp_path, cdi=cdi)
    slot_files.write(["slot-0000"], OWNER, CONTENT)
    slot_files.write(["slot-0001"], OTHER, CONTENT)

    slot_files.sweep({"uid-2"})
    once = slot_files.used_slots
    slot_files.sweep({"uid-2"})

    assert once == {"slot-0000", "slot-0001"}  # it might have started meanwhile
    assert slot_files.used_slots == slots(tmp_path, cdi=cdi).used_slots == {"slot-0001"}
    assert not (tmp_path / "cdi" / DOCUMENT).exists()
    folder = tmp_path / "usr/local/vgpu/slots"
    assert not any(path.is_symlink() for path in (folder / "slot-0000").iterdir())


def test_a_sweep_spares_who_came_meanwhile(tmp_path: Path) -> None:
    """A slot that was handed on between two sweeps belongs to its new holder."""
    slot_files = slots(tmp_path)
    slot_files.write(["slot-0000"], OWNER, CONTENT)
    slot_files.sweep(set())
    slot_files.write(["slot-0000"], OTHER, CONTENT)

    slot_files.sweep(set())

    assert slot_files.holders(["slot-0000"]) == {"uid-2"}
    assert (tmp_path / "cdi" / DOCUMENT).exists()


def test_a_link_replaces_any_file_in_its_place(tmp_path: Path) -> None:
    """A link of another pod's, a leftover draft, or an empty file gives way."""
    slot_files = slots(tmp_path, cdi=False)
    slot_files.write(["slot-0000"], OTHER, ContainerEdits(env=()))
    folder = tmp_path / "usr/local/vgpu/slots/slot-0000"
    (folder / "vgpu.cache.new").symlink_to("/etc")
    (folder / "libvgpu.so").unlink()
    (folder / "libvgpu.so").write_text("")

    slot_files.write(["slot-0000"], OWNER, CONTENT)

    assert str((folder / "vgpu.cache").readlink()) == "/regions/uid-1_main"
    assert str((folder / "libvgpu.so").readlink()) == "/dev/null"
    assert not (folder / "vgpu.cache.new").is_symlink()


def test_the_mounts_of_a_container_outlive_the_process(tmp_path: Path) -> None:
    """Kubelet asks once for a container, and starts it again under the next agent."""
    slots(tmp_path, cdi=False).allocation(["slot-0001", "slot-0000"], soft=False)

    again = slots(tmp_path, cdi=False)

    assert again.lacks_mounts(["slot-0000", "slot-0001"])
    assert len(again.allocation(["slot-0000"], soft=True).mounts) == 4
    assert not slots(tmp_path, cdi=False).lacks_mounts(["slot-0000"])


def test_a_slot_that_cannot_be_marked_is_handed_out_with_its_mounts(tmp_path: Path) -> None:
    """Mounts too many do no harm; a share without them would have no limit."""
    slot_files = slots(tmp_path, cdi=False)
    (tmp_path / "usr/local/vgpu/slots/slot-0000").write_text("a file")

    assert len(slot_files.allocation(["slot-0000"], soft=False).mounts) == 4
    assert not slot_files.lacks_mounts(["slot-0000"])


def test_a_folder_of_no_slot_is_ignored(tmp_path: Path) -> None:
    """Whatever else lies there belongs to nobody."""
    (tmp_path / "usr/local/vgpu/slots/lost+found").mkdir(parents=True)
    (tmp_path / "usr/local/vgpu/slots/slot-0000").write_text("a file")

    assert slots(tmp_path).used_slots == frozenset()
