"""What a pod holds at most is what its init containers and its apps share, counted once."""

import json
from collections.abc import Mapping

import msgspec
import pytest

from allocator.extender.projection import grants_of
from allocator.ledger.assign import assign
from allocator.ledger.commit import wire_of, with_entry
from allocator.ledger.decode import decode
from allocator.model.allocation import Assignment, ContainerGrants, Entry, Grant
from allocator.model.gpu import Node
from allocator.model.request import Mode, PodRequest, Stage
from allocator.model.usage import parts, peak_grants, without_entries
from allocator.placement.choose import PlacementPolicy, choose
from tests.builders.gpunodes import gpu_node, held, ledger, several
from tests.builders.model import (
    A30,
    A100_40,
    T4,
    ask,
    gpu,
    init,
    mig_grant,
    node,
    nodes_of,
    pod,
    profile,
    sidecar,
    snapshot,
    soft_grant,
)
from tests.unit.allocator.ledger.test_assign import wanted

INIT, SIDECAR, APP = Stage.INIT, Stage.SIDECAR, Stage.APP
SOFT = nodes_of(2, T4)
CUT = nodes_of(1, A30, mode=Mode.MIG)
SHARING = pod(init(ask(10000, name="init")), ask(10000, name="app"))
Amounts = list[tuple[int, int]]  # memory and cores of each grant


def a30(name: str, start: int) -> Grant:
    return mig_grant(name, start, gpu="GPU-n0-0", product=A30)


@pytest.mark.parametrize(
    ("containers", "amounts"),
    [
        pytest.param([held(APP, soft_grant(1), soft_grant(2))], [(1, 0), (2, 0)], id="apps"),
        pytest.param([held(INIT, soft_grant(9)), held(APP, soft_grant(9))], [(9, 0)], id="equal"),
        pytest.param([held(INIT, soft_grant(9)), held(APP, soft_grant(4))], [(9, 0)], id="more"),
        pytest.param([held(INIT, soft_grant(4)), held(APP, soft_grant(9))], [(9, 0)], id="less"),
        pytest.param([held(INIT, soft_grant(4)), held(APP)], [(4, 0)], id="init-alone"),
        pytest.param(
            [held(INIT, soft_grant(2, 60)), held(INIT, soft_grant(9)), held(APP, soft_grant(4))],
            [(9, 60)],
            id="one-by-one",
        ),
        pytest.param(
            [held(SIDECAR, soft_grant(3)), held(INIT, soft_grant(5)), held(APP, soft_grant(4))],
            [(3, 0), (5, 0)],
            id="beside-a-sidecar",
        ),
        pytest.param(
            [held(INIT, soft_grant(5)), held(SIDECAR, soft_grant(3)), held(APP, soft_grant(4))],
            [(3, 0), (4, 0)],
            id="before-a-sidecar",
        ),
        pytest.param(
            [held(INIT, soft_grant(20)), held(APP, soft_grant(3), soft_grant(4))],
            [(3, 0), (17, 0)],
            id="two-apps",
        ),
        pytest.param(
            [held(INIT, soft_grant(5, gpu="GPU-1")), held(APP, soft_grant(4))],
            [(5, 0), (4, 0)],
            id="apart",
        ),
    ],
)
def test_containers_that_run_in_turn_count_once(
    containers: list[ContainerGrants], amounts: Amounts
) -> None:
    """Memory, compute and the number of grants are what is ever held at one time."""
    assert [(grant.memory, grant.cores) for grant in peak_grants(containers)] == amounts


@pytest.mark.parametrize(
    ("first", "then", "taken"),
    [
        pytest.param(("1g.6gb", 3), ("1g.6gb", 3), 0b1000, id="one-instance"),
        pytest.param(("2g.12gb", 2), ("1g.6gb", 3), 0b1100, id="one-in-another"),
        pytest.param(("1g.6gb", 0), ("1g.6gb", 3), 0b1001, id="two-places"),
    ],
)
def test_a_place_is_kept_free_all_the_time(
    first: tuple[str, int], then: tuple[str, int], *, taken: int
) -> None:
    """An instance that two share is one; one that only the first needs keeps its slots."""
    one = several("a", held(INIT, a30(*first)), held(APP, a30(*then)))

    (found,) = ledger(CUT, (one,)).node.gpus

    assert (found.taken_slots, found.memory_promised) == (taken, profile(first[0], A30).memory)


def test_each_part_has_a_holder() -> None:
    """Each grant comes with the name of a container that holds it."""
    found = parts([held(INIT, soft_grant(9)), held(APP, soft_grant(4))])

    assert [(name, grant.memory) for name, grant in found] == [("app", 9)]


def test_a_ledger_counts_what_was_chosen() -> None:
    """What init and app containers share counts once; the rest is free for others."""
    first = ledger(SOFT)
    found = assign(first, wanted(request=SHARING), policy=PlacementPolicy())
    assert isinstance(found, Assignment)
    one = several("a", *found.containers)

    decoded = ledger(SOFT, (one,))

    assert [gpu.memory_promised for gpu in decoded.node.gpus] == [10000, 0]
    assert with_entry(first, one).node == decoded.node
    assert without_entries(decoded.node, [one]) == SOFT
    other = assign(decoded, wanted("b", request=pod(ask(5000))), policy=PlacementPolicy())
    assert isinstance(other, Assignment)
    assert other.containers[0].grants[0].gpu == "GPU-n0-0"  # the fuller one


