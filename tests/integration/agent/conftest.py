"""What several tests of NVML begin with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.driver import A100, machine
from tests.fakes.driver_process import DriverProcess, driver_process
from tests.fakes.nvml.library import library
from tests.integration.agent.nvmlsession import Scene, scene


@pytest.fixture(scope="module")
def child() -> Iterator[DriverProcess]:
    """Yield a process that finds the stand-in for NVIDIA's library."""
    with driver_process({"LD_LIBRARY_PATH": str(library().parent)}) as process:
        yield process


@pytest.fixture
def two(child: DriverProcess, tmp_path: Path) -> Scene:
    """Return a machine with a GPU that can be cut, and one that cannot."""
    return scene(child, tmp_path, machine(A100, "NVIDIA L40S"))
