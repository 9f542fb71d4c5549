"""Which nodes take a pod, and what a scheduler is told of the others."""

import json
from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest

from allocator.config.settings import DEFAULTS
from allocator.extender.filter import FilterContext, FilterResult, filter_nodes
from allocator.extender.index import Index, IndexBuilder
from allocator.extender.pod import SchedulingPod
from allocator.extender.prioritize import score_nodes
from allocator.extender.reasons import CLOSED, NO_INVENTORY, RESERVED, UNREADABLE
from allocator.extender.score import ScoreTables, scorer
from allocator.ledger.assign import PodClaim
from allocator.model.decision import Finding, Findings, Reason
from allocator.model.gpu import Gpu, Node
from allocator.model.request import FillPolicies, FillPolicy, Filters, Mode, PodRequest
from allocator.placement.choose import PlacementPolicy
from tests.builders.gpunodes import entry
from tests.builders.model import A30, A100_40, T4, ask, gpu, mig_grant, node, pod, soft_grant

SOFT = Mode.HAMI_CORE


def index_of(*nodes: Node, whole: bool = True) -> Index:
    indexer = IndexBuilder()
    for found in nodes:
        indexer.put(found)
    return indexer.index(version="1", complete=whole)


def asking(
    request: PodRequest | Findings | None, *, uid: str = "u", priority: int = 0
) -> SchedulingPod:
    wanted = PodClaim(uid=uid, request=request) if isinstance(request, PodRequest) else request
    return SchedulingPod(uid=uid, namespace="team-a", name=uid, priority=priority, claim=wanted)


def nominated(request: PodRequest, node: str, *, uid: str, priority: int) -> SchedulingPod:
    return replace(asking(request, uid=uid, priority=priority), nominated=node)


def verdicts(index: Index, who: SchedulingPod, *names: str, **more: object) -> FilterResult:
    circumstances = FilterContext(policy=PlacementPolicy(), **more)  # type: ignore[arg-type]  # named in each test
    return filter_nodes(index, who, names, context=circumstances)


def texts(found: FilterResult) -> Mapping[str, tuple[str, bool]]:
    return {name: (o.text, o.lasting) for name, o in found.failures.items()}


def full(product: str = T4) -> Gpu:
    return gpu(product, grants=[soft_grant(15000)])


@pytest.mark.parametrize(
    ("there", "request_", "expected"),
    [
        pytest.param(full(), pod(ask(3000)), ("insufficient GPU memory", False), id="memory"),
        pytest.param(
            gpu(T4, grants=[soft_grant(100, 90)]),
            pod(ask(3000, cores=20)),
            ("insufficient GPU cores", False),
            id="cores",
        ),
        pytest.param(
            gpu(T4, grants=[soft_grant(10)] * 10),
            pod(ask(3000)),
            ("no free GPU shares", False),
            id="shares",
        ),
        pytest.param(
            gpu(A30, mode=Mode.MIG, grants=[mig_grant("4g.24gb", 0, product=A30)]),
            pod(ask(3000)),
            ("no free slots for the MIG profile", False),
            id="geometry",
        ),
        pytest.param(gpu(T4), pod(ask(20000)), ("GPU memory too small", True), id="too-small"),
        pytest.param(gpu(T4), pod(ask(3000, count=2)), ("too few GPUs", True), id="too-few"),
        pytest.param(
            gpu(T4), pod(ask(3000), mode=Mode.MIG), ("GPUs in another mode", True), id="mode"
        ),
        pytest.param(
            gpu(T4),
            pod(ask(3000), filters=Filters(models=("A100",))),
            ("GPU model not accepted", True),
            id="model",
        ),
        pytest.param(
            gpu(T4),
            pod(ask(3000), filters=Filters(uuids=("GPU-other",))),
            ("GPU model not accepted", True),
            id="uuid",
        ),
        pytest.param(
            replace(gpu(T4), healthy=False),
            pod(ask(3000)),
            ("unhealthy GPUs", True),
            id="unhealthy",
        ),
    ],
)
def test_texts(there: Gpu, request_: PodRequest, expected: tuple[str, bool]) -> None:
    """Texts name no number, and say whether evicting pods could help."""
    found = verdicts(index_of(node("n0", there)), asking(request_), "n0")

    assert texts(found) == {"n0": expected}
    assert not any(character.isdigit() for character in expected[0])


