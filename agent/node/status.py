"""Status: the content of ``GPUNode.status``, from the driver and the configuration.

Only what matters for placement is written, so that it changes rarely: memory of other processes is
rounded, with hysteresis. Use without an entry is listed, so that nobody is promised it.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

import msgspec

from agent.driver.driver import Device
from agent.driver.static_partitioning import chunk_size
from agent.mig.progress import mode_clash
from agent.node.capacity import most_instances
from agent.node.slots import most_clients
from allocator.catalog.boards import board_named
from allocator.config.device_config import DeviceConfig, NodeConfig
from allocator.ledger.ledger import Ledger
from allocator.ledger.schema import status_of
from allocator.model.allocation import Entry, Grant
from allocator.model.board import Board, Placement
from allocator.model.gpu import Gpu, Node
from allocator.model.request import Mode
from allocator.model.units import NO_MEMORY, MiB
from allocator.placement.fit import hardware as hardware_mode

Json = dict[str, object]
# Age of an entry after which kubelet has decided about its pod; entries have whole seconds.
ADMITTED_WITHIN: Final = timedelta(seconds=4)
MEMORY_STEP: Final = 256  # MiB; foreign memory is reported in multiples
UNFOLLOWED: Final = "mode mps: its daemon was not looked at yet"
UNDIVIDED: Final = "mode mps: its daemon has yet to say into how many chunks it is divided"
LONGEST_REASON: Final = 256  # characters; the CRD's bound


@dataclass(frozen=True, slots=True, kw_only=True)
class RealisedInstance:
    """A MIG instance that exists."""

    gpu: str
    placed: Placement
    uuid: str | None = None
    foreign: bool = False  # not created by the agent, which leaves it alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What the driver reports, and what was derived from it."""

    devices: tuple[Device, ...]
    driver: str = ""  # its version
    cuda: str = ""  # the newest CUDA that it supports, as 13.1
    # the most clients that an MPS server of this driver was seen with at once
    mps_clients: int = 0
    # the clients that a server takes that refused one, by the UUID of its GPU
    mps_limits: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    # GPUs whose daemons, if they are to have any, are looked after; None: all
    mps_followed: frozenset[str] | None = None
    # into how many chunks a GPU is divided, by UUID, where its daemon has said so
    mps_chunks: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    instances: tuple[RealisedInstance, ...] = ()
    # why a GPU takes no entries, by UUID
    unhealthy: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # memory held by processes without an entry, as measured, by UUID
    foreign_memory: Mapping[str, MiB] = field(default_factory=lambda: MappingProxyType({}))
    # by pod without an entry, the GPUs and MIG instances on which it has processes, by UUID
    reached: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedGpu:
    """A GPU as it is reported."""

    gpu: Gpu
    pci: str  # address
    reason: str = ""  # why it takes no entries; empty if it does


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The Node and the boot that a status is about."""

    name: str
    uid: str
    boot: str


SEVERAL_MODELS: Final = "several"  # the label of a node whose GPUs differ
_LONGEST_LABEL: Final = 63  # characters
_NOT_IN_LABELS: Final = re.compile(r"[^A-Za-z0-9._-]+")


def model_label(models: Iterable[str]) -> str | None:
    """Return the label value for GPUs of these *models*, ``None`` where there are none.

    Characters that no label may have become dashes, as NVIDIA's feature discovery writes models.
    """
    names = {_NOT_IN_LABELS.sub("-", model)[:_LONGEST_LABEL].strip("-._") for model in models}
    names.discard("")
    return SEVERAL_MODELS if len(names) > 1 else next(iter(names), None)


def served_gpus(
    hardware: Hardware, config: DeviceConfig, node: NodeConfig | None, *, before: Ledger | None
) -> tuple[ServedGpu, ...]:
    """Return the GPUs to serve, by index, without those that *node* filters out.

    *before* is the last status, with which foreign memory is compared.
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
    before = gpus.get(device.uuid)
    chunks = 0
    mode, reason = _mode(device, wanted, () if before is None else before.grants)
    board = _board(device) if mode is Mode.MIG else None
    if mode is Mode.MIG and board is None:  # no instance could be promised or read
        mode, reason = Mode.HAMI_CORE, "its MIG profiles are unknown"
    if mode is Mode.MPS:
        slots, chunks, why = _mps_sharing(device, hardware, slots, wanted=wanted, before=before)
        reason = reason or why
    reason = hardware.unhealthy.get(device.uuid, "") or reason or mode_clash(mode, before)
    if device.memory < 1:  # the API server would refuse the whole object
        reason = reason or "the driver does not report its memory"
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
        foreign=_foreign_memory(device, hardware, before),
        instances=tuple(i.placed for i in hardware.instances if i.gpu == device.uuid),
        links=device.links,
        link_counts=device.link_counts,
        switch=device.switch,
        chunks=chunks,
        chunk_sms=chunk_size(device.capability) if chunks else 0,
    )
    return ServedGpu(gpu=gpu, pci=device.pci, reason=reason[:LONGEST_REASON])


