"""Checks of the interception library over the driver: what it withholds, and what we read of it.

Every check makes a container of its own, as the product does. A context takes memory of the slice
too (some 300 to 600 MiB), so amounts are halves and quarters of a slice that is far larger.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent.driver.driver import Device
from agent.monitor.violation import SLACK_DIVISOR, ObservedUse, violations
from agent.region.decode import Region
from agent.region.region_files import FILE
from agent.region.safe_files import RegionReader
from allocator.model.units import MiB
from tests.gpu.container import MIB, Answer, Bench, Container, CudaProcess, new_container
from tests.gpu.hardware import pids_hidden
from tests.gpu.report import FailedError, Figures, SkippedError

LARGEST_SLICE: Final = 8192  # MiB
CORES: Final = 30  # percent of compute that a container is promised
TOLERANCE: Final = 15  # percent of the GPU above the promise: the library holds an average
FREE_AGAIN_SECONDS: Final = 5.0  # after a kill
_STEPS: Final = 64  # allocations that fill a slice


def slice_of(device: Device) -> MiB:
    """Return the memory of a container: 8 GiB, or 40 % of a small GPU."""
    return MiB(min(LARGEST_SLICE, device.memory * 2 // 5))


def new_slice(bench: Bench, library: Path) -> Container:
    """Prepare a container with the slice that all checks of the library have."""
    return new_container(bench, library, memory=slice_of(bench.device), cores=CORES)


def check_limit(bench: Bench, library: Path, figures: Figures) -> None:
    """Fill a slice: what fits is given, what does not is refused, what is freed is given anew."""
    device = bench.device
    limit = slice_of(device)
    with bench.program() as free:
        free.open(device.index)
        more = MiB(limit + limit // 4)
        figures |= {"slice_mib": int(limit), "without_library_mib": int(more)}
        if not free.allocate(more):
            raise SkippedError(f"the GPU has no {more} MiB free")
    with new_slice(bench, library) as container:
        program = container.program()
        figures["given_mib"] = given = _fill(program, limit)
        _expect(limit // 2 <= given <= limit, f"{given} MiB were given of a slice of {limit}")
        program.figures("free")
        again = program.allocate(MiB(limit // _STEPS))
        _expect(again, "what was freed is not given again")


def check_view(bench: Bench, library: Path, figures: Figures) -> None:
    """Expect CUDA and NVML in the container to show the slice as the whole GPU."""
    with new_slice(bench, library) as container:
        program = container.program()
        cuda, nvml = program.figures("info"), program.figures("nvml", device=0)
        totals = {
            "cuMemGetInfo": cuda["total"],
            "cuDeviceTotalMem": cuda["device_total"],
            "nvmlDeviceGetMemoryInfo": nvml["total"],
        }
        figures["slice_mib"] = int(container.limit)
        figures["totals_mib"] = {name: total // MIB for name, total in totals.items()}
        figures["used_mib"] = nvml["used"] // MIB
        expected = container.limit * MIB
        if wrong := [name for name, total in totals.items() if total != expected]:
            raise FailedError(f"{', '.join(wrong)}: not the slice of {container.limit} MiB")


def check_two_processes(bench: Bench, library: Path, figures: Figures) -> None:
    """Expect two processes of a container to share its limit."""
    with new_slice(bench, library) as container:
        half, quarter = MiB(container.limit // 2), MiB(container.limit // 4)
        first, second = container.program(), container.program()
        _expect(first.allocate(half), f"{half} MiB were refused to the first")
        _expect(not second.allocate(half), f"both were given {half} MiB of {container.limit}")
        _expect(second.allocate(quarter), f"{quarter} MiB were refused to the second")
        figures["given_mib"] = int(half + quarter)
        figures["region_mib"] = _region_total(container) // MIB


def check_kill(bench: Bench, library: Path, figures: Figures) -> None:
    """Expect that a process killed by SIGKILL no longer counts."""
    with new_slice(bench, library) as container:
        half = MiB(container.limit // 2)
        first, second = container.program(), container.program()
        _expect(first.allocate(half), f"{half} MiB were refused to the first")
        first.kill()
        began = time.monotonic()
        while not second.allocate(half):
            if time.monotonic() - began > FREE_AGAIN_SECONDS:
                raise FailedError(f"its memory is not free {FREE_AGAIN_SECONDS:g} s later")
            time.sleep(0.1)
        figures["seconds"] = time.monotonic() - began
        figures["region_mib"] = _region_total(container) // MIB


def check_empty_environment(bench: Bench, library: Path, figures: Figures) -> None:
    """Expect a program without any variable (``env -i``, ssh, cron) under the same limit."""
    if bench.no_rooms:
        raise SkippedError(bench.no_rooms)
    with new_slice(bench, library) as container:
        half, quarter = MiB(container.limit // 2), MiB(container.limit // 4)
        first, second = container.program(), container.program(empty=True)
        figures["total_mib"] = second.figures("info")["total"] // MIB
        _expect(first.allocate(half), f"{half} MiB were refused to the first")
        _expect(not second.allocate(half), f"both were given {half} MiB of {container.limit}")
        _expect(second.allocate(quarter), f"{quarter} MiB were refused to the second")


def check_monitor(bench: Bench, library: Path, figures: Figures) -> None:
    """Compare what our monitor reads of the region with what the driver says of the process.

    The container fills its slice, which must not look like a violation.
    """
    with new_slice(bench, library) as container:
        program = container.program()
        _fill(program, container.limit)
        container.inspect()
        found = container.inspect()
        counted = sum(count.totals[container.device.uuid].total for count in found.counts)
        listed = [p.process.memory or 0 for p in found.processes if p.process.pid == program.pid]
        figures |= {"slice_mib": int(container.limit), "region_mib": counted // MIB}
        figures["driver_mib"] = sum(listed) if listed else None
        figures["node_pid"] = _slot_pids(container).get(program.pid)
        owner = container.share.owner
        observed = ObservedUse(
            processes=found.processes, shares=(container.share,), pods=container.pods
        )
        notes = [v.note for v in (*found.violations, *violations(observed))]
        figures["violations"] = notes
        _expect(not notes, f"{owner.pod} violates nothing, yet: {'; '.join(notes)}")
        _expect(found.faults == 0, f"{found.faults} figures of the region are implausible")
        _expect(_slot_pids(container).get(program.pid) == program.pid, "its pid is not known")
        if not listed and pids_hidden():
            raise SkippedError("NVML lists pids of the node, which are not known here")
        _expect(bool(listed), "the driver does not list the program")
        most = sum(listed) + sum(listed) // SLACK_DIVISOR
        _expect(counted // MIB <= most, "the library counts more than the driver")


def check_compute(bench: Bench, library: Path, figures: Figures, *, seconds: float) -> None:
    """Compare the pace of a container that is promised a part of the compute with a free one's.

    The first quarter of *seconds* is not measured: the limiter has no figure yet.
    """
    device = bench.device
    if pids_hidden():
        raise SkippedError("NVML lists pids of the node, so the library cannot find its own here")
    with bench.program() as free:
        free.open(device.index)
        answer = free.ask("spin", seconds=seconds / 4)
        if answer["code"]:
            why = f"{answer['call']} returned {answer['code']}"
            raise SkippedError(f"the kernel cannot run: {why}")
        full = pace(answer)
    with new_slice(bench, library) as container:
        program = container.program()
        answer, percents = watched(container, program, "spin", seconds=seconds)
    share = 100 * pace(answer) / full
    figures |= {"promised_percent": CORES, "pace_percent": share, "blocks_per_second": full}
    figures["driver_percent"] = sum(percents) / len(percents) if percents else None
    if share > CORES + TOLERANCE:
        raise FailedError(f"it computes at {share:.0f} % of a free GPU's pace, promised {CORES}")


def _fill(program: CudaProcess, limit: MiB) -> int:
    """Return the MiB that were given, in equal steps; at most somewhat more than *limit*."""
    step, given = MiB(limit // _STEPS), 0
    while given <= limit + 2 * step and program.allocate(step):
        given += step
    return given


def watched(
    container: Container, program: CudaProcess, order: str, *, seconds: float, **arguments: str
) -> tuple[Answer, list[int]]:
    """Let *program* compute while the monitor looks, as it does on a node.

    Returns the answer of the last three quarters, and the utilization that the driver told.
    """
    _watch(container, program, order, seconds=seconds / 4, **arguments)
    return _watch(container, program, order, seconds=seconds * 3 / 4, **arguments)


def _watch(
    container: Container, program: CudaProcess, order: str, **arguments: float | str
) -> tuple[Answer, list[int]]:
    program.order(order, **arguments)
    percents = []
    while (answer := program.answer(order, within=0.5)) is None:
        percents += [
            located.process.utilization
            for located in container.inspect().processes
            if located.process.pid == program.pid and located.process.utilization is not None
        ]
    _expect(answer["code"] == 0, f"{answer.get('call')} returned {answer['code']}")
    return answer, percents


def pace(answer: Answer) -> float:
    """Return operations per second, or blocks where they tell their number."""
    done = float(answer["launches"]) * float(answer.get("blocks", 1))
    return done / float(answer["seconds"])


def _region_total(container: Container) -> int:
    """Return the bytes that the monitor reads of the container's region."""
    container.inspect()
    return sum(
        total.total for count in container.inspect().counts for total in count.totals.values()
    )


def _slot_pids(container: Container) -> Mapping[int, int]:
    """Return the pids on the node in the region, by pids in the container."""
    reader = RegionReader()
    region = reader.read(str(container.region / FILE))
    reader.close()
    return {slot.pid: slot.node_pid for slot in region.slots} if isinstance(region, Region) else {}


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise FailedError(otherwise)
