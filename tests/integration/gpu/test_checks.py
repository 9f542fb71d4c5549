"""The checks for a machine with a GPU, on stand-ins for the driver's two libraries.

Nothing else is replaced: each run is the command that a person gives, with its own processes,
namespaces and files. What a check is worth shows where it fails.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pynvml
import pytest

from agent.driver.simulated_machine import State
from tests.fakes import cuda, mps_control, pytorch
from tests.fakes.cuda.driver import CudaDriver
from tests.fakes.driver import A100, floor_swept, machine
from tests.fakes.nvml.library import library as nvml
from tests.fakes.nvml.machine import Machine
from tests.harness.real_library import SERVED, build_of

ROOT: Final = Path(__file__).parents[3]
H100: Final = "NVIDIA H100 80GB HBM3"
# What is measured in time says nothing on a busy machine: these are run and not judged.
TIMED: Final = frozenset({"utilization", "compute-limit", "mps-compute", "pytorch-compute"})
# A library with the marks of the layout that the agent seeds, which withholds nothing.
IDLE_LIBRARY: Final = """
const unsigned int sizes[] = {2008952, 2008952, 2008952};
const char name[] = "postinit semaphore";
"""


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of the checks left behind."""

    code: int
    text: str
    record: dict[str, Any]

    def outcome(self, name: str) -> str:
        """Return how the checks of this name ended, all alike."""
        [outcome] = {check["outcome"] for check in self.record["checks"] if check["name"] == name}
        return str(outcome)

    def reason(self, name: str) -> str:
        """Return why the first check of this name did not pass."""
        reasons = (c["reason"] for c in self.record["checks"] if c["name"] == name)
        return str(next(reasons))

    def by_outcome(self, outcome: str) -> set[str]:
        """Return the names of the judged checks that ended so."""
        checks = self.record["checks"]
        return {check["name"] for check in checks if check["outcome"] == outcome} - TIMED


@contextmanager
def played_machine(folder: Path, state: State) -> Iterator[Machine]:
    """Play a machine with both stand-ins."""
    played = Machine(folder / "machine", state)
    with CudaDriver(played):
        yield played


