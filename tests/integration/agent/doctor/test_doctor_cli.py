"""The doctor on a node that is a folder: what it finds there, and how it says so."""

import asyncio
import io
import json
import shutil
import socket
import tempfile
from collections.abc import Iterator
from ctypes.util import find_library
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.doctor.checks import DoctorFinding, Level
from agent.doctor.doctor_cli import DoctorOutput, DoctorTarget, examine, print_findings
from agent.doctor.facts import ACCEPTS, Plugin, ToolkitConfig
from agent.doctor.facts_files import configurations, facts_of, toolkit_configs
from agent.driver.driver import Driver, Fault
from agent.driver.simulated_files import SimulatedDriver
from tests.fakes.driver import Faults, RelayedDriver, machine
from tests.fakes.hami_core import library_bytes
from vgpu import main

KUBELET = "var/lib/kubelet"
PLUGINS = f"{KUBELET}/device-plugins"
CONFIG = """
version = 3
imports = ["/etc/containerd/conf.d/*.toml"]
"""
DROPPED_IN = """
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
"""


@pytest.fixture
def root() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())  # short enough for the address of a socket
    yield folder
    shutil.rmtree(folder)


def write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


def leave_socket_file(path: Path) -> None:
    listening_socket(path).close()


def listening_socket(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


def write_node_files(root: Path) -> None:
    write(root / "etc/containerd/config.toml", CONFIG)
    write(root / "etc/containerd/conf.d/99-nvidia.toml", DROPPED_IN)
    write(root / "usr/lib64/libnvidia-container.so.1.18.0", b"")
    write(root / "usr/local/vgpu/libvgpu.so", library_bytes())
    write(root / "usr/local/vgpu/ld.so.preload", "/usr/local/vgpu/libvgpu.so\n")
    write(root / "proc/driver/nvidia-caps/mig-minors", "config 1\n")
    for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "null"):
        write(root / "dev" / name, b"")
    leave_socket_file(root / PLUGINS / "kubelet.sock")
    leave_socket_file(root / KUBELET / "pod-resources/kubelet.sock")


def target_of(root: Path, driver: Driver) -> DoctorTarget:
    """Return the node below *root* with the usual folders."""
    kubelet, host_root = Path(f"/{KUBELET}"), Path("/usr/local/vgpu")
    return DoctorTarget(driver=driver, root=root, kubelet=kubelet, host_root=host_root)


def examine_node(root: Path) -> tuple[DoctorFinding, ...]:
    driver = SimulatedDriver(machine("NVIDIA A30"))
    target = DoctorTarget(
        driver=driver, root=root, kubelet=Path(f"/{KUBELET}"), host_root=Path("/usr/local/vgpu")
    )
    return asyncio.run(examine(target))


def levels(doctor_findings: tuple[DoctorFinding, ...]) -> dict[str, Level]:
    return {finding.check: finding.level for finding in doctor_findings}


def test_a_node_that_has_everything_is_well(root: Path) -> None:
    """Files, sockets and driver together pass every check, whatever plays the driver."""
    write_node_files(root)

    doctor_findings = examine_node(root)

    assert set(levels(doctor_findings).values()) <= {Level.OK}, doctor_findings


def test_an_empty_node_is_looked_at_all_the_same() -> None:
    """Nothing that is missing stops the doctor from telling the rest."""
    with tempfile.TemporaryDirectory() as folder:
        doctor_findings = examine_node(Path(folder))

    assert levels(doctor_findings)["kubelet"] is Level.FAIL
    assert levels(doctor_findings)["driver"] is Level.OK


def test_a_driver_that_refuses_is_a_finding(root: Path) -> None:
    """Its own word is passed on, and the node's files are looked at all the same."""
    write_node_files(root)
    faults = Faults(SimulatedDriver(machine("NVIDIA A30")), {("devices", 1): Fault.UNAVAILABLE})
    target = DoctorTarget(
        driver=RelayedDriver(faults),
        root=root,
        kubelet=Path(f"/{KUBELET}"),
        host_root=Path("/usr/local/vgpu"),
    )

    doctor_findings = asyncio.run(examine(target))

    assert levels(doctor_findings)["driver"] is Level.FAIL
    assert levels(doctor_findings)["runtime"] is Level.OK
    assert faults.calls["close"] == 1


