"""Decodes the parts of a GPUNode: boards, GPUs, instances and entries.

An unreadable part is left out, or kept without its placement, and noted with its path.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from typing import Final, TypeVar

import msgspec

from allocator.catalog.boards import board_named
from allocator.config.document import Notes, describe
from allocator.families.registry import FAMILIES
from allocator.ledger.schema import (
    KIND,
    PRINTABLE,
    BoardWire,
    ContainerWire,
    DeviceWire,
    EntryWire,
    GpuWire,
    InstanceWire,
    ProfileWire,
    StatusWire,
    Wire,
)
from allocator.mig.board_bounds import excess_of
from allocator.mig.profiles import canonical_profile, shape_of
from allocator.model.allocation import ContainerGrants, Entry, Grant
from allocator.model.board import Board, Placement, Profile
from allocator.model.gpu import Gpu
from allocator.model.problem import Problem
from allocator.model.request import Mode
from allocator.model.units import CorePercent, MiB
from allocator.model.untrusted import escaped, quote

W = TypeVar("W", bound=Wire)
_EXPECTED: Final = "Expected "
_LENGTH: Final = "array of length"
_PRINTABLE: Final = f"str matching regex {PRINTABLE!r}"  # as msgspec words it
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class FieldPlace:
    """A place in the object, and where problems are noted."""

    path: str  # as in status.gpus[0]
    notes: Notes

    def at(self, step: str) -> "FieldPlace":
        """Return the place one *step* further down."""
        return FieldPlace(f"{self.path}.{step}" if self.path else step, self.notes)

    def note_wrong(self, what: str, accepted: str) -> None:
        """Note that *what* was found here instead of *accepted*."""
        self.notes.error(self.path or KIND, what, accepted)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInventory:
    """The GPUs of a status, both by UUID."""

    gpus: Mapping[str, Gpu]  # without grants
    boards: Mapping[str, Board | None]  # also of GPUs in mode hami-core: entries may name profiles


def convert(value: object, kind: type[W], place: FieldPlace) -> W | None:
    """Return *value* converted to *kind*; where that fails, note why and return ``None``."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        _explain(str(error), value, place)
    return None


def _explain(message: str, value: object, place: FieldPlace) -> None:
    """Turn msgspec's "Expected `int` - at `$.a[0]`" into a problem that quotes the value."""
    text, _, json_path = message.replace("`", "").partition(" - at ")
    for key, index in _STEP.findall(json_path):
        value = value[key or int(index)]  # type: ignore[index]  # msgspec has just walked there
    steps = json_path[1:].removeprefix(".") if json_path.startswith("$") else ""
    field_place = place.at(steps) if steps else place
    if text.startswith(_EXPECTED):
        what, accepted = describe(value), text.removeprefix(_EXPECTED).partition(", got")[0]
        if _LENGTH in text and isinstance(value, Sized):
            what = f"{len(value)} elements"
            accepted = accepted.replace(f"{_LENGTH} <=", "at most")
        elif accepted == _PRINTABLE:
            accepted = "printable text"
        field_place.note_wrong(f"{what} found", accepted)
    else:  # a missing field, an unknown mode
        field_place.note_wrong(escaped(text.lower()), "a value that the CRD accepts")


def boards_of(status: StatusWire, place: FieldPlace) -> list[Board | None]:
    """Return the boards of a status, ``None`` for each that cannot be read."""
    return [read_board(item, place.at(f"boards[{i}]")) for i, item in enumerate(status.boards)]


def board_excess(boards: Iterable[Board | None], place: FieldPlace) -> Problem | None:
    """Return the first bound that one of *boards* exceeds, ``None`` where all are within."""
    for i, board in enumerate(boards):
        excess = None if board is None else excess_of(board)
        if excess is not None:
            path = place.at(f"boards[{i}].{excess.where}").path
            return Problem(path=path, what=excess.what, accepted=excess.accepted)
    return None


def inventory_of(
    status: StatusWire, boards: Sequence[Board | None], place: FieldPlace
) -> GpuInventory:
    """Return the readable GPUs, each with its board, one of *boards* or of the catalogue."""
    gpus: dict[str, Gpu] = {}
    boards_by_uuid: dict[str, Board | None] = {}
    for i, item in enumerate(status.gpus or ()):
        gpu_place = place.at(f"gpus[{i}]")
        wire = convert(item, GpuWire, gpu_place)
        if wire is not None and wire.uuid in gpus:
            gpu_place.note_wrong(f"{quote(wire.uuid)} twice", "each GPU once")
        elif wire is not None and wire.family not in FAMILIES:
            gpu_place.at("family").note_wrong(quote(wire.family), ", ".join(FAMILIES))
        elif wire is not None and wire.mode not in (modes := FAMILIES[wire.family].gpu_modes):
            gpu_place.at("mode").note_wrong(quote(wire.mode), " or ".join(modes))
        elif wire is not None:
            boards_by_uuid[wire.uuid] = board = _board_of_gpu(wire, boards, gpu_place)
            gpus[wire.uuid] = _gpu(wire, board)
    return GpuInventory(gpus=gpus, boards=boards_by_uuid)


def read_board(item: object, place: FieldPlace) -> Board | None:
    """Return the board of *item*; ``None`` where it cannot be read, which is noted."""
    wire = convert(item, BoardWire, place)
    if wire is None or not all(
        _is_plausible(profile, wire.slots, place.at(f"profiles[{i}]"))
        for i, profile in enumerate(wire.profiles)
    ):
        return None
    profiles = tuple(sorted(map(_profile, wire.profiles), key=_by_size))
    return _intern(Board(name=wire.name, slots=wire.slots, profiles=profiles))


