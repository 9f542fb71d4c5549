"""MIG: which instance a container could get on each GPU of a node, the least costly first."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from allocator.catalog.boards import canonical_profile
from allocator.core.geometry import Geometries, Layouts
from allocator.core.headroom import Headroom
from allocator.core.ladder import sufficient
from allocator.core.packing import Option, Rooms
from allocator.core.placement import Tables, tables
from allocator.model.board import Board, Placed, Profile
from allocator.model.demand import Demand
from allocator.model.gpu import Grant
from allocator.model.request import ContainerRequest, Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What governs the cutting of one kind of GPU: where instances go, which may stand together."""

    tables: Tables
    layouts: Layouts | None

    def admit(self, profile: Profile, room: Headroom) -> bool:
        """Say whether *profile* may join what is granted, places aside."""
        if profile.limit is not None and room.profiles.count(profile) >= profile.limit:
            return False
        return self.layouts is None or self.layouts.allows(room.profiles, profile)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutter:
    """The rules of one decision, looked up once per kind of GPU; *named* is the user's profile."""

    demand: Demand
    geometries: Geometries | None
    named: str | None
    _rules: dict[tuple[str, Board], Rules] = field(default_factory=dict)

    def options(
        self, ask: ContainerRequest, rooms: Rooms, *, thorough: bool = False
    ) -> list[Option]:
        """Return the best instance on each GPU that takes *ask*, the best GPU first.

        A *thorough* search needs every other place too: behind, because each loses more.
        """
        best, others = [], []
        for position, room in enumerate(rooms):
            found = self._on(ask, position, room)
            best += list(islice(found, 1))
            others += list(found) if thorough else []
        return sorted(best, key=_rank) + sorted(others, key=_rank)

    def _on(self, ask: ContainerRequest, position: int, room: Headroom) -> Iterator[Option]:
        """Yield the options on one GPU: the smallest sufficient profile at its seat comes first."""
        gpu, board = room.gpu, room.gpu.board
        if board is None:
            return
        rules = self._rules_of(gpu.model, board)
        for rung in sufficient(ask, board, self.named):
            profile = rung.profile
            seat = rules.tables.seat(room.taken, profile) if rules.admit(profile, room) else None
            if seat is None:
                continue
            for start in (seat.start, *(s for s in profile.starts if s != seat.start)):
                placed = Placed(profile, start)
                if not placed.mask & room.taken:
                    # What is granted already is masked out: an instance here is an idle one.
                    size = rung.cost, profile.memory
                    rank = (*size, *seat.rank, placed not in gpu.instances)
                    yield Option(position=position, grant=_grant(gpu.uuid, placed, ask), rank=rank)

    def _rules_of(self, model: str, board: Board) -> Rules:
        key = model, board
        if key not in self._rules:
            own = None if self.named is None else canonical_profile(board, self.named)
            offered = None if own is None or own in board.plain else (*board.plain, own)
            layouts = self.geometries.restriction(model, board) if self.geometries else None
            found = tables(board, self.demand, offered)
            self._rules[key] = Rules(tables=found, layouts=layouts)
        return self._rules[key]


def _grant(gpu: str, placed: Placed, ask: ContainerRequest) -> Grant:
    memory = placed.profile.memory
    return Grant(gpu=gpu, mode=Mode.MIG, memory=memory, cores=ask.cores, placed=placed)


def _rank(option: Option) -> tuple[int, ...]:
    return option.rank