def test_a_forecast_counts_alike() -> None:
    """A pod that is being bound takes as much as the ledger will count."""
    found = grants_of(SOFT, wanted(request=SHARING), PlacementPolicy())

    assert [grant.memory for grant in found] == [10000]


def test_the_ledger_says_who_takes_turns() -> None:
    """Only of containers that are no apps, whose entries read as they always did."""
    one = several("a", held(INIT, soft_grant(2)), held(SIDECAR), held(APP, soft_grant(3)))

    wire = json.loads(msgspec.json.encode(wire_of(one)))

    assert [container.get("stage") for container in wire["containers"]] == ["init", "sidecar", None]
    assert decode(gpu_node(SOFT, (one,))).entries == (one,)


def test_an_older_entry_counts_in_full() -> None:
    """It does not say which containers run in turn: this costs capacity, but promises no more."""
    document = gpu_node(SOFT, (sharing(),))
    for container in document["spec"]["entries"][0]["containers"]:
        container.pop("stage", None)

    decoded = decode(document)

    assert decoded.problems == ()
    assert [gpu.memory_promised for gpu in decoded.node.gpus] == [20000, 0]


def sharing(first: Stage = INIT) -> Entry:
    grant = soft_grant(10000, gpu="GPU-n0-0")
    return several("a", held(first, grant, name="init"), held(APP, grant, name="app"))


@pytest.mark.parametrize("written", [INIT, APP], ids=["now", "before-stages-were-written"])
def test_a_promise_that_containers_share_is_kept(written: Stage) -> None:
    """However good other GPUs are by now, the Binding that carries the first may yet land."""
    busy = several("z", held(APP, soft_grant(5000, gpu="GPU-n0-1")))

    found = assign(
        ledger(SOFT, (sharing(written), busy)),
        wanted(request=SHARING, gpus=("GPU-n0-1",)),
        policy=PlacementPolicy(),
    )

    assert isinstance(found, Assignment)
    assert found.containers == sharing().containers


def test_an_instance_that_containers_share_is_kept() -> None:
    """Its slots are not in the way of themselves."""
    grant = a30("2g.12gb", 0)
    one = several("a", held(INIT, grant), held(APP, grant))
    request = pod(init(ask(8000, name="init")), ask(8000, name="app"), mode=Mode.MIG)

    found = assign(ledger(CUT, (one,)), wanted(request=request), policy=PlacementPolicy())

    assert isinstance(found, Assignment)
    assert found.containers == one.containers


def test_what_runs_at_once_is_still_too_much() -> None:
    """A promise to a sidecar and an app that exceeds the GPU does not stand."""
    request = pod(sidecar(ask(10000, name="init")), ask(10000, name="app"))

    found = assign(ledger(SOFT, (sharing(),)), wanted(request=request), policy=PlacementPolicy())

    assert isinstance(found, Assignment)
    assert {grant.gpu for c in found.containers for grant in c.grants} == {
        "GPU-n0-0",
        "GPU-n0-1",
    }


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param(pod(init(ask(6000, name="i")), ask(6000)), "a100", id="in-turn"),
        pytest.param(pod(sidecar(ask(6000, name="i")), ask(6000)), "t4", id="at-once"),
    ],
)
def test_the_fullest_node_is_the_fullest_at_any_time(request_: PodRequest, expected: str) -> None:
    """By binpack a node is not taken for fuller than the pod will ever make it."""
    nodes: Mapping[str, Node] = {
        "a100": node("a100", gpu(A100_40, grants=[soft_grant(19000)])),
        "t4": node("t4", gpu(T4)),
    }

    assert chosen(request_, nodes) == expected


def chosen(request: PodRequest, nodes: Mapping[str, Node]) -> str:
    found = choose(snapshot(*nodes.values()), request)
    assert found.assignment is not None
    return found.assignment.node


class _CountingGrants(ContainerGrants):
    """Grants of an init container that count how often they are looked at."""

    looks = 0

    def __init__(self, name: str, kept: tuple[Grant, ...]) -> None:
        for field, value in (("name", name), ("stage", Stage.INIT), ("kept", kept)):
            object.__setattr__(self, field, value)

    @property
    def grants(self) -> tuple[Grant, ...]:
        type(self).looks += 1
        return self.__dict__["kept"]  # type: ignore[no-any-return]  # set above


def test_grants_on_many_gpus_are_looked_at_once() -> None:
    """A node may report init containers on thousands of GPUs, each on others."""
    _CountingGrants.looks = 0
    containers = [
        _CountingGrants(f"c{c}", tuple(soft_grant(1, gpu=f"{c}-{n}") for n in range(64)))
        for c in range(64)
    ]

    assert len(peak_grants(containers)) == 64 * 64
    assert _CountingGrants.looks == 64
