"""Decodes a GPUNode, which holds entries (spec) and inventory (status), into a Node.

Any object becomes a Node and a list of problems, never an exception. An unreadable entry or
instance may use any GPU, so it makes all GPUs of the node unhealthy. A node with an unreadable GPU
is not fresh, so that no pod is refused because of it. A status beyond its bounds is not read any
further: its node has no GPUs, and says why.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from allocator.config.document import Notes
from allocator.ledger.decode_parts import (
    FieldPlace,
    GpuInventory,
    board_excess,
    boards_of,
    convert,
    entries_of,
    instances_of,
    inventory_of,
)
from allocator.ledger.schema import (
    MOST_STATUS_BYTES,
    NamedWire,
    PartsWire,
    SpecWire,
    StatusWire,
)
from allocator.model.allocation import Entry, Grant
from allocator.model.board import Placement
from allocator.model.gpu import Gpu, Node
from allocator.model.problem import Problem
from allocator.model.usage import peak_grants

# The last status of so many nodes is kept decoded, a few kilobytes each. By node, so that one which
# writes a new status every second takes no more room than any other.
MOST_CACHED_STATUSES: Final = 8192
_INVENTORY_FIELDS: Final = StatusWire.__struct_encode_fields__
_encode: Final = msgspec.json.Encoder().encode
_PARTS_DECODER: Final = msgspec.json.Decoder(PartsWire)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedGpuNode:
    """The content of a GPUNode."""

    node: Node  # with the grants of all entries below
    entries: tuple[Entry, ...] = ()  # the readable ones
    unpromised: tuple[Entry, ...] = ()  # in use by pods without an entry, as the agent reports
    problems: tuple[Problem, ...] = ()
    excess: Problem | None = None  # the bound that its status exceeds; then the node has no GPUs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _DecodedStatus:
    """The content of a status, without the entries of the spec."""

    inventory: GpuInventory
    gpus: tuple[Gpu, ...]  # with their live MIG instances
    complete: bool  # it has a list of GPUs, and all of them are readable
    unpromised: tuple[Entry, ...]
    problems: tuple[Problem, ...]  # in boards and GPUs
    closing_problems: tuple[Problem, ...]  # in unpromised and instances; these close the node
    excess: Problem | None = None
    # Entries of the spec that were decoded with this status, by their JSON; None: malformed.
    entries: dict[bytes, Entry | None] = field(default_factory=dict)


def decode_text(raw: bytes) -> DecodedGpuNode:
    """Decode a GPUNode in JSON, as :func:`decode` does, with caches of entries and statuses.

    A commit changes one entry and nothing of the status, so equal bytes are decoded once.
    """
    try:
        parts = _PARTS_DECODER.decode(raw)
    except msgspec.ValidationError:
        return decode(msgspec.json.decode(raw))
    members = [
        b'"%s":%s' % (k.encode(), parts.status[k]) for k in _INVENTORY_FIELDS if k in parts.status
    ]
    status = _status_of(parts.metadata.name, b"{%s}" % b",".join(members))
    entries = _decode_known_entries(list(map(bytes, parts.spec.entries)), status)
    decoded = tuple(entry for entry in entries if entry is not None)
    if status.problems or status.closing_problems or len(decoded) < len(entries):
        return decode(msgspec.json.decode(raw))
    return _assemble(parts.metadata.name, status, decoded, fresh=status.complete)


def decode(document: object) -> DecodedGpuNode:
    """Decode a GPUNode that was parsed from JSON."""
    notes = Notes()
    top = FieldPlace("", notes)
    named = convert(document, NamedWire, top)
    name = "" if named is None else named.metadata.name
    parts = document if isinstance(document, Mapping) else {}
    status = _status_of(name, _encode(_inventory_part(parts.get("status") or {})))
    fresh = status.complete and not notes.errors
    errors_before_spec = len(notes.errors)
    spec = convert(parts.get("spec") or {}, SpecWire, top.at("spec")) or SpecWire()
    entries = tuple(_decode_entries(spec.entries, status, top.at("spec.entries")))
    closed = bool(status.closing_problems) or len(notes.errors) > errors_before_spec
    problems = (
        *notes.errors[:errors_before_spec],
        *status.problems,
        *notes.errors[errors_before_spec:],
        *status.closing_problems,
    )
    decoded_gpu_node = _assemble(name, status, entries, fresh=fresh, closed=closed)
    return replace(decoded_gpu_node, problems=problems)


def _assemble(
    name: str,
    status: _DecodedStatus,
    entries: tuple[Entry, ...],
    *,
    fresh: bool,
    closed: bool = False,
) -> DecodedGpuNode:
    promised = {entry.uid for entry in entries}
    unpromised = tuple(entry for entry in status.unpromised if entry.uid not in promised)
    grants = _grants_by_gpu((*entries, *unpromised))
    gpus = tuple(_with_grants(gpu, grants.get(gpu.uuid), closed=closed) for gpu in status.gpus)
    node = Node(name=name, gpus=gpus, fresh=fresh)
    return DecodedGpuNode(node=node, entries=entries, unpromised=unpromised, excess=status.excess)


def _inventory_part(status: object) -> object:
    """Return the fields decoded here; others, like ``held``, change with every container start."""
    if not isinstance(status, Mapping):
        return status
    return {key: status[key] for key in _INVENTORY_FIELDS if key in status}


def _grants_by_gpu(entries: Iterable[Entry]) -> Mapping[str, list[Grant]]:
    grants: dict[str, list[Grant]] = {}
    for entry in entries:
        for grant in peak_grants(entry.containers):
            grants.setdefault(grant.gpu, []).append(grant)
    return grants


def _with_grants(gpu: Gpu, grants: Sequence[Grant] | None, *, closed: bool) -> Gpu:
    if not grants and not closed:
        return gpu
    return replace(gpu, healthy=gpu.healthy and not closed, grants=tuple(grants or ()))


_statuses: Final[dict[str, tuple[bytes, _DecodedStatus]]] = {}  # by node


def _status_of(name: str, raw: bytes) -> _DecodedStatus:
    """Return the status in JSON of node *name*, decoded; the last one of each node is kept."""
    known = _statuses.get(name)
    if known is not None and known[0] == raw:
        return known[1]
    decoded = _decode_status(raw)
    _statuses[name] = raw if len(raw) <= MOST_STATUS_BYTES else b"", decoded
    if len(_statuses) > MOST_CACHED_STATUSES:
        del _statuses[next(iter(_statuses))]
    return decoded


def forget_status(name: str) -> None:
    """Forget the status of node *name*: who reads GPUNodes seldom would rather have the memory."""
    _statuses.pop(name, None)


def _decode_status(raw: bytes) -> _DecodedStatus:
    """Decode a status in JSON."""
    notes = Notes()
    place = FieldPlace("status", notes)
    if len(raw) > MOST_STATUS_BYTES:
        place.note_wrong(
            f"{len(raw)} bytes of GPUs, boards and pods", f"at most {MOST_STATUS_BYTES}"
        )
        return _unread_status(notes.errors[0])
    status = convert(msgspec.json.decode(raw), StatusWire, place)
    if status is None:
        return _unread_status(notes.errors[0])
    boards = boards_of(status, place)
    excess = board_excess(boards, place)
    if excess is not None:
        return _unread_status(excess)
    inventory = inventory_of(status, boards, place)
    complete = status.gpus is not None and not notes.errors
    errors_before_live = len(notes.errors)
    unpromised = tuple(entries_of(status.unpromised, inventory, place.at("unpromised")))
    live: dict[str, list[Placement]] = {}
    for uuid, placed in instances_of(status, inventory, place):
        live.setdefault(uuid, []).append(placed)
    return _DecodedStatus(
        inventory=inventory,
        gpus=tuple(
            replace(gpu, instances=tuple(live[uuid])) if uuid in live else gpu
            for uuid, gpu in inventory.gpus.items()
        ),
        complete=complete,
        unpromised=unpromised,
        problems=tuple(notes.errors[:errors_before_live]),
        closing_problems=tuple(notes.errors[errors_before_live:]),
    )


def _unread_status(excess: Problem) -> _DecodedStatus:
    return _DecodedStatus(
        inventory=GpuInventory(gpus={}, boards={}),
        gpus=(),
        complete=False,
        unpromised=(),
        problems=(excess,),
        closing_problems=(),
        excess=excess,
    )


def _decode_entries(
    elements: Sequence[object], status: _DecodedStatus, place: FieldPlace
) -> Iterator[Entry]:
    known = _decode_known_entries(list(map(_encode, elements)), status)
    for i, (item, entry) in enumerate(zip(elements, known, strict=True)):
        if entry is not None:
            yield entry
        else:  # decode it again, to note problems with their place
            yield from entries_of([item], status.inventory, place, first=i)


def _decode_known_entries(raws: Sequence[bytes], status: _DecodedStatus) -> list[Entry | None]:
    """Decode all entries of a spec, each in JSON; those of its last version are known already."""
    known = status.entries.copy()
    status.entries.clear()
    for raw in raws:
        status.entries[raw] = known[raw] if raw in known else _decode_entry(raw, status)
    return [status.entries[raw] for raw in raws]


def _decode_entry(raw: bytes, status: _DecodedStatus) -> Entry | None:
    """Decode an entry in JSON; ``None`` where anything is wrong with it."""
    notes = Notes()
    entries = list(entries_of([msgspec.json.decode(raw)], status.inventory, FieldPlace("", notes)))
    return entries[0] if entries and not notes.errors else None