def test_all_that_fit_are_returned_in_order() -> None:
    """The scheduler has wishes of its own, so none is left out."""
    index = index_of(node("a", gpu(T4)), node("b", full()), node("c", gpu(T4)))

    found = verdicts(index, asking(pod(ask(3000))), "c", "b", "a")

    assert found.fitting == ["c", "a"]


def test_a_pod_that_asks_for_nothing_may_go_anywhere() -> None:
    """Nodes that nobody knows included."""
    assert verdicts(index_of(), asking(None), "a", "b").fitting == ["a", "b"]


def test_a_request_that_cannot_be_read_fits_nowhere() -> None:
    """The hook would refuse it at each node in turn."""
    wrong = Finding(reason=Reason.MALFORMED, place="pod", field="", what="x", remedy="y")

    found = verdicts(index_of(node("a", gpu(T4))), asking(Findings(wrong)), "a")

    assert found.failures == {"a": UNREADABLE}


@pytest.mark.parametrize(
    ("whole", "ours", "fits"),
    [
        pytest.param(True, True, False, id="our-agent"),
        pytest.param(True, False, True, id="another-plugin"),
        pytest.param(False, True, True, id="not-all-known"),
    ],
)
def test_a_node_without_inventory(*, whole: bool, ours: bool, fits: bool) -> None:
    """It has nothing to give only where all is known and nobody else serves nodes."""
    index = index_of(node("a", gpu(T4)), whole=whole)

    found = verdicts(index, asking(pod(ask(3000))), "new", closed_world=ours)

    assert found.fitting == (["new"] if fits else [])
    assert found.failures == ({} if fits else {"new": NO_INVENTORY})


def test_a_node_that_is_not_ready_takes_nobody() -> None:
    """The hook would refuse, whatever is free."""
    indexer = IndexBuilder()
    indexer.put(node("a", gpu(T4)), closed=True)

    found = verdicts(indexer.index(version="1", complete=True), asking(pod(ask(3000))), "a")

    assert found.failures == {"a": CLOSED}


def test_a_pods_own_promise_is_free_to_it() -> None:
    """A bind that failed on its way must not stand in the way of the next one."""
    mine = msgspec.structs.replace(soft_grant(15000), gpu="GPU-a-0")
    indexer = IndexBuilder()
    indexer.put(node("a", gpu(T4, grants=[mine])), [entry("u", mine)])
    index = indexer.index(version="1", complete=True)

    assert verdicts(index, asking(pod(ask(3000))), "a", own_nodes={"a"}).fitting == ["a"]
    assert verdicts(index, asking(pod(ask(3000)), uid="v"), "a").fitting == []


@pytest.mark.parametrize(
    ("priority", "fits"),
    [pytest.param(5, False, id="equal"), pytest.param(6, True, id="higher")],
)
def test_what_nominees_wait_for_is_taken(*, priority: int, fits: bool) -> None:
    """Only who has a higher priority may have it."""
    nominee = nominated(pod(ask(10000)), "a", uid="first", priority=5)
    index = replace(index_of(node("a", gpu(T4))), nominations={"a": (nominee,)})

    found = verdicts(index, asking(pod(ask(8000)), priority=priority), "a")

    assert found.fitting == (["a"] if fits else [])


def test_a_nominee_leaves_what_it_does_not_need() -> None:
    """Beside its share, and on other GPUs, there is room as before."""
    nominee = nominated(pod(ask(10000)), "a", uid="first", priority=5)
    index = replace(index_of(node("a", gpu(T4))), nominations={"a": (nominee,)})

    assert verdicts(index, asking(pod(ask(5000))), "a").fitting == ["a"]


def test_a_nominee_itself_is_not_in_its_own_way() -> None:
    """It was nominated in order to go there."""
    nominee = nominated(pod(ask(10000)), "a", uid="first", priority=5)
    index = replace(index_of(node("a", gpu(T4))), nominations={"a": (nominee,)})

    assert verdicts(index, nominee, "a").fitting == ["a"]