def _foreign_memory(device: Device, hardware: Hardware, before: Gpu | None) -> MiB:
    used = hardware.foreign_memory.get(device.uuid, NO_MEMORY)
    return rounded_memory(before.foreign if before else NO_MEMORY, min(used, device.memory))


def _mps_sharing(
    device: Device, hardware: Hardware, slots: int, *, wanted: NodeConfig | None, before: Gpu | None
) -> tuple[int, int, str]:
    """Return slots and chunks of a GPU in mode mps, and why it takes no entries."""
    most = most_clients(hardware.cuda, seen=hardware.mps_clients)
    slots = min(slots, hardware.mps_limits.get(device.uuid, most))
    followed = hardware.mps_followed is None or device.uuid in hardware.mps_followed
    static, why = static_partitioning(device, wanted, before)
    why = why if followed else UNFOLLOWED
    if not static:
        return slots, 0, why
    # An agent that has just started keeps the number until the daemon answers.
    chunks = hardware.mps_chunks.get(device.uuid, before.chunks if before else 0)
    if not chunks:
        return slots, 0, why or UNDIVIDED
    return min(slots, chunks), chunks, why  # each container takes one at least


def _board(device: Device) -> Board | None:
    return device.board or board_named(device.model)


def _mode(device: Device, wanted: NodeConfig | None, grants: Sequence[Grant]) -> tuple[Mode, str]:
    """Return the mode that a GPU serves in, and why it may not be used in it.

    A node that the configuration does not list serves each GPU as it is. From Hopper on a reboot
    ends MIG mode; on a node set up for MIG the first entry enables it again, without a reset.
    """
    shared, reason = _shared_mode(device, wanted, grants)
    if device.mig is None:
        return shared, reason
    current = Mode.MIG if device.mig.current else shared
    chosen = _configured(device, wanted)
    if wanted is None or (chosen is Mode.MIG) is (current is Mode.MIG):
        return current, "" if current is Mode.MIG else reason
    if chosen is Mode.MIG and not device.ampere_or_older:
        return Mode.MIG, ""
    switch = 1 if chosen is Mode.MIG else 0
    return current, (
        f"{wanted.mode_text(device.uuid, device.index)}, but MIG is {'off' if switch else 'on'}: "
        f"drain the node and run nvidia-smi -i {device.pci} -mig {switch}"
    )


def _configured(device: Device, wanted: NodeConfig | None) -> Mode | None:
    """Return the mode that the node's owner wants the GPU in, ``None`` where nobody said."""
    return None if wanted is None else wanted.mode_of(device.uuid, device.index)


def _shared_mode(
    device: Device, wanted: NodeConfig | None, grants: Sequence[Grant]
) -> tuple[Mode, str]:
    """Return the mode that a GPU serves in while MIG is off, and why it may not be used in it.

    Between mps and hami-core a GPU changes only when nothing is promised on it.
    """
    chosen = Mode.MPS if wants_mps(device, wanted) else Mode.HAMI_CORE
    other = Mode.HAMI_CORE if chosen is Mode.MPS else Mode.MPS
    # A GPU that is to be in mode mig serves as hami-core while MIG is off.
    named = wanted is not None and _configured(device, wanted) is not Mode.MIG
    text = (
        wanted.mode_text(device.uuid, device.index) if wanted and named else f"its mode is {chosen}"
    )
    if any(hardware_mode(grant.mode) is other for grant in grants):
        return other, f"{text}, but pods in mode {other} have yet to end on it"
    if chosen is Mode.HAMI_CORE and _configured(device, wanted) is Mode.MPS:
        return chosen, f"{text}, which needs a GPU of Volta or newer"
    return chosen, ""


