"""Capability devices: found by the GPU's minor, made where missing, and loudly absent otherwise."""

import errno
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.mig.device_files import Capabilities, CapabilityError, HostFiles
from agent.share import DeviceNode

# As a driver writes them: mig-minors lists all instances there could be, in steps of 135 per GPU.
DEVICES = """\
Character devices:
  1 mem
195 nvidia
195 nvidiactl
234 nvidia-caps
509 nvidia-uvm

Block devices:
  7 loop
500 nvidia-caps
"""
MINORS = "config 1\nmonitor 2\n" + "".join(
    f"gpu{gpu}/gi{gi}/access {3 + 135 * gpu + 9 * gi}\n"
    + "".join(f"gpu{gpu}/gi{gi}/ci{ci}/access {4 + 135 * gpu + 9 * gi + ci}\n" for ci in range(8))
    for gpu in range(3)
    for gi in range(15)
)


@dataclass
class RecordingDeviceFiles:
    """Device files where a test may not make any; ``refused`` cannot be made."""

    made: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    refused: str = "nothing"
    root: Path = Path("/")

    def numbers(self, path: Path) -> tuple[int, int] | None:
        numbers = self.made.get(self._below(path))
        return None if numbers is None else numbers[:2]

    def make(self, path: Path, node: DeviceNode, mode: int) -> None:
        if self.refused in node.path:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        self.made[self._below(path)] = (node.major, node.minor, mode)

    def _below(self, path: Path) -> str:
        return str(path.relative_to(self.root))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "proc/driver/nvidia-caps").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia-caps/mig-minors").write_text(MINORS)
    (tmp_path / "proc/devices").write_text(DEVICES)
    return tmp_path


def test_an_instance_is_reached_by_six_files(root: Path) -> None:
    """Both capabilities are those of the GPU's minor, and what all of CUDA needs is there too."""
    files = RecordingDeviceFiles(root=root)

    nodes = Capabilities(root, files=files).nodes(2, 9, 0)

    assert nodes == (
        DeviceNode("/dev/nvidiactl", 195, 255),
        DeviceNode("/dev/nvidia-uvm", 509, 0),
        DeviceNode("/dev/nvidia-uvm-tools", 509, 1),
        DeviceNode("/dev/nvidia2", 195, 2),
        DeviceNode("/dev/nvidia-caps/nvidia-cap354", 234, 354),
        DeviceNode("/dev/nvidia-caps/nvidia-cap355", 234, 355),
    )
    assert files.made["dev/nvidia-caps/nvidia-cap354"] == (234, 354, 0o444)
    assert files.made["dev/nvidia2"] == (195, 2, 0o666)


def test_what_is_there_is_left_and_what_is_outdated_is_made_anew(root: Path) -> None:
    """A file with the right numbers stays; one of a driver loaded before is replaced."""
    files = RecordingDeviceFiles(root=root)
    capabilities = Capabilities(root, files=files)
    capabilities.nodes(0, 1, 0)
    files.made["dev/nvidia0"] = (195, 0, 0o600)
    (root / "proc/devices").write_text(DEVICES.replace("234", "235"))

    nodes = capabilities.nodes(0, 1, 0)

    assert nodes[-1].major == 235
    assert files.made["dev/nvidia-caps/nvidia-cap12"] == (235, 12, 0o444)
    assert files.made["dev/nvidia0"] == (195, 0, 0o600)


@dataclass(frozen=True, kw_only=True)
class MissingFileCase:
    """What is wrong with a node."""

    devices: str = DEVICES
    minors: str = MINORS
    refused: str = "nothing"


@pytest.mark.parametrize(
    ("flaw", "words"),
    [
        pytest.param(
            MissingFileCase(minors="config 1\n"),
            "has no line for gpu0/gi1/access",
            id="unknown-instance",
        ),
        pytest.param(
            MissingFileCase(devices=DEVICES.replace("nvidia-uvm", "other")),
            "/dev/nvidia-uvm is missing: /proc/devices has no nvidia-uvm",
            id="module-not-loaded",
        ),
        pytest.param(
            MissingFileCase(refused="nvidia-cap12"),
            "/dev/nvidia-caps/nvidia-cap12 cannot be created: Operation not permitted",
            id="no-permission",
        ),
        pytest.param(
            MissingFileCase(devices=DEVICES.replace("234 nvidia-caps\n", "")),
            "has no nvidia-caps",
            id="block-devices-do-not-count",
        ),
    ],
)
def test_a_missing_file_is_named(root: Path, flaw: MissingFileCase, words: str) -> None:
    """Without one of its files an instance is of no use, and the error says which and why."""
    (root / "proc/devices").write_text(flaw.devices)
    (root / "proc/driver/nvidia-caps/mig-minors").write_text(flaw.minors)
    files = RecordingDeviceFiles(root=root, refused=flaw.refused)

    with pytest.raises(CapabilityError) as raised:
        Capabilities(root, files=files).nodes(0, 1, 0)

    assert words in str(raised.value)


def test_without_a_driver_the_error_names_what_could_not_be_read(tmp_path: Path) -> None:
    """On a node without the driver's files nothing is guessed."""
    with pytest.raises(CapabilityError, match="/proc/devices cannot be read: No such file"):
        Capabilities(tmp_path).nodes(0, 1, 0)


def drm(root: Path, pci: str, **files: str) -> None:
    for name, numbers in files.items():
        folder = root / "sys/bus/pci/devices" / pci / "drm" / name
        folder.mkdir(parents=True)
        (folder / "dev").write_text(numbers)


def test_what_draws_has_the_files_of_its_slot(root: Path) -> None:
    """By PCI address, whatever the index, and of those files only that programs draw through."""
    drm(root, "0000:3b:00.0", card2="226:2\n", renderD130="226:130\n", controlD66="226:66\n")
    drm(root, "0000:86:00.0", card0="226:0\n", renderD128="226:128\n")

    nodes = Capabilities(root).graphics("0000:3b:00.0")

    assert nodes == (
        DeviceNode("/dev/dri/card2", 226, 2),
        DeviceNode("/dev/dri/renderD130", 226, 130),
    )


def test_a_node_without_graphics_has_no_files_of_it(root: Path) -> None:
    """Without nvidia-drm, and where the kernel says nothing that can be read, there are none."""
    drm(root, "0000:3b:00.0", card0="", renderD128="226")
    (root / "sys/bus/pci/devices/0000:3b:00.0/drm/card1").mkdir()

    capabilities = Capabilities(root)

    assert capabilities.graphics("0000:3b:00.0") == ()
    assert capabilities.graphics("0000:86:00.0") == ()


def test_an_old_driver_calls_its_first_device_otherwise(root: Path) -> None:
    """The major number of nvidia-frontend is that of the GPUs too."""
    old = DEVICES.replace("195 nvidia\n", "195 nvidia-frontend\n")
    (root / "proc/devices").write_text(old)

    nodes = Capabilities(root, files=RecordingDeviceFiles(root=root)).nodes(0, 1, 0)

    assert nodes[0] == DeviceNode("/dev/nvidiactl", 195, 255)


def test_a_file_that_is_no_device_has_no_numbers(tmp_path: Path) -> None:
    """A regular file, a folder or nothing in the place of a device does not pass for one."""
    (tmp_path / "regular").write_text("")
    files = HostFiles()

    numbers = [files.numbers(tmp_path / name) for name in ("regular", ".", "absent")]

    assert numbers == [None, None, None]
    assert files.numbers(Path("/dev/null")) == (1, 3)
