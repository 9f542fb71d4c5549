"""A node as records keep it: what a decision at its bind rests on besides request and settings.

The content has what seldom changes, its boards and GPUs, so that many binds name the same one.
What is granted on the GPUs, and which MIG instances there are, is in each record of a bind, as
short rows of numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, Final

import msgspec

from allocator.catalog.vocabularies import VOCABULARIES, Vocabulary
from allocator.ledger.decode import decode
from allocator.ledger.schema import PRINTABLE, status_of
from allocator.mig.geometry import Geometries, GeometryEntry, GeometryGroup, Item
from allocator.mig.positions import with_volcano_positions
from allocator.model.allocation import Grant
from allocator.model.board import Placement
from allocator.model.demand import BoardDemand, Demand
from allocator.model.gpu import Gpu, Node
from allocator.model.request import Mode
from allocator.model.units import WHOLE_GPU, CorePercent, MiB
from allocator.replay.content import ReplayContentError, check_size, typed
from allocator.replay.fleet_codec import decode_vocabularies, encode_vocabularies

MOST_DEMAND: Final = 10**9  # decayed arrivals
NO_PLACE: Final = -1  # start and profile of a grant that is no MIG instance
TakenRow = tuple[int, int, int, int, int]  # position of the GPU, MiB, cores, start, profile
LiveRow = tuple[int, int, int]  # position of the GPU, start, profile
_Text = Annotated[str, msgspec.Meta(max_length=253, pattern=PRINTABLE)]
_Amount = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Item = tuple[_Text, _Amount, _Amount]
_Group = tuple[
    Annotated[str, msgspec.Meta(max_length=253)],
    Annotated[tuple[_Item, ...], msgspec.Meta(max_length=64)],
]
_Entry = tuple[
    Annotated[tuple[str, ...], msgspec.Meta(max_length=256)],
    Annotated[tuple[_Group, ...], msgspec.Meta(max_length=128)],
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedNode:
    """A node without grants and instances, how its GPUs may be cut, and the words of requests."""

    node: Node
    geometries: Geometries | None = None
    vocabularies: tuple[Vocabulary, ...] = VOCABULARIES


class _RecordedParts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    node: _Text
    boards: list[Any]
    gpus: list[Any]
    vocabularies: Annotated[list[Any], msgspec.Meta(max_length=64)]
    geometries: Annotated[tuple[_Entry, ...], msgspec.Meta(max_length=256)] | None = None
    fresh: bool = True
    deviceshare: bool = False  # Volcano's scheduler allocates on its GPUs too


def encode_node(
    node: Node,
    *,
    geometries: Geometries | None = None,
    vocabularies: Sequence[Vocabulary] = VOCABULARIES,
) -> dict[str, Any]:
    """Return the content of a snapshot record for binds to *node*, which has a GPUNode.

    Of *geometries* only what is about its GPUs is kept.
    """
    status = status_of(_bare(node))
    content: dict[str, Any] = {
        "node": node.name,
        "boards": status["boards"],
        "gpus": status["gpus"],
        "vocabularies": encode_vocabularies(vocabularies),
    }
    if geometries is not None:
        content["geometries"] = [_entry_fields(entry) for entry in _entries(geometries, node)]
    if not node.fresh:
        content["fresh"] = False
    if any(gpu.deviceshare for gpu in node.gpus):
        content["deviceshare"] = True
    return content


def _bare(node: Node) -> Node:
    """Return *node* without grants and instances."""
    return replace(node, gpus=tuple(replace(gpu, grants=(), instances=()) for gpu in node.gpus))


def _entries(geometries: Geometries, node: Node) -> Iterator[GeometryEntry]:
    """Yield the entries that count for a GPU of *node*, in their order."""
    models = dict.fromkeys(gpu.model for gpu in node.gpus if gpu.mode is Mode.MIG)
    named = [geometries.entry(model) for model in models]
    for entry in geometries.entries:
        if any(entry is one for one in named):
            yield entry


def _entry_fields(entry: GeometryEntry) -> list[Any]:
    return [
        list(entry.models),
        [
            [group.name, [[item.profile, item.memory, item.count] for item in group.items]]
            for group in entry.groups
        ],
    ]


def decode_node(content: Mapping[str, Any]) -> RecordedNode:
    """Return the node of *content*; raises :class:`ReplayContentError`."""
    check_size(content)
    wire = typed(content, _RecordedParts)
    decoded = decode(
        {"metadata": {"name": wire.node}, "status": {"boards": wire.boards, "gpus": wire.gpus}}
    )
    problems = decoded.problems or (() if decoded.excess is None else (decoded.excess,))
    if problems:
        raise ReplayContentError(str(problems[0]))
    return RecordedNode(
        node=_marked(decoded.node, wire),
        geometries=None
        if wire.geometries is None
        else Geometries(tuple(map(_geometry_entry, wire.geometries))),
        vocabularies=decode_vocabularies(wire.vocabularies),
    )


def _marked(node: Node, wire: _RecordedParts) -> Node:
    node = replace(node, fresh=wire.fresh)
    return with_volcano_positions(node) if wire.deviceshare else node


def _geometry_entry(wire: _Entry) -> GeometryEntry:
    models, groups = wire
    return GeometryEntry(
        models=models,
        groups=tuple(
            GeometryGroup(
                name=name,
                items=tuple(
                    Item(profile=profile, memory=MiB(memory), count=count)
                    for profile, memory, count in items
                ),
            )
            for name, items in groups
        ),
    )


def taken_rows(node: Node) -> tuple[TakenRow, ...]:
    """Return what is granted on *node*: for each grant the position of its GPU, MiB and cores.

    Then follow the start and the number of its profile in the board, NO_PLACE for both where it
    is no MIG instance.
    """
    return tuple(
        (position, grant.memory, grant.cores, *_place(gpu, grant.placed))
        for position, gpu in enumerate(node.gpus)
        for grant in gpu.grants
    )


def _place(gpu: Gpu, placed: Placement | None) -> tuple[int, int]:
    if placed is None or gpu.board is None or placed.profile not in gpu.board.profiles:
        return NO_PLACE, NO_PLACE
    return placed.start, gpu.board.profiles.index(placed.profile)


def taken_positions(node: Node) -> tuple[str, ...]:
    """Return Volcano's names of the MIG places of :func:`taken_rows`, in the same order.

    A grant without one has the empty name; nothing is returned where none has one.
    """
    names = tuple(grant.position or "" for gpu in node.gpus for grant in gpu.grants)
    return names if any(names) else ()


def taken_shares(node: Node) -> tuple[str, ...]:
    """Return the sharing classes of :func:`taken_rows`, in the same order.

    A grant without one has the empty name; nothing is returned where none has one.
    """
    names = tuple(grant.share for gpu in node.gpus for grant in gpu.grants)
    return names if any(names) else ()


def live_rows(node: Node) -> tuple[LiveRow, ...]:
    """Return the MIG instances on *node*: position of the GPU, start, number of the profile."""
    return tuple(
        (position, *_place(gpu, placed))
        for position, gpu in enumerate(node.gpus)
        for placed in gpu.instances
    )


def with_rows(
    node: Node,
    taken: Sequence[TakenRow],
    live: Sequence[LiveRow] = (),
    *,
    positions: Sequence[str] = (),
    shares: Sequence[str] = (),
) -> Node:
    """Return *node* with what *taken* grants on its GPUs, and the instances of *live*.

    *positions* are as :func:`taken_positions` returns them, *shares* as :func:`taken_shares`.
    Raises :class:`ReplayContentError` for a row that the node has no GPU or no place for.
    """
    for kind, names in (("positions", positions), ("shares", shares)):
        if names and len(names) != len(taken):
            raise ReplayContentError(
                f"{len(names)} {kind} for {len(taken)} grants; accepted: one each, or none"
            )
    grants: dict[int, list[Grant]] = {}
    unnamed = ("",) * len(taken)
    for row, name, share in zip(taken, positions or unnamed, shares or unnamed, strict=True):
        grants.setdefault(row[0], []).append(_grant(node, row, name=name, share=share))
    instances: dict[int, list[Placement]] = {}
    for position, start, profile in live:
        placed = _placement(_gpu_at(node, position), start, profile)
        if placed is not None:
            instances.setdefault(position, []).append(placed)
    gpus = tuple(
        replace(
            gpu,
            grants=tuple(grants.get(position, ())),
            instances=tuple(instances.get(position, ())),
        )
        for position, gpu in enumerate(node.gpus)
    )
    return replace(node, gpus=gpus)


def _grant(node: Node, row: TakenRow, *, name: str, share: str) -> Grant:
    number, memory, cores, start, profile = row
    gpu = _gpu_at(node, number)
    if not 0 <= memory < 2**31 or not 0 <= cores <= WHOLE_GPU:
        raise ReplayContentError(
            f"a row grants {memory} MiB and {cores} % of {gpu.uuid[:64]!r}; accepted: amounts "
            "that a ledger may hold"
        )
    return Grant(
        gpu=gpu.uuid,
        mode=gpu.mode,
        memory=MiB(memory),
        cores=CorePercent(cores),
        placed=_placement(gpu, start, profile),
        position=name or None,
        share=share,
    )


def _gpu_at(node: Node, position: int) -> Gpu:
    if not 0 <= position < len(node.gpus):
        raise ReplayContentError(
            f"a row names GPU {position} of {node.name}; accepted: 0 to {len(node.gpus) - 1}"
        )
    return node.gpus[position]


def _placement(gpu: Gpu, start: int, profile: int) -> Placement | None:
    if start == NO_PLACE:
        return None
    profiles = () if gpu.board is None else gpu.board.profiles
    slots = 0 if gpu.board is None else gpu.board.slots
    if not 0 <= profile < len(profiles) or not 0 <= start <= slots - profiles[profile].size:
        raise ReplayContentError(
            f"a row names profile {profile} at slot {start} of {gpu.uuid[:64]!r}; "
            "accepted: places of its board"
        )
    return Placement(profiles[profile], start)


def demand_fields(demand: Demand, node: Node) -> dict[str, dict[str, float]]:
    """Return what was learned about the boards of *node*: decayed arrivals by profile.

    The share of arrivals whose first attempt failed is under the empty name. Numbers are exact,
    because slots are chosen by them.
    """
    boards = dict.fromkeys(gpu.board.name for gpu in node.gpus if gpu.board is not None)
    return {
        name: {**known.counts, "": known.failures}
        for name in boards
        if (known := demand.boards.get(name)) is not None
    }


def demand_of_fields(fields: Mapping[str, Mapping[str, float]]) -> Demand:
    """Return the demand that :func:`demand_fields` wrote; raises :class:`ReplayContentError`."""
    for name, counts in fields.items():
        wrong = next((n for n in counts.values() if not 0 <= n <= MOST_DEMAND), None)
        if wrong is not None or counts.get("", 0.0) > 1:
            raise ReplayContentError(
                f"demand of {name[:64]!r} is {wrong}; accepted: arrivals from 0 to {MOST_DEMAND}, "
                "and a share of failures up to 1"
            )
    return Demand(
        boards=MappingProxyType(
            {
                name: BoardDemand(
                    counts=MappingProxyType({k: n for k, n in counts.items() if k}),
                    failures=counts.get("", 0.0),
                )
                for name, counts in fields.items()
            }
        )
    )
