"""Folding nodes into a snapshot keeps what CREATE decides on."""

import copy
import dataclasses
import itertools

from allocator.catalog.boards import MODELS, Model
from allocator.model.gpu import Gpu, Node
from allocator.model.request import Mode
from allocator.model.units import MiB
from allocator.placement.fleet import offers_of, shape_of, snapshot_of

A100, T4 = MODELS["NVIDIA A100-SXM4-40GB"], MODELS["Tesla T4"]


def a100(index: int) -> Gpu:
    return gpu(A100, Mode.MIG, index)


def t4(index: int) -> Gpu:
    return gpu(T4, Mode.HAMI_CORE, index)


def gpu(model: Model, mode: Mode, index: int) -> Gpu:
    return Gpu(
        uuid=f"GPU-{index}",
        index=index,
        model=model.name,
        memory=model.memory,
        mode=mode,
        slots=10,
        board=model.board,
    )


def node(name: str, *gpus: Gpu, fresh: bool = True) -> Node:
    return Node(name=name, gpus=gpus, fresh=fresh)


def test_offers_count_the_best_node_of_each_kind() -> None:
    """Two of a kind on different nodes never serve one pod."""
    nodes = [node("a", a100(0), a100(1)), node("b", a100(0), t4(1)), node("c", t4(0))]

    snapshot = snapshot_of(nodes, version="7", complete=True)

    assert {offer.model: count for offer, count in snapshot.offers.items()} == {
        A100.name: 2,
        T4.name: 1,
    }
    assert (snapshot.version, list(snapshot.nodes)) == ("7", ["a", "b", "c"])


def test_a_broken_gpu_exists() -> None:
    """It may be repaired, so a pod that needs it is not one that can never run."""
    broken = dataclasses.replace(t4(0), healthy=False)

    snapshot = snapshot_of([node("a", broken)], version="", complete=True)

    assert list(snapshot.offers.values()) == [1]


def test_equal_boards_are_one_kind() -> None:
    """Inventory that arrived twice describes the same GPUs."""
    copied = copy.deepcopy(a100(1))

    snapshot = snapshot_of([node("a", a100(0), copied)], version="", complete=True)

    assert list(snapshot.offers.values()) == [2]
    assert not snapshot.mixed


def test_several_kinds_in_one_mode_are_mixed() -> None:
    """Kinds of different modes are not: a pod's mode separates them."""
    large = dataclasses.replace(t4(1), memory=MiB(16384))

    assert snapshot_of([node("a", t4(0), large)], version="", complete=True).mixed
    assert not snapshot_of([node("a", t4(0), a100(1))], version="", complete=True).mixed


def test_a_stale_node_leaves_the_snapshot_incomplete() -> None:
    """Then nothing may be refused for want of capacity."""
    stale = [node("a", t4(0)), node("b", t4(0), fresh=False)]

    assert not snapshot_of(stale, version="", complete=True).complete
    assert not snapshot_of(stale[:1], version="", complete=False).complete
    assert snapshot_of(stale[:1], version="", complete=True).complete


def test_kinds_are_in_one_order_whatever_nodes_were_heard_of_first() -> None:
    """Also where a node reports another board under the name of an honest one."""
    assert A100.board is not None
    odd = dataclasses.replace(a100(0), board=dataclasses.replace(A100.board, slots=7))
    shapes = [shape_of([one]) for one in (a100(0), odd, t4(0))]

    orders = {tuple(offers_of(order)) for order in itertools.permutations(shapes)}

    assert len(orders) == 1
    assert len(orders.pop()) == 3
