"""Choosing agrees with exhaustive search, promises nothing twice, and advises what works."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations, product

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.ledger.assign import PodClaim, assign
from allocator.ledger.commit import with_entry
from allocator.mig.profiles import sufficient_profiles
from allocator.model.allocation import Grant
from allocator.model.board import Placement
from allocator.model.decision import Reason
from allocator.model.gpu import Gpu, Node
from allocator.model.request import ContainerRequest, Mode, PodRequest, Stage
from allocator.model.units import MiB
from allocator.model.usage import without_entries
from allocator.placement.choose import Choice, FitVerdict, PlacementPolicy, choose
from allocator.placement.fit import headroom
from tests.builders.gpunodes import entry, ledger, several
from tests.builders.model import A30, A100_40, T4, ask, board, gpu, node, pod, snapshot, soft_grant

STAGES = st.sampled_from([Stage.APP, Stage.APP, Stage.INIT, Stage.SIDECAR])
MEMORY = (Reason.MEMORY_SHORT, Reason.NO_GEOMETRY)
MEMORY_FOR_ALL = re.compile(r'ask for at most (\d+) MiB(?: in container "(\w+)")?')
ANY_MEMORY = re.compile(r"ask for at most (\d+)(?: MiB|,| or |$)")
Granted = tuple[tuple[Grant, ...], ...]  # by container
Each = Callable[[Node, ContainerRequest], list[tuple[Grant, ...]]]


@st.composite
def soft_nodes(draw: st.DrawFn, name: str = "n0") -> Node:
    held = st.lists(st.tuples(st.integers(1, 9), st.sampled_from([0, 30, 100])), max_size=2)
    foreign = st.sampled_from([0, 2000])
    gpus = [
        replace(
            gpu(T4, index=i, grants=[soft_grant(1000 * n, cores) for n, cores in draw(held)]),
            slots=3,
            foreign=MiB(draw(foreign)),
        )
        for i in range(draw(st.integers(1, 3)))
    ]
    return node(name, *gpus)


@st.composite
def mig_nodes(draw: st.DrawFn, name: str = "n0") -> Node:
    model, count = draw(st.sampled_from([(A30, 2), (A100_40, 1)]))
    return node(name, *(draw(mig_gpus(model, i)) for i in range(count)))


@st.composite
def mig_gpus(draw: st.DrawFn, model: str, index: int) -> Gpu:
    held: list[Grant] = []
    taken = 0
    places = [Placement(p, start) for p in board(model).plain for start in p.starts]
    for placed in draw(st.lists(st.sampled_from(places), max_size=2)):
        if not placed.mask & taken:
            taken |= placed.mask
            held.append(granted("", ask(1), placed))
    idle = draw(st.lists(st.sampled_from(places), max_size=1))
    return gpu(model, index=index, mode=Mode.MIG, grants=held, instances=idle)


@st.composite
def requests(draw: st.DrawFn, memories: Sequence[int]) -> PodRequest:
    asks = [
        msgspec.structs.replace(
            ask(
                draw(st.sampled_from(memories)),
                cores=draw(st.sampled_from([0, 0, 30, 70, 100])),
                count=draw(st.sampled_from([1, 1, 2])),
                name=f"c{i}",
            ),
            stage=draw(STAGES),
        )
        for i in range(draw(st.integers(1, 3)))
    ]
    return pod(*asks)


SOFT_REQUESTS = requests([1000, 3000, 5000, 7000, 8000, 15000])
MIG_REQUESTS = requests([3000, 5000, 9000, 11000, 18000, 50000])


@settings(max_examples=150)
@given(soft_nodes(), SOFT_REQUESTS)
def test_software_shares_are_found_exactly_when_they_exist(
    there: Node, request: PodRequest
) -> None:
    """A pod is refused exactly when no way to serve it exists, and what it gets is legal."""
    found = choose(snapshot(there), request)

    assert (found.assignment is not None) == any(
        legal(there, request, way) for way in ways(there, request, soft_ways)
    )
    assert found.assignment is None or legal(there, request, grants_of(found))


@settings(max_examples=150)
@given(mig_nodes(), MIG_REQUESTS)
def test_instances_are_found_exactly_when_they_exist(there: Node, request: PodRequest) -> None:
    """The best place for one container never hides that another place would serve them all."""
    found = choose(snapshot(there), request)

    assert (found.assignment is not None) == any(
        legal(there, request, way) for way in ways(there, request, mig_ways)
    )
    assert found.assignment is None or legal(there, request, grants_of(found))


@settings(max_examples=100)
@given(st.tuples(soft_nodes("a"), mig_nodes("b"), soft_nodes("c")), MIG_REQUESTS)
def test_the_order_of_nodes_decides_nothing(nodes: tuple[Node, ...], request: PodRequest) -> None:
    """Replicas that learned of nodes in another order choose alike."""
    forth, back = snapshot(*nodes), snapshot(*reversed(nodes))

    assert choose(forth, request) == choose(back, request)


@settings(max_examples=100)
@given(st.one_of(soft_nodes(), mig_nodes()), st.one_of(SOFT_REQUESTS, MIG_REQUESTS))
def test_an_advised_amount_of_memory_is_admitted(there: Node, request: PodRequest) -> None:
    """What a refusal offers instead, helps; one MiB more would not."""
    found = choose(snapshot(there), request)

    for name, amount in advised(found, alone=len(request.containers) == 1):
        less, more = with_memory(request, name, amount), with_memory(request, name, amount + 1)
        assert helped(found, choose(snapshot(there), less))
        assert not helped(found, choose(snapshot(there), more))


@settings(max_examples=150)
@given(st.one_of(soft_nodes(), mig_nodes()), st.one_of(SOFT_REQUESTS, MIG_REQUESTS))
def test_the_ledger_counts_what_was_chosen(there: Node, request: PodRequest) -> None:
    """A promise takes the most that its pod holds at a time, stands as written, and is freed.

    What is left after it is freed is compared as a multiset: grants add up, so that which of two
    equal ones was taken away, and with that their order, decides nothing.
    """
    found = choose(snapshot(there), request)
    if found.assignment is None:
        return
    others = [entry(f"{g.gpu}-{i}", g) for gpu in there.gpus for i, g in enumerate(gpu.grants)]
    mine = several("p", *found.assignment.containers)

    before, now = ledger(there, others), ledger(there, (*others, mine))

    times = [earlier + joining for earlier, joining in moments(request, grants_of(found))]
    for one, other in zip(before.node.gpus, now.node.gpus, strict=True):
        was, left = headroom(one), headroom(other)
        held = [part(grants, one) for grants in times]
        assert left.memory == was.memory - most_memory(held)
        assert left.cores == was.cores + most_cores(held)
        assert left.taken == was.taken | masks(chain.from_iterable(held))
        if one.mode is not Mode.MIG:
            assert left.tenants == was.tenants + max(map(len, held))
    assert with_entry(before, mine).node == now.node
    assert unordered(without_entries(now.node, [mine])) == unordered(before.node)
    assert (
        assign(now, PodClaim(uid="p", request=request), policy=PlacementPolicy())
        == found.assignment
    )


def unordered(there: Node) -> tuple[Node, list[Counter[Grant]]]:
    """Return a node without its grants, and the grants of each of its GPUs counted."""
    bare = tuple(replace(gpu, grants=()) for gpu in there.gpus)
    return replace(there, gpus=bare), [Counter(gpu.grants) for gpu in there.gpus]


def most_memory(held: Iterable[Sequence[Grant]]) -> int:
    return max(sum(grant.memory for grant in at_once) for at_once in held)


def most_cores(held: Iterable[Sequence[Grant]]) -> int:
    return max(sum(grant.cores for grant in at_once) for at_once in held)


def masks(grants: Iterable[Grant]) -> int:
    return union([grant.placed.mask for grant in grants if grant.placed is not None])


def helped(before: Choice, after: Choice) -> bool:
    """Say whether a pod that could never run might, or one that must wait runs."""
    if before.verdict is FitVerdict.NEVER:
        return after.verdict is not FitVerdict.NEVER
    return after.verdict is FitVerdict.FITS


def advised(found: Choice, *, alone: bool) -> Iterator[tuple[str, int]]:
    """Yield container and MiB, where one amount of memory is all that is in the way.

    What no single GPU has is said first, and is not all where several containers add up.
    """
    if len(found.findings) == 1 and found.findings[0].reason in MEMORY:
        finding = found.findings[0]
        advice = (ANY_MEMORY if alone else MEMORY_FOR_ALL).match(finding.remedy)
        if advice is not None:
            name = finding.place.split('"')[1] if finding.place != "pod" else advice[2]
            yield name, int(advice[1])


def with_memory(request: PodRequest, name: str, amount: int) -> PodRequest:
    changed = (
        msgspec.structs.replace(one, memory=MiB(amount)) if one.name == name else one
        for one in request.containers
    )
    return msgspec.structs.replace(request, containers=tuple(changed))


def grants_of(found: Choice) -> Granted:
    assert found.assignment is not None
    return tuple(container.grants for container in found.assignment.containers)


def ways(there: Node, request: PodRequest, each: Each) -> Iterator[Granted]:
    """Yield every way to hand out GPUs and places, legal or not."""
    return product(*(each(there, one) for one in request.containers))


def soft_ways(there: Node, one: ContainerRequest) -> list[tuple[Grant, ...]]:
    single = [
        [
            Grant(
                gpu=gpu.uuid,
                mode=Mode.HAMI_CORE,
                memory=one.memory_on(gpu.memory),
                cores=one.cores,
            )
        ]
        for gpu in there.gpus
    ]
    return on_distinct_gpus(single, one.count)


def mig_ways(there: Node, one: ContainerRequest) -> list[tuple[Grant, ...]]:
    single = [
        [
            granted(gpu.uuid, one, Placement(capacity.profile, start))
            for capacity in sufficient_profiles(one, gpu.board)
            for start in capacity.profile.starts
        ]
        for gpu in there.gpus
    ]
    return on_distinct_gpus(single, one.count)


def granted(uuid: str, one: ContainerRequest, placed: Placement) -> Grant:
    memory = placed.profile.memory
    return Grant(gpu=uuid, mode=Mode.MIG, memory=memory, cores=one.cores, placed=placed)


def on_distinct_gpus(single: list[list[Grant]], count: int) -> list[tuple[Grant, ...]]:
    return [way for gpus in combinations(single, count) for way in product(*gpus)]


def legal(there: Node, request: PodRequest, way: Granted) -> bool:
    return all(
        holds(gpu, [part(earlier, gpu), part(now, gpu)])
        for earlier, now in moments(request, way)
        for gpu in there.gpus
    )


def part(grants: Sequence[Grant], gpu: Gpu) -> list[Grant]:
    return [grant for grant in grants if grant.gpu == gpu.uuid]


def moments(request: PodRequest, way: Granted) -> Iterator[tuple[list[Grant], list[Grant]]]:
    """Yield what runs at one time: the sidecars so far, and beside them one init or all apps."""
    sidecars: list[Grant] = []
    apps: list[Grant] = []
    for one, grants in zip(request.containers, way, strict=True):
        match one.stage:
            case Stage.SIDECAR:
                sidecars.extend(grants)
            case Stage.INIT:
                yield list(sidecars), list(grants)
            case Stage.APP:
                apps.extend(grants)
    yield sidecars, apps


def holds(gpu: Gpu, parts: list[list[Grant]]) -> bool:
    """Judge one GPU at one moment by the rules, written once more and differently."""
    held = list(gpu.grants)
    for joining in parts:
        if joining and not room_for(gpu, held, joining):
            return False
        held += joining
    return True


def room_for(gpu: Gpu, held: list[Grant], joining: list[Grant]) -> bool:
    everyone = held + joining
    if gpu.mode is Mode.MIG:
        masks = [grant.placed.mask for grant in everyone if grant.placed is not None]
        return sum(masks) == union(masks)
    alone = any(grant.cores == 100 for grant in joining)
    return (
        sum(grant.cores for grant in held) < 100
        and (not alone or len(everyone) == 1)
        and len(everyone) <= gpu.slots
        and sum(grant.memory for grant in everyone) + gpu.foreign <= gpu.memory
        and sum(grant.cores for grant in everyone) <= 100
    )


def union(masks: list[int]) -> int:
    taken = 0
    for mask in masks:
        taken |= mask
    return taken
