"""MIG: which instance a container could get on each GPU of a node, the least costly first."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice

from allocator.mig.geometry import Geometries, Layouts
from allocator.mig.positions import PositionTable, position_table
from allocator.mig.profiles import ProfileCapacity, canonical_profile, sufficient_profiles
from allocator.mig.slot_policy import SHARE, SlotPolicy, slot_policy
from allocator.model.allocation import Grant, Option
from allocator.model.board import Board, Placement, Profile
from allocator.model.demand import Demand
from allocator.model.gpu import Gpu
from allocator.model.request import ContainerRequest, FillPolicy, Mode
from allocator.placement.fit import Headroom
from allocator.placement.packing import Headrooms
from allocator.placement.topology import prefer_close


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What governs the cutting of one kind of GPU: where instances go, which may stand together.

    ``listing`` holds where Volcano keeps account too: then only what it has a name for.
    """

    tables: SlotPolicy
    layouts: Layouts | None
    listing: PositionTable | None = None

    def admit(self, profile: Profile, headroom: Headroom) -> bool:
        """Say whether *profile* may join what is granted, places aside."""
        if profile.limit is not None and headroom.profiles.count(profile) >= profile.limit:
            return False
        return self.layouts is None or self.layouts.allows(headroom.profiles, profile)

    def seats(
        self,
        profile: Profile,
        headroom: Headroom,
        *,
        first: int,
        preferred_positions: Collection[str],
    ) -> Iterator[tuple[Placement, str | None]]:
        """Yield the free places of *profile* and their positions: wished ones, *first*, the rest.

        What is granted already is masked out: an instance at one of them is an idle one.
        """
        others = []
        for start in (first, *(s for s in profile.starts if s != first)):
            placed = Placement(profile, start)
            if placed.mask & headroom.taken:
                continue
            if self.listing is None:
                yield placed, None
                continue
            position = self.listing.position(
                placed, used=headroom.positions, preferred=preferred_positions
            )
            if position in preferred_positions:
                yield placed, position
            elif position is not None:
                others.append((placed, position))
        yield from others


@dataclass(frozen=True, slots=True, kw_only=True)
class MigOptions:
    """The options of containers on MIG GPUs in one decision; rules are looked up once per board."""

    demand: Demand
    geometries: Geometries | None  # how a site allows GPUs to be cut; None: in any way
    named: str | None  # the profile that the user names
    packing: FillPolicy = FillPolicy.BINPACK  # whether GPUs with instances come first, or last
    # The scheduler's picks: UUIDs of GPUs, with Volcano's positions on them.
    preferred_positions: Collection[tuple[str, str]] = ()
    _rules: dict[tuple[str, Board, bool], Rules] = field(default_factory=dict)
    _capacities: dict[tuple[ContainerRequest, Board], tuple[ProfileCapacity, ...]] = field(
        default_factory=dict
    )

    def options(
        self, container_request: ContainerRequest, headrooms: Headrooms, *, thorough: bool = False
    ) -> list[Option]:
        """Return the best instance on each GPU that takes *container_request*, the best GPU first.

        A *thorough* search needs every other place too: behind, because each loses more. GPUs
        that are closest together come first where several are asked for.
        """
        best, others = [], []
        for position, headroom in enumerate(headrooms):
            options = self._options_on(container_request, position, headroom)
            best += list(islice(options, 1))
            others += list(options) if thorough else []
        ranked = sorted(best, key=_rank) + sorted(others, key=_rank)
        return prefer_close(ranked, headrooms, count=container_request.count)

    def takes(self, container_request: ContainerRequest, headroom: Headroom) -> bool:
        """Say whether there is an instance for *container_request* on one GPU."""
        return next(self._options_on(container_request, 0, headroom), None) is not None

    def _options_on(
        self, container_request: ContainerRequest, position: int, headroom: Headroom
    ) -> Iterator[Option]:
        """Yield the options on one GPU: the smallest sufficient profile at its seat comes first."""
        gpu, board = headroom.gpu, headroom.gpu.board
        if board is None:
            return
        rules = self._rules_of(gpu, board)
        preferred_positions = {
            position for uuid, position in self.preferred_positions if uuid == gpu.uuid
        }
        for sufficient in self._sufficient_profiles(container_request, board):
            profile = sufficient.profile
            seat = (
                rules.tables.choose(headroom.taken, profile)
                if rules.admit(profile, headroom)
                else None
            )
            if seat is None:
                continue
            seats = rules.seats(
                profile, headroom, first=seat.start, preferred_positions=preferred_positions
            )
            for placed, name in seats:
                size = sufficient.cost, profile.memory, *self._fullness(headroom, board)
                rank = (*size, *seat.rank, placed not in gpu.instances)
                grant = _grant(gpu.uuid, placed, container_request, position=name)
                yield Option(position=position, grant=grant, rank=rank)

    def _sufficient_profiles(
        self, container_request: ContainerRequest, board: Board
    ) -> tuple[ProfileCapacity, ...]:
        key = container_request, board
        profile_capacities = self._capacities.get(key)
        if profile_capacities is None:
            profile_capacities = self._capacities[key] = sufficient_profiles(
                container_request, board, self.named
            )
        return profile_capacities

    def _fullness(self, headroom: Headroom, board: Board) -> tuple[int, ...]:
        """Return what comes before the loss of room: nothing, for losing least packs already."""
        if self.packing is FillPolicy.BINPACK:
            return ()
        return (headroom.taken.bit_count() * SHARE // board.slots,)

    def _rules_of(self, gpu: Gpu, board: Board) -> Rules:
        key = gpu.model, board, gpu.deviceshare
        if key not in self._rules:
            own = None if self.named is None else canonical_profile(board, self.named)
            offered = None if own is None or own in board.plain else (*board.plain, own)
            known = self.geometries
            self._rules[key] = Rules(
                tables=slot_policy(board, self.demand, offered),
                layouts=known.restriction(gpu.model, board) if known else None,
                listing=position_table(known, gpu.model, board)
                if known and gpu.deviceshare
                else None,
            )
        return self._rules[key]


def _grant(
    gpu: str, placed: Placement, container_request: ContainerRequest, *, position: str | None
) -> Grant:
    return Grant(
        gpu=gpu,
        mode=Mode.MIG,
        memory=placed.profile.memory,
        cores=container_request.cores,
        placed=placed,
        position=position,
    )


def _rank(option: Option) -> tuple[int, ...]:
    return option.rank
