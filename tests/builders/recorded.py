"""Strategies of what replay keeps: requests, fleets and nodes as decisions may see them."""

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from hypothesis import strategies as st

from allocator.catalog.boards import MODELS
from allocator.catalog.vocabularies import GPUSHARE, VOLCANO, Vocabulary, configure_vocabulary
from allocator.config.namespace_policy import NamespacePolicy
from allocator.config.settings import Prefer
from allocator.mig.geometry import Geometries, GeometryEntry, GeometryGroup, Item
from allocator.mig.positions import with_volcano_positions
from allocator.model.allocation import Grant
from allocator.model.board import Placement
from allocator.model.decision import ModeChoice, ModeSource
from allocator.model.demand import BoardDemand, Demand
from allocator.model.gpu import Gpu, GpuKind, Node, Snapshot
from allocator.model.request import (
    ContainerRequest,
    FillPolicies,
    FillPolicy,
    Filters,
    Mode,
    PodRequest,
    Priority,
    Stage,
)
from allocator.model.units import CorePercent, MiB
from allocator.replay.request_codec import RecordedRequest

OWN_WORDS: Final = (
    configure_vocabulary(
        VOLCANO, names={"volcano.sh/vgpu-memory": "own.io/mem"}, memory_factor=1024, slot="own.io/n"
    ),
    configure_vocabulary(GPUSHARE, memory_factor=1),
)
WORDS = st.sampled_from([(VOLCANO,), (VOLCANO, GPUSHARE), OWN_WORDS, (VOLCANO, OWN_WORDS[1])])
NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=20)
TEXTS = st.tuples() | st.lists(NAMES, max_size=3).map(tuple)
MODES = st.sampled_from([Mode.MIG, Mode.HAMI_CORE])
FILL = st.none() | st.sampled_from(FillPolicy)


@st.composite
def asks(draw: st.DrawFn) -> ContainerRequest:
    memory = draw(st.none() | st.integers(0, 2**40))
    percent = draw(st.none() | st.integers(0, 100)) if memory is None else None
    return ContainerRequest(
        name=draw(NAMES),
        index=draw(st.integers(0, 9)),
        stage=draw(st.sampled_from(Stage)),
        count=draw(st.integers(0, 64)),
        memory=None if memory is None else MiB(memory),
        percent=percent,
        cores=CorePercent(draw(st.integers(0, 100))),
    )


@st.composite
def recorded_requests(draw: st.DrawFn, words: tuple[Vocabulary, ...]) -> RecordedRequest:
    """Return any request in one of *words*, with whatever may surround it."""
    vocabulary = draw(st.sampled_from(words))
    request = PodRequest(
        vocabulary=vocabulary.name,
        containers=tuple(draw(st.lists(asks(), min_size=1, max_size=4))),
        mode=draw(st.none() | st.sampled_from(Mode)),
        profile=draw(st.none() | st.sampled_from(["", "1g.5gb", "3g.40gb"])),
        filters=Filters(
            models=draw(TEXTS), not_models=draw(TEXTS), uuids=draw(TEXTS), not_uuids=draw(TEXTS)
        ),
        fill_policies=FillPolicies(node=draw(FILL), gpu=draw(FILL)),
        priority=draw(st.sampled_from(Priority)),
        configured=None if vocabulary in (VOLCANO, GPUSHARE) else vocabulary,
        mode_key=draw(st.none() | NAMES),
        library_off=draw(st.booleans()),
        ignore_links=draw(st.booleans()),
    )
    earlier = st.builds(ModeChoice, MODES, st.sampled_from(ModeSource), NAMES)
    return RecordedRequest(
        request=request,
        namespace=NamespacePolicy(
            prefer=draw(st.none() | st.sampled_from(Prefer)),
            min_isolation=draw(st.none() | st.sampled_from(["", "mig", "hami-core", "odd"])),
        ),
        earlier=draw(st.none() | earlier),
        final=draw(st.none() | MODES),
    )