def _is_plausible(profile: ProfileWire, slots: int, place: FieldPlace) -> bool:
    if shape_of(profile.name) is None:
        place.note_wrong(
            f"name {quote(profile.name)}", "a MIG profile such as 1g.5gb or 1g.10gb+me"
        )
        return False
    last = max(profile.starts, default=0)
    if last + profile.size > slots:
        place.note_wrong(f"{profile.size} slots from {last}", f"placements within {slots} slots")
        return False
    return True


def _profile(wire: ProfileWire) -> Profile:
    return Profile(
        name=wire.name,
        id=wire.id,
        memory=MiB(wire.memory_mib),
        sms=wire.sms,
        size=wire.size,
        starts=wire.starts,
        limit=wire.limit,
    )


def _by_size(profile: Profile) -> tuple[int, int]:
    return profile.slices, profile.size


@lru_cache(maxsize=256)
def _intern(board: Board) -> Board:
    """Return one object for equal boards: nodes share them, and so do tables built per board."""
    return board


def _board_of_gpu(wire: GpuWire, boards: Sequence[Board | None], place: FieldPlace) -> Board | None:
    """Return the board that the status gives for the GPU, else the catalogue's for its model."""
    if wire.board is not None and wire.board < len(boards):
        return boards[wire.board]
    if wire.board is not None:
        place.at("board").note_wrong(str(wire.board), f"an index below {len(boards)}")
    board = board_named(wire.model or "")
    if board is None and wire.mode is Mode.MIG:
        what = f"{escaped(wire.model or wire.uuid)} is in mode mig without a known board"
        place.note_wrong(what, "a board in status.boards, or mode hami-core")
    return board


def _gpu(wire: GpuWire, board: Board | None) -> Gpu:
    # Thousands of nodes have the same models, and each GPU is named by its peers and its grants.
    return Gpu(
        uuid=intern(wire.uuid),
        index=wire.index,
        model=intern(wire.model or (board.name if board else "")),
        memory=MiB(wire.memory_mib),
        mode=wire.mode,
        slots=wire.slots,
        board=board if wire.mode is Mode.MIG else None,
        healthy=wire.healthy,
        numa=wire.numa,
        switch=wire.switch,
        links=tuple(map(intern, wire.links)),
        link_counts=wire.link_counts,
        foreign=MiB(wire.foreign_mib),
        family=intern(wire.family),
        chunks=wire.chunks,
        chunk_sms=wire.chunk_sms,
    )


def instances_of(
    status: StatusWire, inventory: GpuInventory, place: FieldPlace
) -> Iterator[tuple[str, Placement]]:
    """Yield the MIG instances that can be read, with the UUIDs of their GPUs."""
    for i, item in enumerate(status.instances):
        item_place = place.at(f"instances[{i}]")
        wire = convert(item, InstanceWire, item_place)
        placed = None if wire is None else _placement(wire, inventory, item_place)
        if wire is not None and placed is not None:
            yield wire.gpu, placed


def _placement(
    wire: InstanceWire | DeviceWire, inventory: GpuInventory, place: FieldPlace
) -> Placement | None:
    board, start = inventory.boards.get(wire.gpu), wire.start
    profile = None if board is None else canonical_profile(board, wire.profile or "")
    if board and profile and start is not None and start + profile.size <= board.slots:
        return Placement(profile, start)
    what = f"{describe(wire.profile)} at {describe(start)} on {quote(wire.gpu)}"
    place.note_wrong(what, "a profile and a start of a GPU in status.gpus")
    return None


def entries_of(
    elements: Sequence[object], inventory: GpuInventory, place: FieldPlace, *, first: int = 0
) -> Iterator[Entry]:
    """Yield the readable entries among *elements*; the first has index *first* in *place*.

    A device whose placement cannot be read is kept without one.
    """
    for i, item in enumerate(elements, first):
        item_place = FieldPlace(f"{place.path}[{i}]", place.notes)
        wire = convert(item, EntryWire, item_place)
        if wire is not None:
            yield Entry(
                namespace=intern(wire.pod.namespace),
                pod=intern(wire.pod.name),
                uid=intern(wire.pod.uid),
                since=wire.since,
                containers=tuple(
                    _container(container, inventory, item_place.at(f"containers[{c}]"))
                    for c, container in enumerate(wire.containers)
                ),
            )


def _container(wire: ContainerWire, inventory: GpuInventory, place: FieldPlace) -> ContainerGrants:
    grants = tuple(_grants(wire, inventory, place))
    return ContainerGrants(name=intern(wire.name), grants=grants, stage=wire.stage)


def _grants(wire: ContainerWire, inventory: GpuInventory, place: FieldPlace) -> Iterator[Grant]:
    for i, device in enumerate(wire.devices):
        placed, device_place = None, place.at(f"devices[{i}]")
        if device.mode is Mode.MIG:
            placed = _placement(device, inventory, device_place)
        elif device.profile is not None or device.start is not None:
            device_place.note_wrong(
                f"a MIG placement in mode {device.mode}", f"a placement in mode {Mode.MIG} only"
            )
        yield Grant(
            gpu=intern(device.gpu),
            mode=device.mode,
            memory=MiB(device.memory_mib),
            cores=CorePercent(device.cores),
            placed=placed,
            position=device.position if placed is not None else None,
            share=device.share or "",
        )