def check(folder: Path, *options: str, env: dict[str, str] | None = None) -> Run:
    """Run the command, on the machine in *folder* if one is played there."""
    libraries = f"{cuda.library().parent}:{nvml().parent}"
    played = {
        "LD_LIBRARY_PATH": libraries,
        "VGPU_FAKE_NVML": str(folder / "machine"),
        "VGPU_FAKE_CUDA": str(folder / "cuda"),
    }
    record = folder / "gpu.json"
    kept = {name: value for name, value in os.environ.items() if name != "VGPU_HAMI_CORE"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu", "--json", record, "--compute-seconds=1", *options],
        cwd=ROOT,
        env=kept | (played if env is None else env),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert record.exists(), done.stderr
    return Run(done.returncode, done.stdout, json.loads(record.read_text()))


def gpu_of(played: Machine) -> str:
    uuid: bytes = played.read().gpus[0].uuid
    return uuid.decode()


def test_a_machine_without_a_driver_gets_one_sentence(tmp_path: Path) -> None:
    """And an exit code of its own: nothing was seen to hold."""
    run = check(tmp_path, env={})

    assert run.code == 3
    assert run.text.startswith("no GPU here: ")
    assert len(run.text.splitlines()) == 1
    assert (run.record["complete"], run.record["checks"]) == (True, [])
    assert "libnvidia-ml.so.1" in run.record["no_gpu"]


def test_the_driver_alone_is_checked_where_there_is_no_library(tmp_path: Path) -> None:
    """All that NVML and CUDA say of a well GPU holds."""
    with played_machine(tmp_path, machine(H100, mig=False)):
        run = check(tmp_path)

    assert run.by_outcome("fail") == set()
    assert run.by_outcome("pass") == {
        "catalogue", "mig-profiles", "health", "xid-events", "processes",
    }  # fmt: skip
    mps = {"mps-daemon", "mps-client", "mps-pytorch", "mps-static", "mps-static-client"}
    assert run.by_outcome("skip") == {"mig-instances", "library", *mps}
    assert "nvidia-cuda-mps-control is not on the path" in run.reason("mps-daemon")
    assert "no python3 here has PyTorch" in run.reason("mps-pytorch")
    assert "VGPU_HAMI_CORE" in run.reason("library")
    assert run.record["gpus"][0]["pci_id"] == "0x2330"
    assert run.record["driver"]["driver"] == "580.95.05"


def test_machines_without_cuda_are_checked_as_far_as_they_go(tmp_path: Path) -> None:
    """The programs are skipped, with the name of what is missing."""
    with played_machine(tmp_path, machine(H100, mig=False)):
        env = {"LD_LIBRARY_PATH": str(nvml().parent), "VGPU_FAKE_NVML": str(tmp_path / "machine")}
        run = check(tmp_path, env=env)

    assert run.code == 0
    assert run.outcome("processes") == "skip"
    assert "libcuda.so.1" in run.reason("processes")


def first_on_path(folder: Path, program: Path) -> dict[str, str]:
    """Return the environment of the machine in *folder*, with a program before all others."""
    return {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": f"{cuda.library().parent}:{nvml().parent}",
        "VGPU_FAKE_NVML": str(folder / "machine"),
        "VGPU_FAKE_CUDA": str(folder / "cuda"),
    }


def with_pytorch(folder: Path) -> dict[str, str]:
    """Return an environment whose ``python3`` has what the checks call of PyTorch."""
    return first_on_path(folder, pytorch.install(folder / "bin"))


def with_control(folder: Path, text: str | None = None) -> dict[str, str]:
    """Return an environment with a control program of MPS: our stand-in, or a script of *text*."""
    program = Path(mps_control.install(folder / "bin"))
    if text is not None:
        program.write_text(text)
    return first_on_path(folder, program)


@pytest.mark.skipif(os.geteuid() != 0, reason="the daemon takes root's rights")
def test_the_daemon_of_mps_is_checked_where_there_is_one(tmp_path: Path) -> None:
    """Our stand-in starts and ends; the programs of the other stand-in are no clients of it."""
    with played_machine(tmp_path, machine(H100, mig=False)) as played:
        run = check(tmp_path, env=with_control(tmp_path))
        modes = [gpu.compute_mode for gpu in played.read().gpus]

    assert run.outcome("mps-daemon") == "pass"
    assert run.outcome("mps-client") == "fail"
    assert "the server lists no client" in run.reason("mps-client")
    assert run.outcome("mps-static") == "pass"
    assert run.outcome("mps-static-client") == "fail"
    assert "lists no clients" in run.reason("mps-static-client")
    assert set(modes) == {pynvml.NVML_COMPUTEMODE_DEFAULT}


# Only the first one lives: each check would wait for an answer for ten seconds.
_BABBLING = """#!/bin/sh
if test $# = 0; then echo x; exit; fi
if test -e "$0.once"; then exit 1; fi
touch "$0.once"
exec sleep 300
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the daemon takes root's rights")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#!/bin/sh\necho no such device\nexit 1\n", "no such device"),
        (_BABBLING, "a pid is expected"),
    ],
    ids=["ends", "babbles"],
)
def test_a_daemon_that_does_not_serve_fails_its_check(tmp_path: Path, text: str, why: str) -> None:
    """What it said stands in the report."""
    with played_machine(tmp_path, machine(H100, mig=False)):
        run = check(tmp_path, env=with_control(tmp_path, text))

    assert run.outcome("mps-daemon") == "fail"
    assert why in run.reason("mps-daemon")


def _grow(played: Machine, gpu: str) -> None:
    played.set(gpu, memory=90_000 << 20)


def _rename(played: Machine, gpu: str) -> None:
    played.set(gpu, pci_id=0x2335)


def _need_reset(played: Machine, gpu: str) -> None:
    played.set(gpu, recovery=pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET)


def _refuse_events(played: Machine, _: str) -> None:
    played.fail("nvmlDeviceRegisterEvents", pynvml.NVML_ERROR_NO_PERMISSION, nth=0)


def _refuse_processes(played: Machine, _: str) -> None:
    played.fail("nvmlDeviceGetComputeRunningProcesses_v3", pynvml.NVML_ERROR_NO_PERMISSION, nth=0)


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (_grow, ("catalogue", "memory is 90000 MiB, 81559 in our catalogue")),
        (_rename, ("catalogue", "its PCI id is that of NVIDIA H200 in our catalogue")),
        (_need_reset, ("health", "needs a reset")),
        (_refuse_events, ("xid-events", "nvmlDeviceRegisterEvents")),
        (_refuse_processes, ("processes", "nvmlDeviceGetComputeRunningProcesses_v3")),
    ],
)
def test_what_is_wrong_with_the_driver_is_found(
    tmp_path: Path, harm: Callable[[Machine, str], None], told: tuple[str, str]
) -> None:
    """One harm, one check that fails, and a sentence that names it."""
    failed, said = told
    with played_machine(tmp_path, machine(H100, mig=False)) as played:
        harm(played, gpu_of(played))
        run = check(tmp_path)

    assert run.code == 1
    assert failed in run.by_outcome("fail")
    assert said in run.reason(failed)


def test_a_board_that_differs_from_the_catalogue_is_told(tmp_path: Path) -> None:
    """Some A100 have fewer places than their siblings."""
    with played_machine(tmp_path, floor_swept()):
        run = check(tmp_path)

    assert run.outcome("mig-profiles") == "fail"
    assert "1g.5gb: starts (0, 1, 4, 5), (0, 1, 2, 3, 4, 5, 6) in our catalogue" in run.reason(
        "mig-profiles"
    )


def test_mig_instances_are_read_and_left_alone(tmp_path: Path) -> None:
    """Unless somebody allows it; then each profile is tried, and nothing is left behind."""
    with played_machine(tmp_path, machine(A100)) as played:
        played.fail(
            "nvmlDeviceCreateGpuInstanceWithPlacement", pynvml.NVML_ERROR_UNKNOWN, nth=2**31
        )
        careful = check(tmp_path)
        touched = played.calls("nvmlDeviceCreateGpuInstanceWithPlacement")
        allowed = check(tmp_path, "--may-change-mig")
        left = sum(instance.used for instance in played.read().gpus[0].instances)

    assert (careful.outcome("mig-instances"), touched) == ("pass", 0)
    assert careful.outcome("processes") == "skip"
    assert "MIG mode" in careful.reason("processes")
    assert (allowed.outcome("mig-change"), left) == ("pass", 0)
    [changed] = [c for c in allowed.record["checks"] if c["name"] == "mig-change"]
    assert len(changed["figures"]["milliseconds"]) == 7


def test_a_run_that_has_no_time_left_proves_nothing(tmp_path: Path) -> None:
    """Everything is skipped, and that is no success."""
    with played_machine(tmp_path, machine(H100, mig=False)):
        run = check(tmp_path, "--budget", "0")

    assert run.code == 3
    assert run.record["counts"]["pass"] == run.record["counts"]["fail"] == 0


def idle_builds(folder: Path) -> Path:
    """Return a folder with one build, of IDLE_LIBRARY."""
    source, builds = folder / "idle.c", folder / "builds"
    builds.mkdir()
    source.write_text(IDLE_LIBRARY)
    compiler = os.environ.get("CC", "cc")
    target = builds / "libvgpu-idle.so"
    subprocess.run([compiler, "-shared", "-o", target, source], check=True, timeout=60)
    return builds


def test_pytorch_under_a_library_that_withholds_nothing_is_found(tmp_path: Path) -> None:
    """It sees all memory, gets all that it asks for, and computes as fast as without."""
    with played_machine(tmp_path, machine(H100, mig=False)):
        run = check(tmp_path, "--libraries", str(idle_builds(tmp_path)), env=with_pytorch(tmp_path))

    assert run.outcome("pytorch-memory") == "fail"
    assert "PyTorch does not see the slice of 8192 MiB" in run.reason("pytorch-memory")
    assert run.outcome("pytorch-compute") == "fail"
    assert "bfloat16 at " in run.reason("pytorch-compute")
    assert "graph at " not in run.reason("pytorch-compute")


@pytest.mark.library
def test_pytorch_is_held_by_the_real_library(tmp_path: Path) -> None:
    """As far as memory goes: the driver that is played computes nothing."""
    folder = build_of(SERVED[0]).parent
    with played_machine(tmp_path, machine(H100, mig=False)):
        run = check(tmp_path, "--libraries", str(folder), env=with_pytorch(tmp_path))

    assert run.outcome("pytorch-memory") == "pass", run.text
    [figures, *_] = [c["figures"] for c in run.record["checks"] if c["name"] == "pytorch-memory"]
    assert (figures["given_mib"], figures["pytorch"]) == (7168, "2.0.0+played")


def test_a_library_that_withholds_nothing_is_found(tmp_path: Path) -> None:
    """These checks would be worth nothing if they passed without a limit."""
    folder = idle_builds(tmp_path)
    with played_machine(tmp_path, machine(H100, mig=False)):
        run = check(tmp_path, "--libraries", str(folder))

    assert run.code == 1
    assert run.outcome("pytorch-memory") == run.outcome("pytorch-compute") == "skip"
    limits = {"memory-limit", "memory-view", "two-processes", "monitor"}
    assert limits <= run.by_outcome("fail")
    assert run.outcome("empty-environment") in {"fail", "skip"}  # skipped without namespaces
    assert "were given of a slice of 8192" in run.reason("memory-limit")


@pytest.mark.library
def test_all_holds_under_the_real_library(tmp_path: Path) -> None:
    """The builds that we serve are checked, others in the folder are named and left out."""
    folder = build_of(SERVED[0]).parent
    with played_machine(tmp_path, machine(H100, mig=False)):
        run = check(tmp_path, "--libraries", str(folder))

    assert run.by_outcome("fail") == set(), run.text
    assert {"memory-limit", "memory-view", "two-processes", "kill", "monitor"} <= run.by_outcome(
        "pass"
    )
    checked = {each["file"] for each in run.record["libraries"] if each["checked"]}
    assert checked == {f"libvgpu-{commit}.so" for commit in SERVED}


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--json", "/", "is a folder, expected a file"),
        ("--json", "/proc/none/x", "/proc/none/x cannot be written: No such file or directory"),
        ("--budget", "-1", "-1 is not a number from 0 to 3600"),
        ("--budget", "nan", "nan is not a number from 0 to 3600"),
        ("--budget", "inf", "inf is not a number from 0 to 3600"),
        ("--compute-seconds", "1e9", "1e9 is not a number from 0 to 3600"),
        ("--compute-seconds", "much", "'much'"),
    ],
)
def test_a_command_line_that_cannot_be_obeyed_is_refused(
    option: str, value: str, said: str
) -> None:
    """Before anything is checked, with an exit code of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu", option, value],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr.splitlines()[-1]


def test_a_folder_without_builds_says_so(tmp_path: Path) -> None:
    """Folders, and files of another layout, are no builds."""
    (tmp_path / "folder.so").mkdir()
    (tmp_path / "other.so").write_bytes(b"\x7fELF of another generation")
    with played_machine(tmp_path, machine(H100, mig=False)):
        run = check(tmp_path, "--libraries", str(tmp_path))

    assert run.outcome("library") == "skip"
    assert "has the layout of regions that the agent seeds" in run.reason("library")
    assert [(x["file"], x["checked"]) for x in run.record["libraries"]] == [("other.so", False)]
