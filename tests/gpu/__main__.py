"""Checks what this machine's GPU, its driver and the interception library do: ``make test-gpu``.

Nothing is changed that outlasts the run, unless ``--may-change-mig`` is given. docs/hardware.md
says what each check means.
"""

import argparse
import faulthandler
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from agent.driver.driver import Device, Driver, DriverError
from agent.nvml.driver import NvmlDriver
from tests.gpu import enforcement, hardware, mps, pytorch
from tests.gpu.builds import VARIABLE, build_facts, builds_in, has_seeded_layout
from tests.gpu.container import Bench, no_rooms_reason
from tests.gpu.report import (
    Figures,
    Report,
    SkippedError,
    check_lines,
    run_check,
    summary_line,
)

COMPUTE_SECONDS: Final = 20.0  # of the check of compute limits
BUDGET: Final = 480.0  # seconds until no further check begins; machines are lent for ten minutes
MOST_SECONDS: Final = 3600.0
GRACE: Final = 60.0  # seconds beyond that until a driver that hangs ends the run
UNUSABLE: Final = 2  # exit code for a command line that cannot be obeyed, as argparse has it
_ENFORCEMENT: Final = {
    "memory-limit": enforcement.check_limit,
    "memory-view": enforcement.check_view,
    "two-processes": enforcement.check_two_processes,
    "kill": enforcement.check_kill,
    "empty-environment": enforcement.check_empty_environment,
    "monitor": enforcement.check_monitor,
}


