"""What the links of a MetaX node are worth for a pod, and whom an online pod is in the way of."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.families.family import BoundPod
from allocator.families.metax import binding_annotations, needs_lock, node_value
from allocator.metax.names import ALLOCATED_KEY, GPU_ALLOCATED_KEY, SGPU_ALLOCATED_KEY
from allocator.model.allocation import Assignment, ContainerGrants, Grant
from allocator.model.gpu import Gpu, Node
from allocator.model.request import METAX, ContainerRequest, FillPolicy, Mode, PodRequest
from allocator.model.sharing import AppClass
from allocator.model.units import CorePercent, MiB
from tests.builders.model import ask, pod

USUAL = "best-effort"
ONLINE = str(AppClass.ONLINE)
OFFLINE = f"{AppClass.OFFLINE}:{USUAL}"


def grant(uuid: str = "GPU-0", *, share: str = USUAL, mode: Mode = Mode.SGPU) -> Grant:
    return Grant(gpu=uuid, mode=mode, memory=MiB(1024), cores=CorePercent(10), share=share)


def card(
    number: int, *, linked: Sequence[int] = (), shares: Sequence[str] = (), healthy: bool = True
) -> Gpu:
    """Return a card linked with the *linked* numbers, on which pods of classes *shares* are."""
    return Gpu(
        uuid=f"GPU-{number}",
        index=number,
        model="C500",
        memory=MiB(65536),
        mode=Mode.SGPU,
        slots=16,
        healthy=healthy,
        grants=tuple(grant(f"GPU-{number}", share=share) for share in shares),
        links=tuple(f"GPU-{other}" for other in linked if other != number),
        family=METAX,
    )


def zoned(*sizes: int, alone: int = 0) -> Node:
    """Return a node with zones of so many cards, and *alone* cards without a link."""
    cards: list[Gpu] = []
    for size in sizes:
        zone = range(len(cards), len(cards) + size)
        cards += [card(number, linked=zone) for number in zone]
    first = len(cards)
    return Node(name="n0", gpus=(*cards, *(card(first + number) for number in range(alone))))


def shared(*asks: ContainerRequest, share: str = USUAL, mode: Mode = Mode.SGPU) -> PodRequest:
    """Return the request of a pod of class *share*."""
    classed = [msgspec.structs.replace(one, share=share) for one in asks]
    return msgspec.structs.replace(pod(*classed, mode=mode), family=METAX)


def whole(count: int, *, share: str = USUAL) -> PodRequest:
    return shared(ask(cores=100, count=count), share=share)


def worth(node: Node, request: PodRequest) -> int | None:
    return node_value(node, request, FillPolicy.BINPACK)


def without(node: Node, *numbers: int, shares: Sequence[str] = (), healthy: bool = True) -> Node:
    """Return *node*, whose cards *numbers* are taken by *shares* or not *healthy*."""
    gpus = [
        replace(
            gpu, healthy=healthy, grants=tuple(grant(gpu.uuid, share=share) for share in shares)
        )
        if gpu.index in numbers
        else gpu
        for gpu in node.gpus
    ]
    return replace(node, gpus=tuple(gpus))


@pytest.mark.parametrize(
    ("node", "count", "value"),
    [
        (zoned(2), 2, 100),
        (zoned(4), 2, 60),
        (zoned(3), 2, 80),
        (zoned(2, 2), 2, 100),
        (zoned(alone=2), 2, 0),
        (zoned(alone=4), 3, 0),
        (zoned(2, alone=1), 1, 0),  # the lone card, so that no link breaks
        (zoned(2), 1, -10),
        (zoned(2), 3, None),
        (zoned(3, 2), 2, 100),
    ],
)
def test_whole_gpus_are_worth_their_links(node: Node, count: int, value: int | None) -> None:
    """Ten times those inside, less those that break; cards without a link have none of either."""
    assert worth(node, whole(count)) == value


@pytest.mark.parametrize("busy", [True, False])
@pytest.mark.parametrize(
    ("out", "count", "value"), [((0,), 2, 100), ((0, 1), 2, None), ((0,), 1, -10), ((0,), 3, None)]
)
def test_only_idle_healthy_cards_are_counted_as_free(
    out: tuple[int, ...], count: int, value: int | None, *, busy: bool
) -> None:
    """A zone of three of which some are in use, or broken."""
    node = without(zoned(3), *out, shares=[USUAL] if busy else [], healthy=busy)

    assert worth(node, whole(count)) == value


def test_all_containers_count() -> None:
    """Two with one GPU each are worth what one with two is."""
    two = shared(ask(cores=100), ask(cores=100, name="second"))

    assert worth(zoned(2), two) == worth(zoned(2), whole(2)) == 100


@pytest.mark.parametrize(
    ("asks", "share"),
    [
        ([ask(1024, cores=99)], USUAL),
        ([ask(1024)], USUAL),
        ([ask(cores=100), ask(1024, cores=50, name="second")], USUAL),
        ([ask(cores=100)], OFFLINE),
        ([ask(cores=100)], f"{AppClass.OFFLINE}:fixed-share"),
    ],
)
def test_a_share_of_a_gpu_has_no_use_of_links(asks: Sequence[ContainerRequest], share: str) -> None:
    """Nor has a pod with an application class, which is never alone on a GPU by right."""
    assert worth(zoned(2), shared(*asks, share=share)) is None


@pytest.mark.parametrize("share", [USUAL, "fixed-share", ""])
def test_a_pod_without_an_application_class_may_have_gpus_to_itself(share: str) -> None:
    """Whatever its policy."""
    assert worth(zoned(2), whole(2, share=share)) == 100


@pytest.mark.parametrize(
    ("shares", "value"),
    [
        ([[]], 0),
        ([[], [OFFLINE]], 0),
        ([[OFFLINE], []], 0),
        ([[OFFLINE]], -100),
        ([[OFFLINE, OFFLINE]], -200),
        ([[OFFLINE, OFFLINE], [OFFLINE]], -100),
        ([[ONLINE]], -20),
        ([[ONLINE, OFFLINE]], -22),
        ([[ONLINE, ONLINE], [OFFLINE]], -40),
    ],
)
def test_an_online_pod_counts_whom_it_crowds(shares: list[list[str]], value: int) -> None:
    """On the best GPU of the node, because it goes there."""
    node = Node(
        name="n0", gpus=tuple(card(number, shares=held) for number, held in enumerate(shares))
    )

    assert worth(node, shared(ask(1024), share=ONLINE)) == value


def test_an_unhealthy_gpu_is_no_place_for_an_online_pod() -> None:
    """Though nobody is on it. A node with no other has no links to speak of either."""
    busy, broken = card(0, shares=[OFFLINE]), card(1, healthy=False)
    online = shared(ask(1024), share=ONLINE)

    assert worth(Node(name="n0", gpus=(busy, broken)), online) == -100
    assert worth(Node(name="n0", gpus=(broken,)), online) is None


@pytest.mark.parametrize("share", [USUAL, OFFLINE, "fixed-share"])
def test_other_pods_do_not_count_whom_they_crowd(share: str) -> None:
    """HAMi asks online pods only."""
    node = Node(name="n0", gpus=(card(0, shares=[OFFLINE, ONLINE]), card(1)))

    assert worth(node, shared(ask(1024), share=share)) is None


ZONES = st.lists(st.integers(1, 4), min_size=1, max_size=3)


@given(
    node=st.builds(lambda sizes, alone: zoned(*sizes, alone=alone), ZONES, st.integers(0, 3)),
    count=st.integers(1, 12),
    rng=st.randoms(),
)
def test_the_order_of_cards_does_not_matter(node: Node, count: int, rng: Random) -> None:
    """A node is worth the same however its cards are listed."""
    mixed = list(node.gpus)
    rng.shuffle(mixed)

    assert worth(replace(node, gpus=tuple(mixed)), whole(count)) == worth(node, whole(count))


NOW = datetime(2026, 3, 1, 8, 15, 31, tzinfo=UTC)


def bound(held: Mapping[str, Grant], request: PodRequest) -> BoundPod:
    """Return a pod with the init container ``load``, then ``main`` and ``side``."""
    parts = tuple(ContainerGrants(name=name, grants=(one,)) for name, one in held.items())
    return BoundPod(
        assignment=Assignment(node="n0", mode=Mode.SGPU, containers=parts),
        request=request,
        node=zoned(3),
        containers=("main", "side"),
        init_containers=("load",),
        vocabularies=(),
        ours=False,
        now=NOW,
    )


def test_the_plugin_reads_init_containers_first() -> None:
    """By the place of a container, so one without GPUs has an empty list."""
    held = {"side": grant("GPU-2"), "load": grant("GPU-1")}

    notes = binding_annotations(bound(held, shared(ask(1024))))

    amounts = {"compute": 10, "vRam": 1024}
    assert json.loads(notes[ALLOCATED_KEY]) == [
        [{"uuid": "GPU-1", **amounts}],
        [],
        [{"uuid": "GPU-2", **amounts}],
    ]
    assert notes[SGPU_ALLOCATED_KEY] == "GPU-1,Metax-SGPU,1024,10:;;GPU-2,Metax-SGPU,1024,10:;"


@pytest.mark.parametrize(("mode", "locked"), [(Mode.SGPU, True), (Mode.NATIVE, False)])
def test_only_the_plugin_of_shares_serves_whoever_has_the_lock(mode: Mode, *, locked: bool) -> None:
    """The other one chooses by itself, and is told nothing that it would not read."""
    request = shared(ask(cores=100), mode=mode)

    notes = binding_annotations(bound({"main": grant()}, request))

    assert needs_lock(request) is locked
    assert (ALLOCATED_KEY in notes) is (SGPU_ALLOCATED_KEY in notes) is locked
    assert (GPU_ALLOCATED_KEY in notes) is not locked
