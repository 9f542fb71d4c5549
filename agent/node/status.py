"""Status: the content of ``GPUNode.status``, from the driver and the configuration.

Only what matters for placement is written, so that it changes rarely: memory of other processes is
rounded, with hysteresis. Use without an entry is listed; where it is unknown, the node is closed.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import msgspec

from agent.driver.driver import Device
from agent.mig.progress import mode_clash
from agent.node.capacity import most_instances
from allocator.catalog.boards import board_named
from allocator.config.device_config import DeviceConfig, NodeConfig
from allocator.ledger.ledger import Ledger
from allocator.ledger.schema import status_of
from allocator.model.allocation import Entry
from allocator.model.board import Board, Placement
from allocator.model.gpu import Gpu, Node
from allocator.model.request import Mode
from allocator.model.units import NO_MEMORY, MiB

Json = dict[str, object]
MEMORY_STEP: Final = 256  # MiB in which memory of others is told
LONGEST_REASON: Final = 256  # characters; the CRD's bound


@dataclass(frozen=True, slots=True, kw_only=True)
class RealisedInstance:
    """A MIG instance that exists; ``foreign`` says that somebody else made it, and keeps it."""

    gpu: str
    placed: Placement
    uuid: str | None = None
    foreign: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What the driver says, and what was made of it.

    ``unhealthy`` has by UUID why a GPU takes no entries, ``foreign_memory`` the MiB that processes
    without an entry hold, as measured.
    """

    devices: tuple[Device, ...]
    driver: str = ""  # its version
    instances: tuple[RealisedInstance, ...] = ()
    unhealthy: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    foreign_memory: Mapping[str, MiB] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedGpu:
    """A GPU as it is told, with what only people and the agent read."""

    gpu: Gpu
    pci: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which life of which Node a status is of."""

    name: str
    uid: str
    boot: str


def served_gpus(
    hardware: Hardware, config: DeviceConfig, node: NodeConfig | None, *, before: Ledger | None
) -> tuple[ServedGpu, ...]:
    """Return the GPUs to serve, by index; those that *node* filters out are nobody's.

    *before* is what was told last: memory of others is compared with it.
    """
    gpus = {} if before is None else {gpu.uuid: gpu for gpu in before.node.gpus}
    served = (d for d in hardware.devices if node is None or not node.excludes(d.uuid, d.index))
    return tuple(
        _served_gpu(device, hardware, _slots(config, node), wanted=node, gpus=gpus)
        for device in sorted(served, key=lambda d: d.index)
    )


def _slots(config: DeviceConfig, node: NodeConfig | None) -> int:
    node_slots = None if node is None else node.split_count
    return config.split_count if node_slots is None else node_slots


def _served_gpu(
    device: Device,
    hardware: Hardware,
    slots: int,
    *,
    wanted: NodeConfig | None,
    gpus: Mapping[str, Gpu],
) -> ServedGpu:
    mode, reason = _mode(device, wanted)
    board = _board(device) if mode is Mode.MIG else None
    if mode is Mode.MIG and board is None:  # nothing could be promised, and nothing read
        mode, reason = Mode.HAMI_CORE, "its MIG profiles are unknown"
    before = gpus.get(device.uuid)
    reason = hardware.unhealthy.get(device.uuid, "") or reason or mode_clash(mode, before)
    if device.memory < 1:  # an object that says so would be refused as a whole
        reason = reason or "the driver does not report its memory"
    foreign_memory = hardware.foreign_memory.get(device.uuid, NO_MEMORY)
    gpu = Gpu(
        uuid=device.uuid,
        index=device.index,
        model=device.model,
        memory=max(device.memory, MiB(1)),
        mode=mode,
        slots=slots if board is None else most_instances(board),
        board=board,
        healthy=not reason,
        numa=device.numa,
        foreign=rounded_memory(
            before.foreign if before else NO_MEMORY, min(foreign_memory, device.memory)
        ),
        instances=tuple(i.placed for i in hardware.instances if i.gpu == device.uuid),
        links=device.links,
        switch=device.switch,
    )
    return ServedGpu(gpu=gpu, pci=device.pci, reason=reason[:LONGEST_REASON])


def _board(device: Device) -> Board | None:
    return device.board or board_named(device.model)


def _mode(device: Device, wanted: NodeConfig | None) -> tuple[Mode, str]:
    """Return the mode that a GPU serves in, and why it may not be used in it.

    A node that the configuration does not list serves each GPU as it is. From Hopper on a reboot
    ends MIG mode; on a node set up for MIG the first entry enables it again, without a reset.
    """
    if device.mig is None:
        return Mode.HAMI_CORE, ""
    current = Mode.MIG if device.mig.current else Mode.HAMI_CORE
    if wanted is None or wanted.mode is current:
        return current, ""
    if wanted.mode is Mode.MIG and not device.ampere_or_older:
        return Mode.MIG, ""
    switch = 1 if wanted.mode is Mode.MIG else 0
    return current, (
        f"operatingmode is {wanted.mode}, but MIG is {'off' if switch else 'on'}: drain the "
        f"node and run nvidia-smi -i {device.pci} -mig {switch}"
    )


def rounded_memory(reported: MiB, measured: MiB) -> MiB:
    """Return what to report for *measured* MiB, *reported* being what was reported last.

    Rounded up to steps, more at once, less only when it is less by two steps, or nothing.
    """
    rounded = -(-measured // MEMORY_STEP) * MEMORY_STEP
    same = (
        rounded <= reported
        and reported - rounded < 2 * MEMORY_STEP
        and (measured > 0 or reported == 0)
    )
    return reported if same else MiB(rounded)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAccount:
    """All that a status says; ``closed`` says why no GPU may be promised now, or is empty.

    One that is ``leaving`` has no inventory, so that nothing is promised on it ever again.
    """

    identity: Identity
    gpus: tuple[ServedGpu, ...]
    driver: str = ""
    instances: tuple[RealisedInstance, ...] = ()
    unpromised: tuple[Entry, ...] = ()
    held: Collection[str] = ()
    generation: int = 0
    closed: str = ""
    leaving: bool = False


def document(account: NodeAccount) -> Json:
    """Return ``status`` as the API server keeps it: JSON, and nothing empty."""
    gpus = account.gpus
    if account.closed:
        gpus = tuple(replace(one, reason=one.reason or account.closed) for one in gpus)
    node = Node(
        name=account.identity.name,
        gpus=tuple(replace(one.gpu, healthy=one.gpu.healthy and not one.reason) for one in gpus),
    )
    written: Json = msgspec.json.decode(msgspec.json.encode(status_of(node, account.unpromised)))
    gpu_documents = written["gpus"]
    if isinstance(gpu_documents, list):
        written["gpus"] = [
            wire | _extras(one) for wire, one in zip(gpu_documents, gpus, strict=True)
        ]
    served = {served_gpu.gpu.uuid for served_gpu in gpus}
    written["instances"] = [_instance(i) for i in account.instances if i.gpu in served]
    written |= {
        "held": sorted(account.held),
        "observedGeneration": account.generation,
        "nodeUID": account.identity.uid,
        "bootID": account.identity.boot,
        "driver": account.driver,
    }
    absent = {"inventory"} if account.leaving else set()
    return {key: value for key, value in written.items() if value != "" and key not in absent}


def _extras(served_gpu: ServedGpu) -> Json:
    reason: Json = {"reason": served_gpu.reason} if served_gpu.reason else {}
    return {"pci": served_gpu.pci} | reason


def _instance(instance: RealisedInstance) -> Json:
    placed = instance.placed
    uuid: Json = {"uuid": instance.uuid} if instance.uuid else {}
    return {
        "gpu": instance.gpu,
        "profile": placed.profile.name,
        "start": placed.start,
    } | uuid