def test_room_that_comes_belongs_to_the_nominee() -> None:
    """Its victims still run: what little is free is not for others, what is elsewhere is."""
    victim = msgspec.structs.replace(soft_grant(12000), gpu="GPU-a-0")
    indexer = IndexBuilder()
    indexer.put(
        node("a", gpu(T4, grants=[victim]), gpu(T4, index=1, grants=[soft_grant(9000)])),
        [entry("victim", victim)],
    )
    nominee = nominated(pod(ask(14000)), "a", uid="first", priority=5)
    ending = replace(asking(None, uid="victim"), node="a", deleting=True)
    index = replace(
        indexer.index(version="1", complete=True),
        nominations={"a": (nominee,)},
        pods={"victim": ending},
    )

    assert verdicts(index, asking(pod(ask(3000))), "a").fitting == ["a"]  # on the other GPU
    assert verdicts(index, asking(pod(ask(7000))), "a").fitting == []


def test_nobody_takes_what_a_nominee_may_still_need() -> None:
    """As long as it has no place even once the ending are gone, the node is closed to others."""
    nominee = nominated(pod(ask(14000)), "a", uid="first", priority=5)
    index = replace(index_of(node("a", full())), nominations={"a": (nominee,)})

    assert verdicts(index, asking(pod(ask(100))), "a").failures == {"a": RESERVED}


def scores(index: Index, request: PodRequest, *names: str) -> dict[str, int]:
    answer = score_nodes(
        index,
        asking(request),
        names,
        weights=DEFAULTS.score_weights,
        fill_policy=FillPolicy.BINPACK,
    )
    found = {found["Host"]: found["Score"] for found in json.loads(answer.answer)}
    assert 0 not in found.values()  # who is not named has that, and costs the scheduler nothing
    return dict.fromkeys(names, 0) | found


def test_busy_nodes_are_filled_first_unless_a_pod_wants_otherwise() -> None:
    """By binpack the busy one scores higher, by the pod's own wish the idle one."""
    index = index_of(
        node("idle", gpu(A100_40)), node("busy", gpu(A100_40, grants=[soft_grant(30000, 60)]))
    )
    spread = msgspec.structs.replace(
        pod(ask(3000)), fill_policies=FillPolicies(node=FillPolicy.SPREAD)
    )

    packed = scores(index, pod(ask(3000)), "idle", "busy", "unknown")
    apart = scores(index, spread, "idle", "busy", "unknown")

    assert packed["busy"] > packed["idle"] == packed["unknown"] == 0
    assert apart["idle"] > apart["busy"] > apart["unknown"] == 0


def test_the_only_best_node_is_where_a_pod_will_likely_go() -> None:
    """Of several that score alike nobody knows which the scheduler takes."""
    full, half = (node(n, gpu(A100_40, grants=[soft_grant(m, 60)])) for n, m in FULLNESS.items())
    index = index_of(node("idle", gpu(A100_40)), full, half, replace(half, name="same"))

    assert favoured(index, "idle", "full", "half") == "full"
    assert favoured(index, "idle", "half") == "half"
    assert favoured(index, "idle", "half", "same") == ""
    assert favoured(index, "idle") == ""


FULLNESS = {"full": 30000, "half": 3000}


def favoured(index: Index, *names: str) -> str:
    table = ScoreTables()
    by = scorer(FillPolicy.BINPACK, DEFAULTS.score_weights)
    loads = ((name, standing.load) for name, standing in index.node_classes.items())
    rated = replace(index, score_tables=table.tables_for([by], loads))
    return score_nodes(
        rated,
        asking(pod(ask(3000))),
        names,
        weights=DEFAULTS.score_weights,
        fill_policy=FillPolicy.BINPACK,
    ).favourite


def joined(name: str, *, busy: int = 0) -> Node:
    """Build a node of four GPUs in linked pairs, the first *busy* of them hardly in use."""
    gpus = [gpu(A100_40, index=i, grants=[soft_grant(1)] * (i < busy)) for i in range(4)]
    links = {i: (f"GPU-{name}-{i ^ 1}",) for i in range(4)}
    return node(name, *(replace(one, links=links[one.index]) for one in gpus))


def test_nodes_whose_idle_gpus_are_joined_score_higher() -> None:
    """As long as they are idle, and only for a pod that wants several."""
    alone = node("alone", *(replace(gpu(A100_40, index=i), numa=i) for i in range(4)))
    index = index_of(alone, joined("joined"), joined("half", busy=1), joined("broken", busy=3))
    names = ("alone", "joined", "half", "broken")

    two, one = (scores(index, pod(ask(3000, count=n)), *names) for n in (2, 1))

    assert two == {"alone": 0, "joined": 3, "half": 3, "broken": 1}
    assert one == {"alone": 0, "joined": 0, "half": 1, "broken": 1}
