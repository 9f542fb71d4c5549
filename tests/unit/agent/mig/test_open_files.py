"""Holders: the processes that keep a device open are found by what they have open."""

from pathlib import Path

import pytest

from agent.mig.open_files import FileHolder, OpenFiles

CAP = "/dev/nvidia-caps/nvidia-cap12"


def process(root: Path, pid: int, name: str, *files: str) -> None:
    folder = root / "proc" / str(pid) / "fd"
    folder.mkdir(parents=True)
    (folder.parent / "comm").write_text(f"{name}\n")
    for number, file in enumerate(files):
        (folder / str(number)).symlink_to(file)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        pytest.param((CAP,), True, id="the-file"),
        pytest.param(("/dev/null", CAP), True, id="among-others"),
        pytest.param(("/dev/nvidia-caps/nvidia-cap123",), False, id="a-longer-name"),
        pytest.param((), False, id="nothing"),
    ],
)
def test_a_process_is_a_holder_by_its_open_files(
    tmp_path: Path, files: tuple[str, ...], found: bool
) -> None:
    """Exactly the processes with one of the paths open are told."""
    process(tmp_path, 17, "dcgm", *files)

    holders = OpenFiles(tmp_path).holders_of({CAP})

    assert holders == ((FileHolder(17, "dcgm"),) if found else ())


def test_hostile_names_and_vanished_processes_do_no_harm(tmp_path: Path) -> None:
    """A name is a process's own choice; what is no process, or gone, is passed over."""
    process(tmp_path, 9, "a\x1b[31mb" + "c" * 99, CAP)
    (tmp_path / "proc/10").mkdir()
    (tmp_path / "proc/self").mkdir()

    (holder,) = OpenFiles(tmp_path).holders_of({CAP})

    assert str(holder).startswith("pid 9 (a?[31mbccc")
    assert len(holder.name) <= 32


def test_a_node_without_proc_has_no_holders(tmp_path: Path) -> None:
    """Where nothing can be looked at, nobody is told."""
    assert OpenFiles(tmp_path).holders_of({CAP}) == ()