@st.composite
def kinds(draw: st.DrawFn) -> GpuKind:
    model = draw(st.sampled_from(sorted(MODELS.values(), key=lambda model: model.name)))
    mode = draw(MODES) if model.board is not None else Mode.HAMI_CORE
    board = model.board if mode is Mode.MIG and draw(st.booleans()) else None
    return GpuKind(model=model.name, memory=model.memory, mode=mode, board=board)


FLEETS = st.builds(
    lambda offers, mixed, complete: Snapshot(
        version="", offers=MappingProxyType(offers), mixed=mixed, complete=complete
    ),
    st.dictionaries(kinds(), st.integers(1, 64), max_size=5),
    st.booleans(),
    st.booleans(),
)


@st.composite
def gpus(draw: st.DrawFn, position: int) -> Gpu:
    """Return a GPU with grants and instances as a ledger may hold them."""
    models = sorted(MODELS.values(), key=lambda model: model.name)
    model = draw(st.sampled_from(models))
    mode = draw(MODES) if model.board is not None else Mode.HAMI_CORE
    gpu = Gpu(
        uuid=f"GPU-{position}",
        index=draw(st.integers(0, 15)),
        model=model.name,
        memory=model.memory,
        mode=mode,
        slots=draw(st.integers(1, 20)),
        board=model.board if mode is Mode.MIG else None,
        healthy=draw(st.booleans()),
        numa=draw(st.none() | st.integers(0, 3)),
        foreign=MiB(draw(st.integers(0, 500))),
        switch=draw(st.none() | st.just("0000:00:01.0")),
    )
    if gpu.board is None:
        amounts = st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 100)), max_size=3)
        soft = [_grant(gpu, memory, cores=cores) for memory, cores in draw(amounts)]
        return replace(gpu, grants=tuple(soft))
    places = [Placement(p, start) for p in gpu.board.profiles for start in p.starts]
    placed = draw(st.lists(st.sampled_from(places), max_size=3))
    named = draw(st.none() | st.just("group1-0"))
    hard = [_grant(gpu, place.profile.memory, placed=place, position=named) for place in placed]
    live = draw(st.lists(st.sampled_from(places), max_size=2))
    return replace(gpu, grants=tuple(hard), instances=tuple(live))


def _grant(
    gpu: Gpu,
    memory: int,
    *,
    cores: int = 0,
    placed: Placement | None = None,
    position: str | None = None,
) -> Grant:
    return Grant(
        gpu=gpu.uuid,
        mode=gpu.mode,
        memory=MiB(memory),
        cores=CorePercent(cores),
        placed=placed,
        position=position,
    )


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    there = Node(
        name="n0",
        gpus=tuple(draw(gpus(i)) for i in range(draw(st.integers(1, 3)))),
        fresh=draw(st.booleans()),
    )
    return with_volcano_positions(there) if draw(st.booleans()) else there


ITEMS = st.builds(
    lambda profile, memory, count: Item(profile=profile, memory=MiB(memory), count=count),
    st.sampled_from(["1g.5gb", "1g.10gb", "2g.10gb", "3g.40gb"]),
    st.integers(1, 90_000),
    st.integers(1, 7),
)
GROUPS = st.builds(
    lambda name, items: GeometryGroup(name=name, items=tuple(items)),
    st.sampled_from(["group1", "group2", ""]),
    st.lists(ITEMS, min_size=1, max_size=3),
)
GEOMETRIES = st.none() | st.lists(
    st.builds(
        lambda model, groups: GeometryEntry(models=(model,), groups=tuple(groups)),
        st.sampled_from(["A100-SXM4-40GB", "A100-SXM4-80GB", "A30", "H100", "no model"]),
        st.lists(GROUPS, min_size=1, max_size=2),
    ),
    max_size=4,
).map(lambda entries: Geometries(tuple(entries)))
DEMANDS = st.dictionaries(
    st.sampled_from(sorted(board.name for m in MODELS.values() if (board := m.board))),
    st.builds(
        lambda counts, failures: BoardDemand(counts=MappingProxyType(counts), failures=failures),
        st.dictionaries(st.sampled_from(["1g.5gb", "2g.10gb"]), st.floats(0, 1000)),
        st.floats(0, 1),
    ),
    max_size=3,
).map(lambda boards: Demand(boards=MappingProxyType(boards)))