def wants_mps(device: Device, wanted: NodeConfig | None) -> bool:
    """Say whether the node's owner wants the GPU in mode mps, and it is able to."""
    return (
        wanted is not None
        and _configured(device, wanted) is Mode.MPS
        and device.mps
        and not wanted.excludes(device.uuid, device.index)
        and (device.mig is None or not device.mig.current)
    )


def static_partitioning(
    device: Device, wanted: NodeConfig | None, before: Gpu | None
) -> tuple[bool, str]:
    """Say whether a GPU in mode mps is partitioned statically, and why it takes no new pods.

    *before* is the GPU as it was reported. Its daemon is changed only when no entry is left: it
    would end what the pods run, and their shares were counted in the other way.
    """
    asked = wanted is not None and wanted.is_static(device.uuid, device.index)
    in_use = before is not None and any(grant.mode is Mode.MPS for grant in before.grants)
    if before is None or not in_use or bool(before.chunks) is asked:
        return asked, ""
    wants, have = ("with", "without") if asked else ("without", "with")
    return not asked, (
        f"mpsstatic wants it {wants} static partitioning, but pods {have} have yet to end on it"
    )


def rounded_memory(reported: MiB, measured: MiB) -> MiB:
    """Return the MiB to report, given the *measured* and the last *reported* ones.

    Rounded up to steps. An increase is reported at once, a decrease only by two steps or to 0.
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
    """The content of a status."""

    identity: Identity
    gpus: tuple[ServedGpu, ...]
    driver: str = ""
    instances: tuple[RealisedInstance, ...] = ()
    unpromised: tuple[Entry, ...] = ()
    held: Collection[str] = ()
    generation: int = 0
    closed: str = ""  # why no GPU may be promised now; empty: open
    exposed: str = ""  # why any container may see GPUs that nobody gave it; empty: none may
    no_inventory: str = ""  # why none is written, so that no GPU is promised; empty: one is


def document(account: NodeAccount) -> Json:
    """Return ``status`` as the API server stores it: JSON without empty fields."""
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
    written["closed"] = _closed_text(account)
    written["exposed"] = _plain(account.exposed)
    absent = {"inventory"} if account.no_inventory else set()
    return {key: value for key, value in written.items() if value != "" and key not in absent}


def _closed_text(account: NodeAccount) -> str:
    """Return why no GPU of the node can be used; empty if one can."""
    reasons = [one.reason for one in account.gpus]
    why = account.no_inventory or account.closed
    if not why and all(reasons):
        why = reasons[0] if reasons else "its agent has found no GPU"
    return _plain(why)


def _plain(reason: str) -> str:
    """Return *reason* as the API server takes it: short, in printable ASCII."""
    return "".join(c if " " <= c <= "~" else "?" for c in reason[:LONGEST_REASON])


def _extras(served_gpu: ServedGpu) -> Json:
    reason: Json = {"reason": _plain(served_gpu.reason)} if served_gpu.reason else {}
    return {"pci": served_gpu.pci} | reason


def _instance(instance: RealisedInstance) -> Json:
    placed = instance.placed
    uuid: Json = {"uuid": instance.uuid} if instance.uuid else {}
    return {
        "gpu": instance.gpu,
        "profile": placed.profile.name,
        "start": placed.start,
    } | uuid


def awaits_admission(ledger: Ledger, now: datetime) -> bool:
    """Say whether kubelet may have yet to admit a pod that has an entry; *now* is an aware time.

    The pod of an entry that is held has been admitted: its first container was about to start.
    """
    return any(
        entry.uid not in ledger.held and now - entry.since < ADMITTED_WITHIN
        for entry in ledger.entries
    )