def test_other_plugins_give_themselves_away(root: Path) -> None:
    """By a socket that somebody listens on, one that is left over, or a process."""
    leave_socket_file(root / PLUGINS / "nvidia-gpu.sock")
    leave_socket_file(root / PLUGINS / "vgpu-admission.sock")
    write(root / PLUGINS / "nvidia-mig.sock", "no socket")
    write(root / "proc/4711/cmdline", b"/usr/bin/volcano-vgpu-device-plugin\0--x\0")
    write(root / "proc/12/cmdline", b"")
    with listening_socket(root / PLUGINS / "aliyungpushare.sock"):
        plugins = facts_of(root, root / KUBELET, root / "usr/local/vgpu").plugins

    assert plugins == (
        Plugin("the gpushare device plugin", "socket aliyungpushare.sock", running=True),
        Plugin("NVIDIA's or HAMi's device plugin", "socket nvidia-gpu.sock", running=False),
        Plugin("Volcano's vGPU device plugin", "process 4711", running=True),
    )


TOOLKIT = "etc/nvidia-container-runtime/config.toml"
OPERATOR = "usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml"


@pytest.mark.parametrize(
    ("text", "accepts"),
    [
        ("", True),
        ("[nvidia-container-cli]\nload-kmods = true\n", True),
        (f"#{ACCEPTS} = false\n", True),
        (f"[nvidia-container-runtime]\n{ACCEPTS} = false\n", True),  # in a section: another setting
        (f"{ACCEPTS} = true\n", True),
        (f"{ACCEPTS} = false\n[nvidia-container-cli]\n", False),
    ],
)
@pytest.mark.parametrize("where", [TOOLKIT, OPERATOR, f"proc/1/root/{TOOLKIT}"])
def test_the_toolkit_believes_variables_unless_told(
    root: Path, where: str, *, text: str, accepts: bool
) -> None:
    """As packages, the GPU Operator and the agent's view of the node have it."""
    write(root / where, text)

    (found,) = toolkit_configs(root)

    assert found == ToolkitConfig(path=f"/{where.removeprefix('proc/1/root/')}", accepts=accepts)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(b"\xff\xfe", "is not TOML", id="not-utf-8"),
        pytest.param(b"\0", "is not TOML", id="null"),
        pytest.param(f"{ACCEPTS} = ".encode(), "is not TOML", id="half"),
        pytest.param(f"{ACCEPTS} = true\n{ACCEPTS} = false".encode(), "is not TOML", id="twice"),
        pytest.param(b"a = " + b"[" * 30_000, "is not TOML", id="deep"),
        pytest.param(f'{ACCEPTS} = "false"'.encode(), "neither true nor false", id="text"),
        pytest.param(f"{ACCEPTS} = 0".encode(), "neither true nor false", id="number"),
        pytest.param(f"[{ACCEPTS}]".encode(), "neither true nor false", id="section"),
        pytest.param(b"#" * (64 * 1024 + 1), "no file of up to 64 KiB", id="large"),
    ],
)
def test_a_toolkit_configuration_that_says_nothing_is_told(
    root: Path, content: bytes, problem: str
) -> None:
    """What it would say is not guessed."""
    write(root / TOOLKIT, content)

    (found,) = toolkit_configs(root)

    assert problem in found.problem


def test_a_toolkit_configuration_that_is_no_file_is_told(root: Path) -> None:
    """A folder, a socket, and links, which would lead out of the node's root into ours."""
    write(root / "elsewhere/config.toml", f"{ACCEPTS} = false\n")
    path = root / TOOLKIT
    path.mkdir(parents=True)
    assert "no file" in toolkit_configs(root)[0].problem
    path.rmdir()
    leave_socket_file(path)
    assert "no file" in toolkit_configs(root)[0].problem
    for target in (
        "/elsewhere/config.toml",
        "../../elsewhere/config.toml",
        "/nowhere",
        "config.toml",
    ):
        path.unlink()
        path.symlink_to(target)
        assert "it is a link" in toolkit_configs(root)[0].problem
    path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to("../elsewhere")
    assert "it is a link" in toolkit_configs(root)[0].problem


def test_a_deeply_nested_configuration_of_containerd_is_a_finding(root: Path) -> None:
    """Reading it ends, and so does the agent's start, which reads it too."""
    write(root / "etc/containerd/config.toml", b"a = " + b"[" * 100_000)

    (runtime,) = configurations(root)

    assert "is not TOML" in runtime.problem


