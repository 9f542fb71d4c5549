"""The JSON of GPUNode objects: its fields, their bounds, and how we write them.

:mod:`allocator.ledger.decode` reads them. Unknown fields, of a newer release, are ignored.
"""

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from allocator.model.allocation import Entry, Grant
from allocator.model.board import Board, Placement
from allocator.model.gpu import MOST_CHUNKS, Gpu, Node
from allocator.model.request import MOST_CONTAINERS, NVIDIA, Mode, Stage

API_VERSION: Final = "vgpu-admission.io/v1alpha1"
KIND: Final = "GPUNode"
# Earlier releases kept each GPUNode with this finalizer. After an uninstallation nobody was left to
# remove it, so none is written any more, and what is found is removed.
FORMER_FINALIZER: Final = "vgpu-admission.io/ledger"
# A device id travels in Volcano's annotations, whose separators it must not contain.
DEVICE_ID: Final = "[0-9A-Za-z][0-9A-Za-z._-]{0,95}"
UID: Final = "[0-9A-Za-z-]{1,64}"
# Without control, format and separator characters, which a terminal obeys, hides or turns round.
PRINTABLE: Final = (
    r"^[^\x00-\x1f\x7f-\xa0\xad\u061c\u180e"
    r"\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb]+\Z"
)
_Text = Annotated[str, msgspec.Meta(max_length=253, pattern=PRINTABLE)]
_Name = Annotated[str, msgspec.Meta(max_length=63, pattern=PRINTABLE)]
_DeviceId = Annotated[str, msgspec.Meta(pattern=rf"^{DEVICE_ID}\Z")]
_Uid = Annotated[str, msgspec.Meta(pattern=rf"^{UID}\Z")]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Some = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
_Chunks = Annotated[int, msgspec.Meta(ge=0, le=MOST_CHUNKS)]
_Slot = Annotated[int, msgspec.Meta(ge=0, le=63)]
_Slots = Annotated[int, msgspec.Meta(ge=1, le=63)]
_Few = msgspec.Meta(max_length=64)
MOST_ENTRIES: Final = 1024  # on one node
# Bounds on a status: what hardware has, with a margin. A node beyond them is closed and costs
# nothing more (allocator.ledger.decode). Boards have bounds of their own.
MOST_STATUS_BYTES: Final = 128 * 1024  # of the fields below; of 16 GPUs that are full, 80 KB
MOST_BOARDS: Final = 8  # GPUs of one model may differ in their placements
MOST_GPUS: Final = 64  # 16 in one machine, 32 with boxes of GPUs beside it
MOST_INSTANCES: Final = 512
MOST_UNPROMISED: Final = 256  # pods; kubelet runs 110 unless told otherwise
MOST_UNPROMISED_BYTES: Final = 48 * 1024  # of these; tenants decide how long they are
# The namespace, in place of a pod's, of use without an entry that belongs to no pod.
FOREIGN_NAMESPACE: Final = "foreign"


class Wire(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """Base of all parts: keys in camel case, defaults left out."""


class ProfileWire(Wire):
    """A MIG shape as NVML reports it."""

    name: _Text
    id: _Count
    memory_mib: _Some = msgspec.field(name="memoryMiB")
    sms: _Some
    size: _Slots
    starts: tuple[_Slot, ...]
    limit: _Count | None = None


class BoardWire(Wire):
    """The MIG shape table of one model."""

    name: _Text
    slots: _Slots
    profiles: Annotated[tuple[ProfileWire, ...], msgspec.Meta(min_length=1)]


class GpuWire(Wire):
    """A GPU; ``model`` may be missing where the board names it."""

    uuid: _DeviceId
    index: _Count
    memory_mib: _Some = msgspec.field(name="memoryMiB")
    slots: _Count
    mode: Mode
    healthy: bool
    model: _Text | None = None
    board: _Count | None = None
    numa: _Count | None = None
    switch: _Text | None = None
    links: Annotated[tuple[_DeviceId, ...], _Few] = ()
    link_counts: Annotated[tuple[_Count, ...], _Few] = ()
    foreign_mib: _Count = msgspec.field(name="foreignMiB", default=0)
    family: _Name = NVIDIA
    chunks: _Chunks = 0
    chunk_sms: _Chunks = msgspec.field(name="chunkSMs", default=0)


class InstanceWire(Wire):
    """A live MIG instance; the agent adds its UUID."""

    gpu: _DeviceId
    profile: _Text
    start: _Slot


class DeviceWire(Wire):
    """A grant; ``profile`` and ``start`` exist exactly in mode MIG, ``position`` only there.

    ``share`` is the sharing class of its pod, where GPUs are divided by such.
    """

    gpu: _DeviceId
    mode: Mode
    memory_mib: _Count = msgspec.field(name="memoryMiB")
    cores: _Percent
    profile: _Text | None = None
    start: _Slot | None = None
    position: _Text | None = None
    share: _Text | None = None


class ContainerWire(Wire):
    """The grants of one container; without ``stage`` it counts as an app container."""

    name: _Name
    devices: Annotated[tuple[DeviceWire, ...], _Few]
    stage: Stage = Stage.APP


class PodWire(Wire):
    """The pod of an entry."""

    namespace: _Name
    name: _Text
    uid: _Uid


class EntryWire(Wire):
    """One element of ``spec.entries``: the grants of one pod."""

    pod: PodWire
    since: Annotated[datetime, msgspec.Meta(tz=True)]
    containers: Annotated[tuple[ContainerWire, ...], msgspec.Meta(max_length=MOST_CONTAINERS)]


class MetadataWire(Wire):
    """The part of the metadata that is read."""

    name: _Text


class SpecWire(Wire, omit_defaults=False):
    """``spec``; entries are decoded one by one, so that a malformed one affects no other."""

    entries: Annotated[list[Any], msgspec.Meta(max_length=MOST_ENTRIES)] = []


class StatusWire(Wire, omit_defaults=False):
    """``status``; elements are decoded one by one, so that a malformed one affects no other.

    ``gpus`` is ``None`` before the first report, and empty where the node has no GPU.
    """

    boards: Annotated[list[Any], msgspec.Meta(max_length=MOST_BOARDS)] = []
    gpus: Annotated[list[Any], msgspec.Meta(max_length=MOST_GPUS)] | None = None
    instances: Annotated[list[Any], msgspec.Meta(max_length=MOST_INSTANCES)] = []
    unpromised: Annotated[list[Any], msgspec.Meta(max_length=MOST_UNPROMISED)] = []


class NamedWire(Wire):
    """An object with a name."""

    metadata: MetadataWire


class EntriesWire(Wire):
    """``spec`` with entries that are not decoded yet."""

    entries: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MOST_ENTRIES)] = []


