"""GPUNode, the object per node that holds promises (spec) and inventory (status), as a Node.

Whatever its content, an object becomes a Node and a list of problems, never an exception. Doubt
costs capacity, not safety: a promise or an instance that cannot be read may hold anything, so it
closes the node's GPUs for new grants; a GPU that cannot be read leaves the node unfit to refuse on.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from allocator.catalog.boards import board_named
from allocator.catalog.profiles import canonical_profile, shape_of
from allocator.core.document import Notes, described
from allocator.core.gpunodewire import (
    KIND,
    BoardWire,
    ContainerWire,
    DeviceWire,
    EntryWire,
    GpuWire,
    InstanceWire,
    NamedWire,
    ProfileWire,
    SpecWire,
    StatusWire,
    Wire,
)
from allocator.core.wording import quoted, shown
from allocator.model.board import Board, Placed, Profile
from allocator.model.decision import ContainerGrants
from allocator.model.gpu import Gpu, Grant, Node
from allocator.model.ledger import Entry
from allocator.model.problem import Problem
from allocator.model.request import Mode
from allocator.model.units import CorePercent, MiB

W = TypeVar("W", bound=Wire)

_EXPECTED: Final = "Expected "
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+)\]")
STATUSES: Final = 2048  # that are remembered as read, a few kilobytes each
PROMISES: Final = 8192

_INVENTORIED: Final = StatusWire.__struct_encode_fields__

_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """What a GPUNode says; ``node`` has every readable promise on its GPUs.

    ``unpromised`` is what the agent found in use by pods that have no entry: taken all the same.
    """

    node: Node
    entries: tuple[Entry, ...] = ()
    unpromised: tuple[Entry, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in the object, at which something may turn out to be wrong."""

    path: str
    notes: Notes

    def at(self, step: str) -> "_Place":
        return _Place(f"{self.path}.{step}" if self.path else step, self.notes)

    def wrong(self, what: str, accepted: str) -> None:
        self.notes.error(self.path or KIND, what, accepted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inventory:
    """GPUs without what is promised on them, and the shapes by which promises are read."""

    gpus: Mapping[str, Gpu]
    shapes: Mapping[str, Board | None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Status:
    """What a status says, whatever is promised; ``gpus`` have their instances.

    ``blurs`` are the problems with what is in use or live, ``problems`` those before.
    """

    inventory: _Inventory
    gpus: tuple[Gpu, ...]
    complete: bool
    unpromised: tuple[Entry, ...]
    problems: tuple[Problem, ...]
    blurs: tuple[Problem, ...]


def decode(document: object) -> Decoded:
    """Read a GPUNode that was parsed from JSON.

    A promise changes one entry of many and nothing of the status, so both are read once for all
    objects in which they stand alike.
    """
    notes = Notes()
    top = _Place("", notes)
    named = _convert(document, NamedWire, top)
    parts = document if isinstance(document, Mapping) else {}
    status = _status(_encode(_inventoried(parts.get("status") or {})))
    fresh = status.complete and not notes.errors
    unclear = len(notes.errors)
    spec = _convert(parts.get("spec") or {}, SpecWire, top.at("spec")) or SpecWire()
    entries = tuple(_promises(spec.entries, status, top.at("spec.entries")))
    promised = {entry.uid for entry in entries}
    unpromised = tuple(entry for entry in status.unpromised if entry.uid not in promised)
    closed = bool(status.blurs) or len(notes.errors) > unclear
    problems = (*notes.errors[:unclear], *status.problems, *notes.errors[unclear:], *status.blurs)
    held = _by_gpu((*entries, *unpromised))
    gpus = tuple(_holding(gpu, held.get(gpu.uuid), closed=closed) for gpu in status.gpus)
    node = Node(name="" if named is None else named.metadata.name, gpus=gpus, fresh=fresh)
    return Decoded(node=node, entries=entries, unpromised=unpromised, problems=problems)


def _inventoried(status: object) -> object:
    """Leave out what changes with every start of a container and is not read here."""
    if not isinstance(status, Mapping):
        return status
    return {key: status[key] for key in _INVENTORIED if key in status}


def _by_gpu(entries: Iterable[Entry]) -> Mapping[str, list[Grant]]:
    held: dict[str, list[Grant]] = {}
    for entry in entries:
        for container in entry.containers:
            for grant in container.grants:
                held.setdefault(grant.gpu, []).append(grant)
    return held


def _holding(gpu: Gpu, grants: Sequence[Grant] | None, *, closed: bool) -> Gpu:
    if not grants and not closed:
        return gpu
    return replace(gpu, healthy=gpu.healthy and not closed, grants=tuple(grants or ()))


@lru_cache(maxsize=STATUSES)
def _status(raw: bytes) -> _Status:
    """Read a status as JSON."""
    notes = Notes()
    place = _Place("status", notes)
    status = _convert(msgspec.json.decode(raw), StatusWire, place) or StatusWire()
    inventory = _inventory(status, place)
    complete = status.gpus is not None and not notes.errors
    clear = len(notes.errors)
    found = _entries(status.unpromised, inventory, place.at("unpromised"))
    unpromised = tuple(found)
    live: dict[str, list[Placed]] = {}
    for uuid, placed in _instances(status, inventory, place):
        live.setdefault(uuid, []).append(placed)
    return _Status(
        inventory=inventory,
        gpus=tuple(
            replace(gpu, instances=tuple(live[uuid])) if uuid in live else gpu
            for uuid, gpu in inventory.gpus.items()
        ),
        complete=complete,
        unpromised=unpromised,
        problems=tuple(notes.errors[:clear]),
        blurs=tuple(notes.errors[clear:]),
    )


def _promises(written: Sequence[object], status: _Status, place: _Place) -> Iterator[Entry]:
    for i, item in enumerate(written):
        found = _promise(_encode(item), status)
        if found is not None:
            yield found
        else:  # say where
            yield from _entries([item], status.inventory, place, first=i)


@lru_cache(maxsize=PROMISES)
def _promise(raw: bytes, status: _Status) -> Entry | None:
    """Read an entry as JSON; ``None`` where anything is wrong with it."""
    notes = Notes()
    found = list(_entries([msgspec.json.decode(raw)], status.inventory, _Place("", notes)))
    return found[0] if found and not notes.errors else None


def _convert(value: object, kind: type[W], place: _Place) -> W | None:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        _explain(str(error), value, place)
    return None


def _explain(message: str, value: object, place: _Place) -> None:
    """Turn "Expected `int` - at `$.a[0]`" into a problem that quotes what stands there."""
    text, _, where = message.replace("`", "").partition(" - at ")
    for key, index in _STEP.findall(where):
        value = value[key or int(index)]  # type: ignore[index]  # msgspec has just walked there
    steps = where[1:].removeprefix(".") if where.startswith("$") else ""
    there = place.at(steps) if steps else place
    if text.startswith(_EXPECTED):
        there.wrong(f"{described(value)} found", text.removeprefix(_EXPECTED).partition(", got")[0])
    else:  # a missing field, an unknown mode
        there.wrong(shown(text.lower()), "what the description of the CRD says")


def _inventory(status: StatusWire, place: _Place) -> _Inventory:
    boards = [_board(item, place.at(f"boards[{i}]")) for i, item in enumerate(status.boards)]
    gpus: dict[str, Gpu] = {}
    shapes: dict[str, Board | None] = {}
    for i, item in enumerate(status.gpus or ()):
        there = place.at(f"gpus[{i}]")
        wire = _convert(item, GpuWire, there)
        if wire is not None and wire.uuid in gpus:
            there.wrong(f"{quoted(wire.uuid)} twice", "each GPU once")
        elif wire is not None and wire.mode is Mode.MEMORY_ONLY:  # a grant's mode, no GPU's
            there.at("mode").wrong(quoted(wire.mode), f"{Mode.MIG} or {Mode.HAMI_CORE}")
        elif wire is not None:
            shapes[wire.uuid] = board = _shape(wire, boards, there)
            gpus[wire.uuid] = _gpu(wire, board)
    return _Inventory(gpus=gpus, shapes=shapes)


def _board(item: object, place: _Place) -> Board | None:
    wire = _convert(item, BoardWire, place)
    if wire is None or not all(
        _plausible(profile, wire.slots, place.at(f"profiles[{i}]"))
        for i, profile in enumerate(wire.profiles)
    ):
        return None
    profiles = tuple(sorted(map(_profile, wire.profiles), key=_by_size))
    return _interned(Board(name=wire.name, slots=wire.slots, profiles=profiles))


def _plausible(profile: ProfileWire, slots: int, place: _Place) -> bool:
    if shape_of(profile.name) is None:
        place.wrong(f"name {quoted(profile.name)}", "a MIG profile such as 1g.5gb or 1g.10gb+me")
        return False
    last = max(profile.starts, default=0)
    if last + profile.size > slots:
        place.wrong(f"{profile.size} slots from {last}", f"placements within {slots} slots")
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
def _interned(board: Board) -> Board:
    """Return one object for equal boards: nodes share them, and so do tables built per board."""
    return board


def _shape(wire: GpuWire, boards: Sequence[Board | None], place: _Place) -> Board | None:
    """Return how the GPU may be cut: as its node says, else as the catalogue does."""
    if wire.board is not None and wire.board < len(boards):
        return boards[wire.board]
    if wire.board is not None:
        place.at("board").wrong(str(wire.board), f"an index below {len(boards)}")
    board = board_named(wire.model or "")
    if board is None and wire.mode is Mode.MIG:
        what = f"{shown(wire.model or wire.uuid)} is in mode mig without a known board"
        place.wrong(what, "a board in status.boards, or mode hami-core")
    return board


def _gpu(wire: GpuWire, board: Board | None) -> Gpu:
    return Gpu(
        uuid=wire.uuid,
        index=wire.index,
        model=wire.model or (board.name if board else ""),
        memory=MiB(wire.memory_mib),
        mode=wire.mode,
        slots=wire.slots,
        board=board if wire.mode is Mode.MIG else None,
        healthy=wire.healthy,
        numa=wire.numa,
        switch=wire.switch,
        links=wire.links,
        foreign=MiB(wire.foreign_mib),
    )


def _instances(
    status: StatusWire, inventory: _Inventory, place: _Place
) -> Iterator[tuple[str, Placed]]:
    for i, item in enumerate(status.instances):
        there = place.at(f"instances[{i}]")
        wire = _convert(item, InstanceWire, there)
        placed = None if wire is None else _placed(wire, inventory, there)
        if wire is not None and placed is not None:
            yield wire.gpu, placed


def _placed(wire: InstanceWire | DeviceWire, inventory: _Inventory, place: _Place) -> Placed | None:
    board, start = inventory.shapes.get(wire.gpu), wire.start
    profile = None if board is None else canonical_profile(board, wire.profile or "")
    if board and profile and start is not None and start + profile.size <= board.slots:
        return Placed(profile, start)
    what = f"{described(wire.profile)} at {described(start)} on {quoted(wire.gpu)}"
    place.wrong(what, "a profile and a start of a GPU in status.gpus")
    return None


def _entries(
    written: Sequence[object], inventory: _Inventory, place: _Place, *, first: int = 0
) -> Iterator[Entry]:
    for i, item in enumerate(written, first):
        there = _Place(f"{place.path}[{i}]", place.notes)
        wire = _convert(item, EntryWire, there)
        if wire is not None:
            yield Entry(
                namespace=wire.pod.namespace,
                pod=wire.pod.name,
                uid=wire.pod.uid,
                since=wire.since,
                containers=tuple(
                    _container(container, inventory, there.at(f"containers[{c}]"))
                    for c, container in enumerate(wire.containers)
                ),
            )


def _container(wire: ContainerWire, inventory: _Inventory, place: _Place) -> ContainerGrants:
    return ContainerGrants(name=wire.name, grants=tuple(_grants(wire, inventory, place)))


def _grants(wire: ContainerWire, inventory: _Inventory, place: _Place) -> Iterator[Grant]:
    for i, device in enumerate(wire.devices):
        placed, there = None, place.at(f"devices[{i}]")
        if device.mode is Mode.MIG:
            placed = _placed(device, inventory, there)
        elif device.profile is not None or device.start is not None:
            there.wrong(f"a MIG placement in mode {device.mode}", f"one in mode {Mode.MIG} only")
        yield Grant(
            gpu=device.gpu,
            mode=device.mode,
            memory=MiB(device.memory_mib),
            cores=CorePercent(device.cores),
            placed=placed,
            position=device.position if placed is not None else None,
        )