@pytest.mark.parametrize(
    ("status", "version"),
    [
        pytest.param("install ok installed", "1.17.9-1", id="installed"),
        pytest.param("deinstall ok config-files", None, id="removed"),
    ],
)
def test_the_toolkit_is_what_dpkg_has_installed(
    root: Path, status: str, version: str | None
) -> None:
    """A package that was removed leaves its paragraph behind."""
    paragraphs = (
        "Package: nvidia-container-toolkit-base\nStatus: install ok installed\nVersion: 9.9\n",
        f"Package: nvidia-container-toolkit\nStatus: {status}\nVersion: 1.17.9-1\n",
    )
    write(root / "var/lib/dpkg/status", "\n".join(paragraphs))

    assert facts_of(root, root / KUBELET, root / "usr/local/vgpu").toolkit == version


@pytest.mark.parametrize(
    "text", [b"version = ", b"\xff\xfe", b'imports = ["/etc/containerd/bad.toml"]']
)
def test_a_configuration_that_is_no_toml_is_a_finding(root: Path, text: bytes) -> None:
    """In the file itself, or in one that it imports."""
    write(root / "etc/containerd/config.toml", text)
    write(root / "etc/containerd/bad.toml", "[[[")

    (runtime,) = facts_of(root, root / KUBELET, root / "usr/local/vgpu").runtimes

    assert "is not TOML" in runtime.problem


@pytest.mark.parametrize(
    "pattern",
    ["", "**", "../../../etc/passwd", "/", "[", "a/**b", "x" * 5000, "a/" * 2000 + "*"],
    ids=["nothing", "all", "above", "root", "half", "mixed", "long", "deep"],
)
def test_a_malformed_import_does_no_harm(root: Path, pattern: str) -> None:
    """What is imported is read below the root, or not at all."""
    write(root / "etc/containerd/config.toml", f'version = 3\nimports = ["{pattern}"]\n')

    (runtime,) = facts_of(root, root / KUBELET, root / "usr/local/vgpu").runtimes

    assert runtime.runtimes == frozenset()


def test_what_is_imported_may_import_more_and_itself(root: Path) -> None:
    """Each file once, the last word counts, and a circle ends."""
    write(root / "etc/containerd/config.toml", CONFIG)
    again = 'imports = ["/etc/containerd/*.toml"]\n'
    cri = '[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = '
    write(root / "etc/containerd/conf.d/a.toml", f"{again}{cri}true")
    write(root / "etc/containerd/b.toml", f"{cri}false")

    (runtime,) = configurations(root)

    assert runtime.cdi is False


def test_a_container_that_shares_the_nodes_processes_sees_its_files(root: Path) -> None:
    """Through the first of them, where it has none of its own."""
    write(root / "proc/1/root/etc/containerd/config.toml", CONFIG)
    write(root / "proc/1/root/etc/containerd/conf.d/99-nvidia.toml", DROPPED_IN)
    (runtime,) = configurations(root)
    assert runtime.runtimes == {"nvidia"}

    write(root / "etc/containerd/config.toml", CONFIG)
    (runtime,) = configurations(root)
    assert runtime.runtimes == frozenset()


def test_a_library_that_is_a_folder_or_text_is_none(root: Path) -> None:
    """What containers would preload has to be one."""
    (root / "usr/local/vgpu/libvgpu.so").mkdir(parents=True)
    assert facts_of(root, root / KUBELET, root / "usr/local/vgpu").library is None

    shutil.rmtree(root / "usr")
    write(root / "usr/local/vgpu/libvgpu.so", "text")
    library = facts_of(root, root / KUBELET, root / "usr/local/vgpu").library
    assert library is not None
    assert (library.problem, library.preloaded) == ("it is not a shared library", False)


def test_findings_are_printed_in_either_form(root: Path) -> None:
    """JSON holds what the text says, and the exit code is that of the worst."""
    write_node_files(root)
    well, sick = (
        examine_node(root),
        (DoctorFinding(check="mig", level=Level.FAIL, text="a", remedy="b"),),
    )
    stream = io.StringIO()

    assert print_findings(well, DoctorOutput.TEXT, io.StringIO()) == 0
    assert print_findings(sick, DoctorOutput.JSON, stream) == 1
    assert json.loads(stream.getvalue()) == {
        "ok": False,
        "findings": [{"check": "mig", "level": "fail", "text": "a", "remedy": "b"}],
    }


@pytest.mark.skipif(find_library("nvidia-ml") is not None, reason="this computer has a driver")
def test_the_command_fails_where_there_is_no_driver(root: Path) -> None:
    """It says so in words, without a traceback, on any computer."""
    result = CliRunner().invoke(main, ["doctor", "--root", str(root), "-o", "json"])

    assert result.exit_code == 1
    told_of = {finding["check"]: finding for finding in json.loads(result.stdout)["findings"]}
    assert "libnvidia-ml.so.1 is not on the library path" in told_of["driver"]["text"]