class PartsWire(NamedWire):
    """A GPUNode whose entries and status fields are not decoded yet."""

    spec: EntriesWire = msgspec.field(default_factory=EntriesWire)
    status: dict[str, msgspec.Raw] = {}


def spec_of(entries: Iterable[Entry]) -> dict[str, object]:
    """Return ``spec``; decoding it gives *entries* back."""
    return _plain(SpecWire(entries=[_entry_wire(entry) for entry in entries]))


def _entry_wire(entry: Entry) -> EntryWire:
    containers = tuple(
        ContainerWire(name=c.name, stage=c.stage, devices=tuple(map(_device_wire, c.grants)))
        for c in entry.containers
    )
    pod = PodWire(namespace=entry.namespace, name=entry.pod, uid=entry.uid)
    return EntryWire(pod=pod, since=entry.since, containers=containers)


def _device_wire(grant: Grant) -> DeviceWire:
    placed = grant.placed
    return DeviceWire(
        gpu=grant.gpu,
        mode=grant.mode,
        memory_mib=grant.memory,
        cores=grant.cores,
        profile=None if placed is None else placed.profile.name,
        start=None if placed is None else placed.start,
        position=grant.position,
        share=grant.share or None,
    )


def status_of(node: Node, unpromised: Iterable[Entry] = ()) -> dict[str, object]:
    """Return the fields of ``status`` that follow from a Node, with the digest that commits test.

    *unpromised* are grants in use without an entry. The agent adds the other fields: PCI ids, UUIDs
    of instances, boot id and ``held``.
    """
    boards = tuple(dict.fromkeys(gpu.board for gpu in node.gpus if gpu.board is not None))
    status = StatusWire(
        boards=[board_wire(board) for board in boards],
        gpus=[_gpu_wire(gpu, boards) for gpu in node.gpus],
        instances=[_instance_wire(gpu.uuid, p) for gpu in node.gpus for p in gpu.instances],
        unpromised=[_entry_wire(entry) for entry in unpromised],
    )
    parts = (status.boards, status.gpus, status.unpromised)
    digested = msgspec.json.encode(parts, order="sorted")
    digest = hashlib.sha256(digested).hexdigest()
    return {"inventory": f"sha256:{digest}", **_plain(status)}


def board_wire(board: Board) -> BoardWire:
    """Return the shapes of *board* as they are written."""
    profiles = tuple(
        ProfileWire(
            name=p.name,
            id=p.id,
            memory_mib=p.memory,
            sms=p.sms,
            size=p.size,
            starts=p.starts,
            limit=p.limit,
        )
        for p in board.profiles
    )
    return BoardWire(name=board.name, slots=board.slots, profiles=profiles)


def _gpu_wire(gpu: Gpu, boards: tuple[Board, ...]) -> GpuWire:
    return GpuWire(
        uuid=gpu.uuid,
        index=gpu.index,
        model=gpu.model,
        memory_mib=gpu.memory,
        mode=gpu.mode,
        slots=gpu.slots,
        board=None if gpu.board is None else boards.index(gpu.board),
        healthy=gpu.healthy,
        numa=gpu.numa,
        switch=gpu.switch,
        links=gpu.links,
        link_counts=gpu.link_counts,
        foreign_mib=gpu.foreign,
        family=gpu.family,
        chunks=gpu.chunks,
        chunk_sms=gpu.chunk_sms,
    )


def _instance_wire(uuid: str, placed: Placement) -> InstanceWire:
    return InstanceWire(gpu=uuid, profile=placed.profile.name, start=placed.start)


def _plain(wire: Wire) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(wire)
    return plain
