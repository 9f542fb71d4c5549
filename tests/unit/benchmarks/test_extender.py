"""The extender benchmark: what it asks about, and what it takes for an answer."""

import json

import orjson
import pytest

from allocator.model.request import Mode
from allocator.placement.fit import headroom
from benchmarks.extender import POD, AnswerWaits, bars
from benchmarks.extender_server import (
    BUSY,
    GPUS,
    ChangingFleet,
    FleetKind,
    echo,
    fleet,
    names,
    our_extender,
)

SIZE = 60
BODY = orjson.dumps({"Pod": POD, "Nodes": None, "NodeNames": names(SIZE)})


def test_six_of_eight_gpus_are_busy_and_none_is_overdrawn() -> None:
    """Both modes occur, and few nodes are alike."""
    found = list(fleet(SIZE))

    assert [len(node.gpus) for node in found] == [GPUS] * SIZE
    assert {sum(bool(gpu.grants) for gpu in node.gpus) for node in found} == {BUSY}
    assert {gpu.mode for node in found for gpu in node.gpus} == {Mode.MIG, Mode.HAMI_CORE}
    assert all(headroom(gpu).memory >= 0 for node in found for gpu in node.gpus)
    assert (
        len({id(standing) for standing in ChangingFleet(found).index().node_classes.values()})
        > SIZE // 2
    )


def test_a_third_of_a_mixed_fleet_has_metax_gpus_which_serve_no_other_pods() -> None:
    """And none of them is overdrawn; the nodes of NVIDIA's are what they are without them."""
    found = list(fleet(SIZE, FleetKind.MIXED))
    metax = [node.name for node in found if {gpu.family for gpu in node.gpus} == {"metax"}]

    filtered = json.loads(our_extender(ChangingFleet(found)).filter(BODY))

    assert len(metax) == SIZE // 3
    assert filtered["FailedAndUnresolvableNodes"].keys() == set(metax)
    assert len(filtered["NodeNames"]) >= SIZE // 2
    assert all(headroom(gpu).memory >= 0 for node in found for gpu in node.gpus)


def test_a_turn_changes_what_is_answered_on() -> None:
    """The next question is about another index, of as many nodes."""
    changing = ChangingFleet(list(fleet(SIZE)))
    before = changing.index()

    changing.change_node()

    after = changing.index()
    assert after.snapshot.version != before.snapshot.version
    assert after.snapshot.nodes != before.snapshot.nodes
    assert len(after.node_infos) == len(before.node_infos) == SIZE


def test_both_servers_answer_about_all_names() -> None:
    """Ours says of each whether it fits and how well; the echo says nothing but the names."""
    extender = our_extender(ChangingFleet(list(fleet(SIZE))))

    filtered = json.loads(extender.filter(BODY))
    scored = json.loads(extender.prioritize(BODY))
    status, echoed = echo(BODY)

    assert set(filtered["NodeNames"]) | filtered["FailedNodes"].keys() == set(names(SIZE))
    assert {found["Host"] for found in scored} == set(names(SIZE))
    assert (status, json.loads(echoed)["NodeNames"]) == (200, names(SIZE))


@pytest.mark.parametrize(
    ("ours_ms", "holds"),
    [
        pytest.param((7.0,) * 200, (True, True), id="in-time"),
        pytest.param((16.0,) * 200, (False, False), id="late"),
    ],
)
def test_bars_are_for_5000_nodes(ours_ms: tuple[float, ...], holds: tuple[bool, bool]) -> None:
    """Both questions together are held against one echo."""
    echo_ms = (1.0,) * 200
    other = AnswerWaits(nodes=500, echo=echo_ms, ours=(1000.0,) * 200)
    judged = AnswerWaits(nodes=5000, echo=echo_ms, ours=ours_ms)

    p50, p99 = bars([other, judged])

    assert (p50.holds, p99.holds) == holds
