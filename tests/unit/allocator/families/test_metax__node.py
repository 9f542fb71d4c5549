"""What the family makes of a Node, what its links are worth to a pod, and what a bind writes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.catalog.vocabularies import METAX_SGPU
from allocator.cluster.family_inventories import FamilyInventories
from allocator.cluster.objects import decode_node
from allocator.families.family import BoundPod, InventoryFacts, ReadInventory
from allocator.families.metax import METAX_FAMILY
from allocator.families.registry import modes_of
from allocator.metax.cards import MetaxCard, encode_cards
from allocator.metax.inventory import UNTOLD_MODEL
from allocator.metax.names import ALLOCATED_KEY, CARDS_KEY, GPU, LOSSES_KEY, SCORES_KEY, SGPU
from allocator.model.allocation import Assignment, ContainerGrants, Grant
from allocator.model.gpu import Gpu, Node
from allocator.model.request import METAX, ContainerRequest, FillPolicy, Mode, PodRequest
from allocator.model.units import WHOLE_GPU, CorePercent, MiB
from tests.builders.gpunodes import Json
from tests.builders.model import ask, init, pod

NOW = datetime(2026, 3, 1, 8, tzinfo=UTC)
WHOLE: Final = ask(cores=WHOLE_GPU)
SHARE: Final = ask(4096, cores=30)


def card(uuid: str, *, zone: int | None = 1, numa: int | None = 0) -> MetaxCard:
    """Return a healthy card of 64 GiB and 16 shares."""
    return MetaxCard(
        uuid=uuid, model="C500", shares=16, memory=65536, healthy=True, numa=numa, zone=zone
    )


def read(cards: str, **maps: str) -> ReadInventory:
    """Return a node in mode sgpu as it is read; *maps* are its maps by their keys."""
    shares = {SGPU: "16"}
    facts = InventoryFacts(
        name="n0",
        family=METAX,
        annotations={CARDS_KEY: cards, **maps},
        capacity=shares,
        allocatable=shares,
    )
    assert METAX_FAMILY.inventory is not None
    return METAX_FAMILY.inventory.read(facts)


def node_of(*cards: MetaxCard, **maps: str) -> Node:
    """Return the node with *cards*."""
    found = read(encode_cards(cards), **maps).node
    assert found is not None
    return found


CARDS: Final = st.lists(
    st.builds(
        MetaxCard,
        uuid=st.uuids().map(str),
        model=st.sampled_from(["", "C500", "C550"]),
        shares=st.integers(1, 16),
        memory=st.integers(1, 65536),
        healthy=st.booleans(),
        numa=st.integers(0, 3),
        zone=st.none() | st.integers(1, 2),
    ),
    min_size=1,
    max_size=8,
)


@given(CARDS)
def test_a_gpu_is_what_its_card_says(cards: list[MetaxCard]) -> None:
    """In the order of the cards; it is linked with all others of its zone, never with itself."""
    gpus = node_of(*cards).gpus

    assert [
        (gpu.uuid, gpu.index, gpu.slots, gpu.memory, gpu.healthy, gpu.numa, gpu.family, gpu.mode)
        for gpu in gpus
    ] == [
        (one.uuid, at, one.shares, one.memory, one.healthy, one.numa, METAX, Mode.SGPU)
        for at, one in enumerate(cards)
    ]
    assert [gpu.model for gpu in gpus] == [one.model or UNTOLD_MODEL for one in cards]
    for gpu, one in zip(gpus, cards, strict=True):
        near = {other.uuid for other in cards if other.zone == one.zone and other is not one}
        assert set(gpu.links) == (near if one.zone is not None else set())
        assert len(set(gpu.links)) == len(gpu.links)


BROKEN: Final = '[{"uuid":"GPU-a"}]'
GOOD: Final = encode_cards([card("GPU-b")])


@pytest.mark.parametrize(
    ("cards", "losses", "fresh", "paths"),
    [
        (GOOD, '{"1":0}', True, []),
        (GOOD, "{", True, [LOSSES_KEY]),
        (BROKEN, '{"1":0}', False, [f"{CARDS_KEY}[0]"]),
        (BROKEN, "{", False, [f"{CARDS_KEY}[0]", LOSSES_KEY]),
    ],
)
def test_a_card_that_cannot_be_read_may_be_one_more(
    cards: str, losses: str, *, fresh: bool, paths: list[str]
) -> None:
    """So no pod is refused for lack of it. A map ranks nodes only, and makes no node doubtful."""
    found = read(cards, **{LOSSES_KEY: losses})

    assert found.node is not None
    assert found.node.fresh is fresh
    assert [problem.path for problem in found.problems] == paths


@given(st.dictionaries(st.integers(1, 16), st.integers(0, 99)))
def test_the_order_of_a_map_changes_no_node(numbers: dict[int, int]) -> None:
    """Two Nodes that say the same are equal, so that they count as alike."""
    texts = [
        json.dumps({str(count): numbers[count] for count in order})
        for order in (numbers, reversed(list(numbers)))
    ]
    one, other = (node_of(card("GPU-a"), **{SCORES_KEY: text, LOSSES_KEY: text}) for text in texts)

    assert one == other
    assert one.link_scores == one.link_losses == tuple(sorted(numbers.items()))


def test_a_native_node_is_read_with_its_labels() -> None:
    """Its model and its memory stand nowhere else."""
    shown = {GPU: "2"}
    labels = {"metax-tech.com/gpu.product": "C550", "metax-tech.com/gpu.memory": "32GB"}
    written: Json = {
        "metadata": {"name": "n0", "uid": "u", "labels": {**labels, "other": "x"}},
        "status": {"capacity": shown, "allocatable": shown},
    }

    found = FamilyInventories().node(decode_node(msgspec.json.encode(written)).facts)

    assert found is not None
    assert [(gpu.model, gpu.memory, gpu.links) for gpu in found.gpus] == [("C550", 32768, ())] * 2


def request(*asks: ContainerRequest, mode: Mode | None = Mode.SGPU, share: str = "") -> PodRequest:
    """Return a request for GPUs of the family, of one sharing class."""
    classed = [msgspec.structs.replace(one, share=share) for one in asks]
    made = pod(*classed, mode=mode)
    return msgspec.structs.replace(made, vocabulary=METAX_SGPU.name, family=METAX)


def value(node: Node, asked: PodRequest, policy: FillPolicy = FillPolicy.BINPACK) -> int | None:
    """Return what the links of *node* are worth for *asked*."""
    assert METAX_FAMILY.node_value is not None
    return METAX_FAMILY.node_value(node, asked, policy)


def with_shares(node: Node, *shares: Sequence[str]) -> Node:
    """Return *node* with grants of sharing classes on its GPUs, for each GPU in turn."""

    def held(gpu: Gpu, classes: Sequence[str]) -> Gpu:
        grants = [
            Grant(gpu=gpu.uuid, mode=Mode.SGPU, memory=MiB(1), cores=CorePercent(0), share=one)
            for one in classes
        ]
        return replace(gpu, grants=tuple(grants))

    return replace(node, gpus=tuple(map(held, node.gpus, shares)))


FOUR: Final = node_of(card("a"), card("b"), card("c", zone=2), card("d", zone=2))
BUSY: Final = ("best-effort",)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(request(WHOLE), -10, id="half-of-a-zone"),
        pytest.param(request(ask(cores=WHOLE_GPU, count=2)), 100, id="a-zone"),
        pytest.param(request(WHOLE, WHOLE), 100, id="a-zone-for-two-containers"),
        pytest.param(request(ask(cores=WHOLE_GPU, count=5)), None, id="more-than-there-are"),
        pytest.param(request(SHARE), None, id="a-share"),
        pytest.param(request(WHOLE, SHARE), None, id="one-container-has-a-share"),
        pytest.param(request(WHOLE, share="fixed-share"), -10, id="whole-by-a-policy"),
        pytest.param(request(WHOLE, share="offline:best-effort"), None, id="whole-but-offline"),
    ],
)
def test_links_count_for_pods_that_get_their_gpus_whole(
    asked: PodRequest, expected: int | None
) -> None:
    """A pod with an application class shares its GPU whatever it asks for."""
    assert value(FOUR, asked) == expected


def unhealthy(node: Node, at: int) -> Node:
    """Return *node* with one GPU that is broken."""
    gpus = list(node.gpus)
    gpus[at] = replace(gpus[at], healthy=False)
    return replace(node, gpus=tuple(gpus))


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        pytest.param(FOUR, 100, id="all-free"),
        pytest.param(with_shares(FOUR, BUSY, (), (), ()), 100, id="one-zone-left"),
        pytest.param(with_shares(FOUR, BUSY, (), BUSY, ()), 0, id="one-of-each"),
        pytest.param(with_shares(FOUR, BUSY, BUSY, BUSY, ()), None, id="one-left"),
        pytest.param(unhealthy(with_shares(FOUR, BUSY, (), (), ()), 2), 0, id="the-other-is-sick"),
        pytest.param(node_of(card("a", zone=None), card("b", zone=None)), 0, id="no-links"),
    ],
)
def test_only_idle_and_healthy_gpus_count_for_a_zone(there: Node, expected: int | None) -> None:
    """A busy or broken GPU links nobody."""
    assert value(there, request(ask(cores=WHOLE_GPU, count=2))) == expected


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        pytest.param(FOUR, 0, id="idle"),
        pytest.param(with_shares(FOUR, *[("offline:best-effort",)] * 4), -100, id="offline"),
        pytest.param(
            with_shares(FOUR, ("offline:best-effort",), ("online",), *[BUSY] * 2), -20, id="closed"
        ),
        pytest.param(with_shares(FOUR, *[("online",)] * 4), -20, id="online"),
        pytest.param(
            with_shares(FOUR, *[("offline:best-effort",)] * 3, ("online",)), -20, id="least"
        ),
        pytest.param(
            unhealthy(with_shares(FOUR, *[("offline:best-effort",)] * 3, ()), 3), -100, id="sick"
        ),
    ],
)
def test_an_online_pod_goes_by_whom_it_would_crowd(there: Node, expected: int) -> None:
    """The least of the GPUs that it may join counts; more crowded nodes are worth less."""
    assert value(there, request(SHARE, share="online")) == expected


def test_an_online_pod_finds_nothing_where_it_may_join_nobody() -> None:
    """There is nobody to be in the way of; nor where all GPUs are shared by policies."""
    sick = node_of(replace(card("a"), healthy=False))

    assert value(sick, request(SHARE, share="online")) is None
    assert value(with_shares(FOUR, *[BUSY] * 4), request(SHARE, share="online")) is None


@pytest.mark.parametrize(
    ("counts", "policy", "expected"),
    [
        ((1,), FillPolicy.BINPACK, -5),
        ((1,), FillPolicy.SPREAD, 7),
        ((1, 2), FillPolicy.BINPACK, -9),
        ((1, 2), FillPolicy.SPREAD, 11),
        ((4,), FillPolicy.BINPACK, None),
    ],
)
def test_maps_are_asked_for_all_gpus_of_the_pod(
    counts: tuple[int, ...], policy: FillPolicy, expected: int | None
) -> None:
    """Containers that run together need their GPUs together."""
    maps = {SCORES_KEY: '{"1":7,"2":8,"3":11}', LOSSES_KEY: '{"1":5,"2":6,"3":9}'}
    asked = request(*(ask(cores=WHOLE_GPU, count=count) for count in counts), mode=Mode.NATIVE)

    assert value(node_of(card("a"), **maps), asked, policy) == expected


def bound_pod(asked: PodRequest, held: Mapping[str, str]) -> BoundPod:
    """Return a bound pod whose containers have a GPU each by *held*; one main has none."""
    mode = asked.named_mode or Mode.SGPU
    grants = [
        ContainerGrants(
            name=name,
            grants=(Grant(gpu=gpu, mode=mode, memory=MiB(9), cores=CorePercent(3)),),
        )
        for name, gpu in held.items()
    ]
    return BoundPod(
        assignment=Assignment(node="n0", mode=mode, containers=tuple(grants)),
        request=asked,
        node=FOUR,
        containers=("main", "side"),
        init_containers=("first",),
        vocabularies=(),
        ours=False,
        now=NOW,
    )


def test_the_plugin_finds_init_containers_first() -> None:
    """It counts containers as kubelet starts them, whatever the order of the assignment."""
    asked = request(init(SHARE), SHARE)
    bound = bound_pod(asked, {"side": "GPU-s", "first": "GPU-f"})

    found = METAX_FAMILY.binding_annotations(bound)

    devices = json.loads(found[ALLOCATED_KEY])
    assert [[one["uuid"] for one in part] for part in devices] == [["GPU-f"], [], ["GPU-s"]]
    assert METAX_FAMILY.listed_uuids(found) == (("GPU-f",), (), ("GPU-s",))
    assert found["hami.io/metax-sgpu-devices-allocated"] == (
        "GPU-f,Metax-SGPU,9,3:;;GPU-s,Metax-SGPU,9,3:;"
    )


@pytest.mark.parametrize(("mode", "locks"), [(Mode.SGPU, True), (Mode.NATIVE, False)])
def test_shares_need_the_lock_of_the_node(mode: Mode, *, locks: bool) -> None:
    """MetaX's plugin serves its holder; whole GPUs it chooses by itself."""
    assert METAX_FAMILY.needs_lock is not None
    assert METAX_FAMILY.needs_lock(request(SHARE, mode=mode)) is locks


def test_a_pod_that_names_no_mode_shares() -> None:
    """A whole GPU is asked for by its resource, which names its mode."""
    assert modes_of(request(SHARE, mode=None)) == (Mode.SGPU,)
