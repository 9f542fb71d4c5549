"""A process that cuts a GPU, killed in earnest: the next one finds its way."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fakes.driver import A100, machine
from tests.fakes.mig_agent import SURVIVES
from tests.fakes.nvml.machine import DIES_AFTER, DIES_BEFORE, Machine

ROOT = Path(__file__).parents[4]
PATIENCE = 60.0  # seconds; the machine may be busy
FIRST, SECOND = "1g.5gb@0", "2g.10gb@0"
OPENING = 2  # moments in which the journal is opened, before anything is cut
MOST = 30
CALLS = [
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlComputeInstanceDestroy",
    "nvmlGpuInstanceDestroy",
]


def run_agent(
    kind: str, folder: Path, moment: int, *places: str, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.fakes.mig_agent", kind, str(folder), str(moment)]
    return subprocess.run(
        [*command, *places],
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def check_result(
    kind: str, folder: Path, *places: str, env: Mapping[str, str] | None = None
) -> None:
    """Assert that the next agent has exactly the last promise's instance, and calls it its own."""
    after = run_agent(kind, folder, SURVIVES, *places, env=env)
    assert after.returncode == 0, after.stderr
    result = json.loads(after.stdout.splitlines()[-1])
    assert result["there"] == [[0, result["ready"], True]]


def test_killed_at_each_line_of_the_journal(tmp_path: Path) -> None:
    """Whichever line is being written when the process is killed, nothing is left behind."""
    deaths = 0
    for moment in range(OPENING, MOST):
        folder = tmp_path / str(moment)
        folder.mkdir()

        killed = run_agent("simulated", folder, moment, FIRST, SECOND)

        if killed.returncode == 0:
            break
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        check_result("simulated", folder, SECOND)
        deaths += 1
    assert deaths >= 6, "two instances begun and made, one doomed and gone"


@pytest.mark.parametrize("death", [DIES_BEFORE, DIES_AFTER], ids=["before", "after"])
@pytest.mark.parametrize("call", CALLS)
def test_killed_inside_the_driver(tmp_path: Path, call: str, death: int) -> None:
    """Killed in a call that changes the hardware, before it does or after, nothing is lost."""
    nvml = Machine(tmp_path / "machine", machine(A100))
    nvml.fail(call, death)

    killed = run_agent("nvml", tmp_path, SURVIVES, FIRST, SECOND, env=nvml.environment)

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    nvml.mend()
    check_result("nvml", tmp_path, SECOND, env=nvml.environment)
