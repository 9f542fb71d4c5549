"""docs/hardware.md says of each check what the code does."""

import argparse
import re
from pathlib import Path

import pytest

from agent.nvml.driver import NvmlDriver
from tests.builders.model import device
from tests.fakes.hami_core import library_bytes
from tests.gpu import enforcement, hardware
from tests.gpu.__main__ import hardware_checks, library_checks
from tests.gpu.container import Bench

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/hardware.md").read_text()
ALL = argparse.Namespace(may_change_mig=True, compute_seconds=1.0, libraries=None)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(driver=NvmlDriver(), devices=(device(),), folder=tmp_path, no_rooms="")


def names(table: str) -> list[str]:
    """Return the first column of a table of the page."""
    _, _, rest = PAGE.partition(f"<!-- table: {table} -->")
    return re.findall(r"(?m)^\| `([\w-]+)` \|", rest.partition("\n\n")[0])


def test_every_check_of_the_driver_has_a_row(bench: Bench) -> None:
    """In the order in which they are made."""
    assert names("gpu checks of the driver") == [c.name for c in hardware_checks(bench, ALL)]


def test_every_check_of_the_library_has_a_row(bench: Bench, tmp_path: Path) -> None:
    """The last one stands for a folder without builds."""
    build = tmp_path / "libvgpu.so"
    build.write_bytes(library_bytes())
    made = [check.name for check in library_checks(bench, [build], ALL)]

    assert names("gpu checks of the library") == [*made, "library"]
    assert [check.name for check in library_checks(bench, [], ALL)] == ["library"]


def test_the_figures_on_the_page_are_those_of_the_code() -> None:
    """What passes is a matter of numbers."""
    assert enforcement.LARGEST_SLICE == 8 * 1024
    assert f"{enforcement.CORES} % of the compute" in PAGE
    assert f"no more than {enforcement.CORES + enforcement.TOLERANCE} % of the pace" in PAGE
    assert f"at least {hardware.LEAST_BUSY} % busy" in PAGE
    assert enforcement.FREE_AGAIN_SECONDS == 5


@pytest.mark.parametrize("page", ["README.md", "docs/limits.md"])
def test_nothing_is_claimed_that_is_not_listed(page: str) -> None:
    """As long as the list has no row, these pages say that it has none."""
    seen = re.findall(r"(?m)^\|(?! GPU \||-)[^|]+\|(?:[^|]*\|){5}$", PAGE)
    claims = "has not run on NVIDIA hardware yet" in (ROOT / page).read_text()

    assert claims == (not seen)
