"""Properties of a component's process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.api import wait_for
from tests.cluster.process import ComponentError, Process

ABANDON = """
import pathlib, sys, time
from tests.cluster.process import Process
log = pathlib.Path(sys.argv[1])
shell = Process("shell", ["/bin/sh", "-c", "echo $$; exec sleep 60"], log)
shell.start(lambda: log.read_text().endswith("\\n"), within=10)
print(log.read_text(), flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux for it")
def test_a_component_ends_with_tests_that_are_killed(tmp_path: Path) -> None:
    """Nothing is left behind even when no clean-up of ours can run."""
    command = [sys.executable, "-c", ABANDON, str(tmp_path / "log")]

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        component = int(tests.stdout.readline())
        os.kill(tests.pid, signal.SIGKILL)

    wait_for(lambda: not _alive(component))


def test_one_that_is_never_ready_is_reported_with_its_log(tmp_path: Path) -> None:
    """The error names the time that was allowed and quotes what the component said."""
    slow = Process("slow", ["/bin/sh", "-c", "echo thinking; exec sleep 60"], tmp_path / "log")

    with pytest.raises(ComponentError, match=r"(?s)slow was not ready within 1 s.*thinking"):
        slow.start(lambda: False, within=1)

    slow.stop()
    assert not slow.running


def test_one_that_ignores_politeness_is_killed(tmp_path: Path) -> None:
    """Stopping takes no longer than its bound."""
    log = tmp_path / "log"
    stubborn = Process(
        "stubborn", ["/bin/sh", "-c", "trap '' TERM; echo up; sleep 60 & wait; sleep 60"], log
    )
    stubborn.start(lambda: log.read_text() == "up\n", within=10)

    stubborn.stop(within=0.1)

    assert not stubborn.running


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # an orphan whose new parent has not looked yet
