"""Checks of the driver through the product's own NVML code."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pynvml

from agent.driver.driver import Device, Driver, Process
from agent.driver.driver_thread import DriverThread
from agent.health.hardware_informer import HardwareInformer, HardwareListeners
from agent.node.status import Hardware
from agent.nvml.calls import call_nvml
from agent.nvml.events import ErrorEvents
from allocator.catalog.boards import Model, board_of_pci, model_named
from allocator.model.board import Board, Profile
from allocator.model.units import MiB
from tests.gpu.container import Bench, CudaProcess
from tests.gpu.report import FailedError, Figure, Figures, SkippedError

ALLOCATION: Final = MiB(1024)  # of the program whose memory NVML is to list
LEAST_BUSY: Final = 80  # percent, while a program computes without a pause
GONE_WITHIN: Final = 5.0  # seconds after its end, the driver no longer lists a process
_INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC  # its inode (linux/proc_ns.h, PROC_PID_INIT_INO)


def gpu_facts(device: Device) -> dict[str, Figure]:
    """Return what the report says of a GPU."""
    return {
        "index": device.index,
        "model": device.model,
        "pci": device.pci,
        "pci_id": f"0x{_pci_id(device):04X}",
        "memory_mib": device.memory,
        "mig": "none" if device.mig is None else ("on" if device.mig.current else "off"),
        "numa": device.numa,
        "nvlinks": len(device.links),
    }


def check_catalogue(device: Device, figures: Figures) -> None:
    """Compare name, PCI id and memory of a GPU with our catalogue."""
    figures |= {"model": device.model, "pci_id": f"0x{_pci_id(device):04X}"}
    figures["memory_mib"] = int(device.memory)
    model = model_named(device.model)
    if model is None:
        raise SkippedError(f"{device.model} is not in our catalogue")
    figures["catalogue_memory_mib"] = int(model.memory)
    if wrong := list(_model_differences(device, model)):
        raise FailedError("; ".join(wrong))


def _model_differences(device: Device, model: Model) -> Iterator[str]:
    if model.memory != device.memory:
        yield f"memory is {device.memory} MiB, {model.memory} in our catalogue"
    if model.pci and _pci_id(device) not in model.pci:
        expected = ", ".join(f"0x{number:04X}" for number in model.pci)
        yield f"PCI id is 0x{_pci_id(device):04X}, {expected} in our catalogue"
    by_id = board_of_pci(_pci_id(device))
    if by_id is not None and by_id.name != model.name:
        yield f"its PCI id is that of {by_id.name} in our catalogue"


def check_profiles(device: Device, figures: Figures) -> None:
    """Compare a GPU's MIG profiles and placements with our catalogue."""
    if device.mig is None:
        raise SkippedError("the product has no MIG")
    if device.board is None:
        raise SkippedError("the driver lists no profiles, as some do outside MIG mode")
    figures["profiles"] = [_profile_text(profile) for profile in device.board.profiles]
    model = model_named(device.model)
    if model is None or model.board is None:
        raise SkippedError(f"our catalogue has no profiles of {device.model}")
    if wrong := list(board_differences(device.board, model.board)):
        raise FailedError("; ".join(wrong))


def board_differences(real: Board, planned: Board) -> Iterator[str]:
    """Yield in what the catalogue's board, *planned*, is wrong.

    Planned memory may be less than the driver's, as listings vary, but never more.
    """
    if real.slots != planned.slots:
        yield f"{real.slots} slots, {planned.slots} in our catalogue"
    ours, theirs = ({p.name: p for p in board.profiles} for board in (planned, real))
    for name in sorted(theirs.keys() - ours.keys()):
        yield f"{name} is not in our catalogue"
    for name in sorted(ours.keys() - theirs.keys()):
        yield f"{name} of our catalogue does not exist"
    for name in sorted(ours.keys() & theirs.keys()):
        plan, fact = ours[name], theirs[name]
        for what in ("id", "size", "starts", "sms", "limit"):
            if getattr(plan, what) != getattr(fact, what):
                values = f"{getattr(fact, what)}, {getattr(plan, what)}"
                yield f"{name}: {what} {values} in our catalogue"
        if plan.memory > fact.memory:
            yield f"{name}: {fact.memory} MiB, {plan.memory} in our catalogue"


