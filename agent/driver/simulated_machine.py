"""Simulated boards: what a driver would do to GPUs that do not exist, as a function of values.

The rules are those of real MIG: instances sit at explicit placements and never move, a GPU
instance is numbered by its place and the number is used again, a compute instance is destroyed
before its GPU instance, neither while something holds it. Questions and changes return what the
driver would answer, or :class:`DriverRefusal`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from agent.driver.driver import (
    ComputeMode,
    Device,
    DriverEvent,
    Fault,
    Instance,
    MigMode,
    Process,
    Usage,
)
from allocator.config.fleet_file import stable_uuid
from allocator.model.board import Board, Profile
from allocator.model.units import MiB

_MOST_EVENTS: Final = 256  # kept for sessions that have not read them yet
FALLEN_OFF: Final = 79  # the XID of a GPU that fell off the bus
FULL_COMPUTE: Final = 0  # the number of a compute instance that fills its GPU instance


@dataclass(frozen=True, slots=True)
class DriverRefusal:
    """The driver's refusal, with its message."""

    fault: Fault
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedGpu:
    """One GPU of a machine. Field names are part of the state file."""

    chip: Device  # as it was built and set up
    mig: MigMode | None  # its MIG mode now
    instances: tuple[Instance, ...] = ()
    processes: tuple[Process, ...] = ()
    leaks: frozenset[int] = frozenset()  # GPU instances to which a process keeps a handle open
    lost: bool = False
    faulty: bool = False  # reports a critical error to every new session
    compute: ComputeMode = ComputeMode.DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The GPUs of one machine since its last boot. Field names are part of the state file."""

    boot: str
    gpus: tuple[SimulatedGpu, ...]
    births: int = 0  # compute instances ever created, so that no UUID is used twice
    reported: int = 0  # number of the newest event
    events: tuple[DriverEvent, ...] = ()  # the newest ones


@dataclass(frozen=True, slots=True)
class Created:
    """The machine after a creation, and the instance that was created."""

    state: State
    instance: Instance


def new_machine(chips: Iterable[Device], boot: str) -> State:
    """Return a machine with these GPUs, all idle."""
    return State(boot=boot, gpus=tuple(SimulatedGpu(chip=chip, mig=chip.mig) for chip in chips))


def reboot(state: State, boot: str) -> State:
    """Return the machine after a restart: nothing runs, and only Ampere remembers MIG mode."""
    gpus = tuple(
        SimulatedGpu(chip=gpu.chip, mig=_mode_after_reboot(gpu), faulty=gpu.faulty)
        for gpu in state.gpus
    )
    return replace(state, boot=boot, gpus=gpus, events=())


def _mode_after_reboot(gpu: SimulatedGpu) -> MigMode | None:
    if gpu.mig is None:
        return None
    on = gpu.mig.pending and gpu.chip.ampere_or_older
    return MigMode(current=on, pending=on)


def refit(state: State, fresh: State) -> State:
    """Return *fresh*, where GPUs that are built as in *state* keep what runs on them."""
    running_gpus = {running.chip.uuid: running for running in state.gpus}
    gpus = tuple(
        replace(old, faulty=new.faulty)
        if (old := running_gpus.get(new.chip.uuid)) and old.chip == new.chip
        else new
        for new in fresh.gpus
    )
    return replace(state, gpus=gpus)


def devices(state: State) -> tuple[Device, ...]:
    """Return the GPUs that are not lost, by index."""
    present = sorted((gpu for gpu in state.gpus if not gpu.lost), key=lambda gpu: gpu.chip.index)
    return tuple(replace(gpu.chip, mig=gpu.mig) for gpu in present)


def find_gpu(state: State, uuid: str) -> SimulatedGpu | DriverRefusal:
    """Return the GPU called *uuid*."""
    gpu = next((gpu for gpu in state.gpus if gpu.chip.uuid == uuid), None)
    if gpu is None:
        return DriverRefusal(Fault.ABSENT, f"no GPU {uuid!r}")
    return DriverRefusal(Fault.LOST, f"GPU {uuid!r} is lost") if gpu.lost else gpu


def processes(gpu: SimulatedGpu) -> tuple[Process, ...]:
    """Return the processes as the host sees them: their utilization is unknown under MIG."""
    if _in_mig_mode(gpu):
        return tuple(replace(process, utilization=None) for process in gpu.processes)
    return gpu.processes


def usage(gpu: SimulatedGpu) -> Usage:
    """Return the sums over the processes of one GPU."""
    memory = sum(process.memory or 0 for process in gpu.processes)
    share = sum(process.utilization or 0 for process in gpu.processes)
    return Usage(
        memory=MiB(min(memory, gpu.chip.memory)),
        utilization=None if _in_mig_mode(gpu) else min(share, 100),
    )


def events_since(state: State, seen: int) -> tuple[DriverEvent, ...]:
    """Return the events after number *seen*, as far as they are kept."""
    new = min(state.reported - seen, len(state.events))
    return state.events[len(state.events) - new :] if new > 0 else ()


def create_instance(
    state: State, uuid: str, *, profile: int, start: int
) -> Created | DriverRefusal:
    """Create a GPU instance; NO_ROOM where the placement or the media engines are taken."""
    gpu = find_gpu(state, uuid)
    if isinstance(gpu, DriverRefusal):
        return gpu
    board = gpu.chip.board
    if not _in_mig_mode(gpu) or board is None:
        return DriverRefusal(Fault.NOT_SUPPORTED, "MIG mode is off")
    requested = next((p for p in board.profiles if p.id == profile), None)
    if requested is None or start not in requested.starts:
        return DriverRefusal(Fault.OTHER, f"profile {profile} has no placement at {start}")
    present = [(_profile(board, i), i.start) for i in gpu.instances]
    if any(p.mask(at) & requested.mask(start) for p, at in present):
        return DriverRefusal(
            Fault.NO_ROOM, f"profile {profile} at {start} overlaps an existing instance"
        )
    if _lacks_media_engines(requested, [p for p, _ in present]):
        return DriverRefusal(Fault.NO_ROOM, f"no free engines for profile {profile}")
    number = _number(board, requested, start, taken={i.id for i in gpu.instances})
    created = Instance(gpu=uuid, id=number, profile=profile, start=start)
    return Created(_put_gpu(state, replace(gpu, instances=(*gpu.instances, created))), created)


def create_compute(state: State, uuid: str, number: int) -> Created | DriverRefusal:
    """Create the compute instance that fills a GPU instance, with a UUID never used before."""
    gpu_and_instance = _find_instance(state, uuid, number)
    if isinstance(gpu_and_instance, DriverRefusal):
        return gpu_and_instance
    gpu, old = gpu_and_instance
    if old.compute is not None:
        return DriverRefusal(Fault.NO_ROOM, f"instance {number} already has a compute instance")
    seed = f"{state.boot}/{uuid}/{state.births}"
    created = replace(old, compute=FULL_COMPUTE, uuid=stable_uuid("MIG", seed))
    state = _put_gpu(state, _replace_instance(gpu, old, created))
    return Created(replace(state, births=state.births + 1), created)


def destroy_compute(state: State, uuid: str, *, number: int, compute: int) -> State | DriverRefusal:
    """Destroy a compute instance; IN_USE while a process runs on it."""
    gpu_and_instance = _find_instance(state, uuid, number)
    if isinstance(gpu_and_instance, DriverRefusal):
        return gpu_and_instance
    gpu, old = gpu_and_instance
    if old.compute != compute:
        return DriverRefusal(Fault.ABSENT, f"instance {number} has no compute instance {compute}")
    if any(process.instance == old.uuid for process in gpu.processes):
        return DriverRefusal(Fault.IN_USE, f"a process uses instance {number}")
    return _put_gpu(state, _replace_instance(gpu, old, replace(old, compute=None, uuid=None)))


def destroy_instance(state: State, uuid: str, number: int) -> State | DriverRefusal:
    """Destroy a GPU instance; IN_USE while it has compute, or somebody keeps a handle."""
    gpu_and_instance = _find_instance(state, uuid, number)
    if isinstance(gpu_and_instance, DriverRefusal):
        return gpu_and_instance
    gpu, old = gpu_and_instance
    if old.compute is not None or number in gpu.leaks:
        return DriverRefusal(Fault.IN_USE, f"instance {number} is in use")
    remaining = tuple(i for i in gpu.instances if i.id != number)
    return _put_gpu(state, replace(gpu, instances=remaining))


def set_mode(state: State, uuid: str, *, on: bool) -> State | DriverRefusal:
    """Set MIG mode; on a busy Ampere GPU it takes effect at the next reset."""
    gpu = find_gpu(state, uuid)
    if isinstance(gpu, DriverRefusal):
        return gpu
    if gpu.mig is None:
        return DriverRefusal(Fault.NOT_SUPPORTED, f"{gpu.chip.model} does not support MIG")
    busy = bool(gpu.processes)
    if gpu.instances or (busy and not gpu.chip.ampere_or_older):
        return DriverRefusal(Fault.IN_USE, "the GPU is in use")
    mode = MigMode(current=gpu.mig.current if busy else on, pending=on)
    return _put_gpu(state, replace(gpu, mig=mode))


def set_compute_mode(state: State, uuid: str, mode: ComputeMode) -> State | DriverRefusal:
    """Set which processes may compute on a GPU at once."""
    gpu = find_gpu(state, uuid)
    if isinstance(gpu, DriverRefusal):
        return gpu
    return _put_gpu(state, replace(gpu, compute=mode))


def change_gpu(state: State, uuid: str, change: Callable[[SimulatedGpu], SimulatedGpu]) -> State:
    """Return *state* with one GPU changed from outside the driver."""
    gpus = tuple(change(gpu) if gpu.chip.uuid == uuid else gpu for gpu in state.gpus)
    return replace(state, gpus=gpus)


def add_event(state: State, event: DriverEvent) -> State:
    """Return *state* after the driver reported *event*."""
    events = (*state.events, event)[-_MOST_EVENTS:]
    return replace(state, events=events, reported=state.reported + 1)


def _in_mig_mode(gpu: SimulatedGpu) -> bool:
    return gpu.mig is not None and gpu.mig.current


def _profile(board: Board, instance: Instance) -> Profile:
    return next(p for p in board.profiles if p.id == instance.profile)


def _lacks_media_engines(requested: Profile, present: list[Profile]) -> bool:
    """Say whether media engines are used up: +me.all takes all, only -me needs none of them."""
    same_profile = sum(p.id == requested.id for p in present)
    if requested.limit is not None and same_profile >= requested.limit:
        return True
    with_engines = [p for p in present if not p.name.endswith("-me")]
    if requested.name.endswith("-me"):
        return False
    return any(p.name.endswith("+me.all") for p in with_engines) or (
        requested.name.endswith("+me.all") and bool(with_engines)
    )


def _number(board: Board, profile: Profile, start: int, *, taken: set[int]) -> int:
    """Return the number of an instance: its node in the binary tree over the memory."""
    first = (1 << (board.slots // profile.size).bit_length() - 1) - 1
    number = first + start // profile.size
    while number in taken:  # a board whose placements form no binary tree
        number += 1
    return number


def _find_instance(
    state: State, uuid: str, number: int
) -> tuple[SimulatedGpu, Instance] | DriverRefusal:
    gpu = find_gpu(state, uuid)
    if isinstance(gpu, DriverRefusal):
        return gpu
    instance = next((i for i in gpu.instances if i.id == number), None)
    if instance is None:
        return DriverRefusal(Fault.ABSENT, f"no instance {number}")
    return gpu, instance


def _replace_instance(gpu: SimulatedGpu, old: Instance, new: Instance) -> SimulatedGpu:
    return replace(gpu, instances=tuple(new if i is old else i for i in gpu.instances))


def _put_gpu(state: State, gpu: SimulatedGpu) -> State:
    return change_gpu(state, gpu.chip.uuid, lambda _: gpu)
