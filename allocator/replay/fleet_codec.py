"""The fleet as records keep it: what a decision at CREATE rests on besides request and settings.

That is which kinds of GPU there are, not what is free on them. So it changes when nodes come, go or
are set up anew, and thousands of decisions name the same content.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, Final

import msgspec

from allocator.catalog.injection import MOST_DEVICES
from allocator.catalog.vocabularies import CATALOGUE, LARGEST_FACTOR, VOCABULARIES, Vocabulary
from allocator.config.document import Notes
from allocator.ledger.decode_parts import FieldPlace, board_excess, read_board
from allocator.ledger.schema import PRINTABLE, board_wire
from allocator.model.board import Board
from allocator.model.gpu import GpuKind, Snapshot
from allocator.model.request import NVIDIA, Mode
from allocator.model.units import MiB
from allocator.replay.content import ReplayContentError, check_size, typed

MOST_KINDS: Final = 4096
_MOST_BOARDS: Final = 1024
_Text = Annotated[str, msgspec.Meta(max_length=253, pattern=PRINTABLE)]
_Resource = Annotated[str, msgspec.Meta(min_length=1, max_length=317, pattern=PRINTABLE)]
_Amount = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
# What a cluster configures of a vocabulary (allocator.catalog.vocabularies.configure_vocabulary).
_CONFIGURED: Final = (
    "count",
    "memory",
    "percent",
    "cores",
    "priority",
    "memory_factor",
    "default_count",
    "default_memory",
    "default_cores",
    "slot",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFleet:
    """The kinds of GPU of a fleet, and the words in which pods asked for them."""

    offers: Mapping[GpuKind, int]
    mixed: bool = False
    complete: bool = False
    vocabularies: tuple[Vocabulary, ...] = VOCABULARIES

    @property
    def snapshot(self) -> Snapshot:
        """Return the fleet as admission looks at it; nothing is known of single nodes."""
        return Snapshot(version="", offers=self.offers, mixed=self.mixed, complete=self.complete)


class _RecordedKind(msgspec.Struct, frozen=True, array_like=True):
    model: _Text | None
    memory: _Amount
    mode: Mode
    board: _Amount | None
    count: _Amount
    family: _Text = NVIDIA


class _RecordedVocabulary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: _Resource
    count: _Resource | None = None
    memory: _Resource | None = None
    percent: _Resource | None = None
    cores: _Resource | None = None
    priority: _Resource | None = None
    memory_factor: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_FACTOR)] | None = None
    default_count: Annotated[int, msgspec.Meta(ge=1, le=MOST_DEVICES)] | None = None
    default_memory: _Amount | None = None
    default_cores: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    slot: _Resource | None = None


class _RecordedKinds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kinds: Annotated[tuple[_RecordedKind, ...], msgspec.Meta(max_length=MOST_KINDS)]
    boards: Annotated[list[Any], msgspec.Meta(max_length=_MOST_BOARDS)] = []
    mixed: bool = False
    complete: bool = False
    vocabularies: Annotated[list[Any], msgspec.Meta(max_length=64)]


def encode_fleet(
    snapshot: Snapshot, vocabularies: Sequence[Vocabulary] = VOCABULARIES
) -> dict[str, Any]:
    """Return the content of a snapshot record for decisions at CREATE.

    *vocabularies* are those that are served, with the names and units of the cluster.
    """
    boards = tuple(dict.fromkeys(kind.board for kind in snapshot.offers if kind.board is not None))
    numbers = {board: number for number, board in enumerate(boards)}
    return {
        "kinds": [
            [
                kind.model or None,
                kind.memory,
                str(kind.mode),
                None if kind.board is None else numbers[kind.board],
                count,
                *(() if kind.family == NVIDIA else (kind.family,)),
            ]
            for kind, count in snapshot.offers.items()
        ],
        "boards": [msgspec.to_builtins(board_wire(board)) for board in boards],
        "mixed": snapshot.mixed,
        "complete": snapshot.complete,
        "vocabularies": encode_vocabularies(vocabularies),
    }


def decode_fleet(content: Mapping[str, Any]) -> RecordedFleet:
    """Return the fleet of *content*; raises :class:`ReplayContentError`."""
    check_size(content)
    wire = typed(content, _RecordedKinds)
    boards = _boards(wire.boards)
    offers: dict[GpuKind, int] = {}
    for number, kind in enumerate(wire.kinds):
        if kind.board is not None and kind.board >= len(boards):
            raise ReplayContentError(
                f"kinds[{number}] names board {kind.board}; accepted: below {len(boards)}"
            )
        offer = GpuKind(
            model=kind.model or "",
            memory=MiB(kind.memory),
            mode=kind.mode,
            board=None if kind.board is None else boards[kind.board],
            family=kind.family,
        )
        offers[offer] = kind.count
    return RecordedFleet(
        offers=MappingProxyType(offers),
        mixed=wire.mixed,
        complete=wire.complete,
        vocabularies=decode_vocabularies(wire.vocabularies),
    )


def _boards(items: Sequence[object]) -> list[Board]:
    notes = Notes()
    place = FieldPlace("", notes)
    read = [read_board(item, place.at(f"boards[{i}]")) for i, item in enumerate(items)]
    problem = notes.errors[0] if notes.errors else board_excess(read, place)
    if problem is not None:
        raise ReplayContentError(str(problem))
    return [board for board in read if board is not None]


def encode_vocabularies(vocabularies: Sequence[Vocabulary]) -> list[dict[str, Any]]:
    """Return *vocabularies* by their names, with what differs from the catalogue."""
    built_in = {vocabulary.name: vocabulary for vocabulary in CATALOGUE}
    return [_differences(v, built_in[v.name]) for v in vocabularies]


def _differences(vocabulary: Vocabulary, built_in: Vocabulary) -> dict[str, Any]:
    changed = {
        name: value
        for name in _CONFIGURED
        if (value := getattr(vocabulary, name)) != getattr(built_in, name)
    }
    return {"name": vocabulary.name, **changed}


def decode_vocabularies(items: Sequence[object]) -> tuple[Vocabulary, ...]:
    """Return the vocabularies of *items*; raises :class:`ReplayContentError`."""
    return tuple(_vocabulary(typed(item, _RecordedVocabulary)) for item in items)


def _vocabulary(wire: _RecordedVocabulary) -> Vocabulary:
    built_in = next((v for v in CATALOGUE if v.name == wire.name), None)
    if built_in is None:
        accepted = ", ".join(v.name for v in CATALOGUE)
        raise ReplayContentError(
            f"vocabulary {wire.name[:64]!r} is not known; accepted: {accepted}"
        )
    changed = {name: value for name in _CONFIGURED if (value := getattr(wire, name)) is not None}
    configured = replace(built_in, **changed)
    if len(set(configured.resources)) < len(configured.resources):
        raise ReplayContentError(
            f"vocabulary {wire.name!r} has one name for two resources; accepted: different names"
        )
    return built_in if configured == built_in else configured