def check_health(driver: Driver, figures: Figures) -> None:
    """Poll the GPUs as the agent does, and expect all to be in service."""
    began = time.monotonic()
    hardware = asyncio.run(_poll_once(driver))
    figures["seconds"] = time.monotonic() - began
    if hardware is None:
        raise FailedError("the agent's poll listed no GPU")
    figures["gpus"] = len(hardware.devices)
    figures["recovery"] = [str(d.recovery or "not reported") for d in hardware.devices]
    if hardware.unhealthy:
        raise FailedError("; ".join(f"{gpu}: {why}" for gpu, why in hardware.unhealthy.items()))


async def _poll_once(driver: Driver) -> Hardware | None:
    worker = DriverThread(driver)
    informer = HardwareInformer(worker, HardwareListeners(lambda: None, lambda _gpu, _why: None))
    await informer.poll()
    await worker.close()
    return informer.hardware


def check_events(bench: Bench, figures: Figures) -> None:
    """Register every GPU for critical errors (XIDs) and poll once."""
    errors = ErrorEvents()
    try:
        for device in bench.devices:
            handle = call_nvml(pynvml.nvmlDeviceGetHandleByUUID, device.uuid)
            supported = int(call_nvml(pynvml.nvmlDeviceGetSupportedEventTypes, handle))
            if not supported & pynvml.nvmlEventTypeXidCriticalError:
                raise FailedError(f"{device.uuid} reports no critical errors")
            errors.watch(device.uuid, handle)
        figures["gpus"] = len(bench.devices)
        figures["xids"] = [str(event.xid) for event in errors.poll()]
    finally:
        errors.close()


def check_processes(bench: Bench, figures: Figures) -> None:
    """Expect a CUDA program of ours in the GPU's list of processes, with what it allocated."""
    device = bench.device
    before = bench.driver.usage(device.uuid).memory
    with bench.program() as program:
        program.open(device.index)
        if not program.allocate(ALLOCATION):
            raise SkippedError(f"the GPU has no {ALLOCATION} MiB free")
        figures["allocated_mib"] = int(ALLOCATION)
        figures["usage_growth_mib"] = bench.driver.usage(device.uuid).memory - before
        listed = _own_process(bench, device, program)
        figures["listed_mib"] = listed.memory
    if listed.memory is None:
        raise FailedError("the driver does not report the program's memory")
    if listed.memory < ALLOCATION:
        raise FailedError(f"{listed.memory} MiB are listed of {ALLOCATION} that it allocated")

    def is_gone() -> bool:
        return all(process.pid != program.pid for process in _gpu_processes(bench, device))

    gone = _becomes_true(is_gone, within=GONE_WITHIN)
    figures["left_mib"] = bench.driver.usage(device.uuid).memory - before
    if not gone:
        raise FailedError(f"the program is still listed {GONE_WITHIN:g} s after it was killed")


def check_utilization(bench: Bench, figures: Figures, *, seconds: float) -> None:
    """Expect a GPU that computes without a pause to be reported as busy, and by whom.

    NVML's utilization is of the last second, so *seconds* must be more than two.
    """
    device = bench.device
    with bench.program() as program:
        program.open(device.index)
        program.order("spin", seconds=seconds)
        totals: list[int] = []
        own: list[int] = []
        while (answer := program.answer("spin", within=0.5)) is None:
            usage = bench.driver.usage(device.uuid).utilization
            totals += [] if usage is None else [usage]
            listed = (p for p in _gpu_processes(bench, device) if p.pid == program.pid)
            own += [p.utilization for p in listed if p.utilization is not None]
    if answer["code"]:
        raise SkippedError(f"the kernel cannot run: {answer['call']} returned {answer['code']}")
    figures["launches"] = answer["launches"]
    figures["gpu_percent"] = max(totals, default=None)
    figures["process_percent"] = max(own, default=None)
    if max(totals, default=0) < LEAST_BUSY:
        raise FailedError(f"the GPU is reported {max(totals, default=0)} % busy, not {LEAST_BUSY}")
    if max(own, default=0) < LEAST_BUSY and not pids_hidden():
        raise FailedError(f"the program is reported {max(own, default=0)} % busy")