@dataclass(frozen=True, slots=True)
class Check:
    """One check to be made."""

    name: str
    subject: str
    body: Callable[[Figures], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Make all checks, print each and write the record; return the exit code."""
    options = _options(arguments)
    faulthandler.dump_traceback_later(options.budget + GRACE, exit=True)
    # The product's warnings: what is wrong is in the table too, and stdout belongs to that.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    machine = {"python": platform.python_version(), **hardware.machine_facts()}
    report = Report(date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), machine=machine)
    try:
        _write(report, options.json)
    except OSError as error:
        print(f"{options.json} cannot be written: {error.strerror}", file=sys.stderr)
        return UNUSABLE
    driver = NvmlDriver()
    try:
        report.driver, devices = asdict(driver.versions()), driver.devices()
        reason = "" if devices else "the driver lists no GPU"
    except DriverError as error:
        devices, reason = (), str(error)
    if reason:
        report.no_gpu = reason
        print(f"no GPU here: {reason}")
    else:
        with tempfile.TemporaryDirectory(prefix="vgpu-test-gpu-") as scratch:
            _make_checks(driver, devices, Path(scratch), report=report, options=options)
        print(summary_line(report))
    driver.close()
    report.complete = True
    _write(report, options.json)
    return report.exit_code()


def _make_checks(
    driver: Driver, devices: tuple[Device, ...], folder: Path, *, report: Report,
    options: argparse.Namespace,
) -> None:  # fmt: skip
    bench = Bench(driver=driver, devices=devices, folder=folder, no_rooms=no_rooms_reason(folder))
    report.machine = {**report.machine, "mount_namespaces": bench.no_rooms or "yes"}
    report.gpus = tuple(hardware.gpu_facts(device) for device in devices)
    builds = builds_in(options.libraries)
    report.libraries = tuple(build_facts(build) for build in builds)
    end = time.monotonic() + options.budget
    for check in (*hardware_checks(bench, options), *library_checks(bench, builds, options)):
        body = check.body if time.monotonic() < end else partial(_skip_late, options.budget)
        report.checks.append(run_check(check.name, check.subject, body))
        print("\n".join(check_lines(report.checks[-1])), flush=True)
        _write(report, options.json)  # a run that is cut off leaves what it has


def hardware_checks(bench: Bench, options: argparse.Namespace) -> Iterator[Check]:
    """Yield the checks of the driver."""
    for device in bench.devices:
        subject = f"GPU {device.index}"
        yield Check("catalogue", subject, partial(hardware.check_catalogue, device))
        yield Check("mig-profiles", subject, partial(hardware.check_profiles, device))
        yield Check("mig-instances", subject, partial(hardware.check_instances, bench, device))
        if options.may_change_mig:
            yield Check("mig-change", subject, partial(hardware.check_mig_change, bench, device))
    yield Check("health", "", partial(hardware.check_health, NvmlDriver()))
    yield Check("xid-events", "", partial(hardware.check_events, bench))
    yield Check("processes", "", partial(hardware.check_processes, bench))
    seconds = options.compute_seconds / 4
    utilization = partial(hardware.check_utilization, bench, seconds=seconds)
    yield Check("utilization", "", utilization)
    yield Check("mps-daemon", "", partial(mps.check_daemon, bench))
    yield Check("mps-client", "", partial(mps.check_client, bench))
    yield Check("mps-compute", "", partial(mps.check_compute, bench))
    yield Check("mps-pytorch", "", partial(mps.check_pytorch, bench))
    yield Check("mps-static", "", partial(mps.check_static, bench))
    yield Check("mps-static-client", "", partial(mps.check_static_client, bench))


def library_checks(
    bench: Bench, builds: Sequence[Path], options: argparse.Namespace
) -> Iterator[Check]:
    """Yield the checks of each of *builds* that takes our regions."""
    usable = [build for build in builds if has_seeded_layout(build)]
    if not usable:
        yield Check("library", "", partial(_skip_library, options.libraries))
    for build in usable:
        for name, body in _ENFORCEMENT.items():
            yield Check(name, build.name, partial(body, bench, build))
        compute = partial(enforcement.check_compute, bench, build, seconds=options.compute_seconds)
        yield Check("compute-limit", build.name, compute)
        yield Check("pytorch-memory", build.name, partial(pytorch.check_memory, bench, build))
        seconds = options.compute_seconds / 2
        compute = partial(pytorch.check_compute, bench, build, seconds=seconds)
        yield Check("pytorch-compute", build.name, compute)


def _skip_library(folder: Path | None, _: Figures) -> None:
    if folder is None:
        raise SkippedError(f"{VARIABLE} names no folder with builds of libvgpu.so")
    raise SkippedError(f"no build in {folder} has the layout of regions that the agent seeds")


def _skip_late(budget: float, _: Figures) -> None:
    raise SkippedError(f"the {budget:g} s of this run are over")


def _write(report: Report, file: Path | None) -> None:
    if file is not None:
        unfinished = file.with_name(f".{file.name}.unfinished")
        unfinished.write_text(report.document())
        unfinished.replace(file)


def _file(text: str) -> Path:
    """Return a path that may be written; raises ArgumentTypeError."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder, expected a file")
    return path


def _seconds(text: str) -> float:
    """Return a number of seconds; raises ArgumentTypeError, or ValueError if it is no number."""
    seconds = float(text)
    if not 0 <= seconds <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to {MOST_SECONDS:g}")
    return seconds


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    named = os.environ.get(VARIABLE)
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--json", type=_file, metavar="FILE", help="write the record to this file")
    parser.add_argument(
        "--libraries", type=Path, metavar="FOLDER", default=Path(named) if named else None,
        help=f"folder with builds of libvgpu.so; {VARIABLE} otherwise",
    )  # fmt: skip
    parser.add_argument(
        "--may-change-mig", action="store_true",
        help="create and destroy MIG instances on idle GPUs that are in MIG mode",
    )  # fmt: skip
    parser.add_argument(
        "--compute-seconds", type=_seconds, default=COMPUTE_SECONDS, metavar="SECONDS",
        help=f"how long the GPU computes in each check of that; {COMPUTE_SECONDS:g} otherwise",
    )  # fmt: skip
    parser.add_argument(
        "--budget", type=_seconds, default=BUDGET, metavar="SECONDS",
        help=f"no check begins later than this; {BUDGET:g} otherwise",
    )  # fmt: skip
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