def check_instances(bench: Bench, device: Device, figures: Figures) -> None:
    """Read the MIG instances that exist, and find each in the board."""
    if device.mig is None or not device.mig.current:
        raise SkippedError("the GPU is not in MIG mode")
    instances = bench.driver.instances(device.uuid)
    profiles = {p.id: p for p in device.board.profiles} if device.board else {}
    figures["instances"] = [
        f"{profiles[i.profile].name if i.profile in profiles else i.profile}@{i.start}"
        for i in instances
    ]
    for instance in instances:
        profile = profiles.get(instance.profile)
        if profile is None or instance.start not in profile.starts:
            raise FailedError(f"instance {instance.id} is at no placement of the board")
        if instance.compute is not None and not (instance.uuid or "").startswith("MIG-"):
            raise FailedError(f"instance {instance.id} has the UUID {instance.uuid}")


def check_mig_change(bench: Bench, device: Device, figures: Figures) -> None:
    """Create one instance of each profile on an idle GPU in MIG mode, and destroy it again."""
    driver, gpu = bench.driver, device.uuid
    if device.mig is None or not device.mig.current or device.board is None:
        raise SkippedError("the GPU is not in MIG mode")
    if driver.instances(gpu) or driver.processes(gpu):
        raise SkippedError("the GPU is in use")
    seconds: dict[str, int] = {}
    for profile in device.board.profiles:
        began = time.monotonic()
        made = driver.create_instance(gpu, profile.id, profile.starts[0])
        try:
            ready = driver.create_compute(gpu, made.id)
            if (ready.profile, ready.start) != (profile.id, profile.starts[0]):
                raise FailedError(f"asked for {_profile_text(profile)}, got {ready}")
            if ready.compute is not None:
                driver.destroy_compute(gpu, ready.id, ready.compute)
        finally:
            driver.destroy_instance(gpu, made.id)
        seconds[profile.name] = round(1000 * (time.monotonic() - began))
    figures["milliseconds"] = seconds


def pids_hidden() -> bool:
    """Say whether the driver, which counts pids of the node, may name ours otherwise than we do."""
    return Path("/proc/self/ns/pid").stat().st_ino != _INITIAL_PID_NAMESPACE


def _own_process(bench: Bench, device: Device, program: CudaProcess) -> Process:
    listed = _gpu_processes(bench, device)
    for process in listed:
        if process.pid == program.pid:
            return process
    pids = ", ".join(str(process.pid) for process in listed) or "none"
    text = f"pid {program.pid} is not among the listed: {pids}"
    if pids_hidden():
        raise SkippedError(f"{text}; this runs in a pid namespace, and NVML lists the node's pids")
    raise FailedError(text)


def _gpu_processes(bench: Bench, device: Device) -> tuple[Process, ...]:
    return bench.driver.processes(device.uuid)


def _becomes_true(condition: Callable[[], bool], *, within: float) -> bool:
    end = time.monotonic() + within
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def _pci_id(device: Device) -> int:
    """Return the 16-bit PCI device id."""
    handle = call_nvml(pynvml.nvmlDeviceGetHandleByUUID, device.uuid)
    return int(call_nvml(pynvml.nvmlDeviceGetPciInfo_v3, handle).pciDeviceId) >> 16


def _profile_text(profile: Profile) -> str:
    starts = ",".join(map(str, profile.starts))
    places = f"{{{starts}}}:{profile.size}"
    return f"{profile.name} id {profile.id} {profile.memory} MiB {profile.sms} SMs {places}"


def machine_facts() -> dict[str, Figure]:
    """Return what the report says of the machine."""
    system = os.uname()
    return {
        "kernel": f"{system.sysname} {system.release}",
        "architecture": system.machine,
        "root": os.geteuid() == 0,
        "pid_namespace": "own" if pids_hidden() else "of the node",
    }
