"""Whether links count for the node of a pod: ``metax-tech.com/sgpu-topology-aware``.

HAMi's scheduler reads it with Go's strconv.ParseBool, for shares of whole GPUs only, and ranks
nodes by it; which GPUs of the node are taken does not depend on it.
"""

from dataclasses import replace

import msgspec
import pytest

from allocator.extender.index import Index, IndexBuilder
from allocator.families.metax import node_value
from allocator.model.request import FillPolicy, PodRequest
from tests.builders.pods import Json, container, pod
from tests.unit.allocator.families.test_metax import (
    CLASS,
    SGPU,
    VCORE,
    Cluster,
    card,
    given,
    machine,
    node_of,
    request_of,
    scored,
)
from tests.unit.allocator.families.test_metax__links import ONLINE, shared, whole, zoned

KEY = "metax-tech.com/sgpu-topology-aware"
TRUE = ("1", "t", "T", "TRUE", "true", "True")
FALSE = ("0", "f", "F", "FALSE", "false", "False")
LINKED = machine(*(card(f"GPU-{n}") for n in range(4)))
SINGLE = machine(*(card(f"GPU-{n}", zone=n + 1) for n in range(4)))


def index() -> Index:
    """Return two idle nodes: the GPUs of one are linked, those of the other are not."""
    builder = IndexBuilder()
    builder.put(replace(node_of(LINKED), name="linked"))
    builder.put(replace(node_of(SINGLE), name="single"))
    return builder.index(version="1", complete=True)


def scores(limits: Json, **notes: str) -> dict[str, int]:
    """Return what kube-scheduler hears of both nodes for a pod; 0 stands for silence."""
    asked = request_of(limits, notes)
    assert isinstance(asked, PodRequest), asked
    return {"linked": 0, "single": 0} | scored(index(), asked, FillPolicy.SPREAD)


@pytest.mark.parametrize("text", [None, *TRUE])
def test_links_decide_between_nodes_that_are_equal_otherwise(text: str | None) -> None:
    """Where the pod says that they should count, and where it says nothing."""
    found = scores({SGPU: 2}, **({} if text is None else {KEY: text}))

    assert found["linked"] > found["single"]


@pytest.mark.parametrize("text", FALSE)
def test_links_decide_nothing_for_a_pod_that_does_not_want_them(text: str) -> None:
    """Its nodes are ranked by their load alone."""
    found = scores({SGPU: 2}, **{KEY: text})

    assert found["linked"] == found["single"] > 0


def test_a_fuller_node_wins_by_its_load_alone() -> None:
    """Under binpack, for a pod without links; with them the node with better links wins."""
    builder = IndexBuilder()
    builder.put(replace(node_of(LINKED), name="linked"))
    busy = Cluster(SINGLE)
    busy.bind(pod(container(limits={SGPU: 1, VCORE: 10})))
    builder.put(replace(busy.ledger.node, name="single"))
    asked = {text: request_of({SGPU: 2}, {KEY: text}) for text in ("true", "false")}

    best = {}
    for text, request in asked.items():
        assert isinstance(request, PodRequest)
        found = scored(builder.index(version="1", complete=True), request, FillPolicy.BINPACK)
        best[text] = max(found, key=lambda name: found[name])

    assert best == {"true": "linked", "false": "single"}


def test_an_online_pod_still_looks_whom_it_would_hold_back() -> None:
    """That is no link, and HAMi does not ask this annotation for it."""
    node = zoned(2)
    online = shared(*whole(1).containers, share=ONLINE)
    apart = msgspec.structs.replace(online, ignore_links=True)

    assert node_value(node, apart, FillPolicy.BINPACK) == node_value(
        node, online, FillPolicy.BINPACK
    )
    assert node_value(node, online, FillPolicy.BINPACK) is not None
    assert (
        node_value(node, msgspec.structs.replace(whole(2), ignore_links=True), FillPolicy.BINPACK)
        is None
    )


@pytest.mark.parametrize("text", ["true", "false"])
def test_within_the_node_linked_gpus_are_taken_all_the_same(text: str) -> None:
    """As in HAMi, whose order of GPUs does not ask either."""
    cards = [card("GPU-z", zone=7), card("GPU-a"), card("GPU-b"), card("GPU-y", zone=8)]

    found = Cluster(machine(*cards)).bind(pod(container(limits={SGPU: 2}), annotations={KEY: text}))

    assert {device["uuid"] for device in given(found)[0]} == {"GPU-a", "GPU-b"}


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "yes", "no", "on", "TrUe", " true", "false ", "2", "-1", "00", "null", "\x00"),
        *(
            "fals\u0435",
            "false,true",
            "\x1b[31mfalse",
            "false\n",
            "x" * 10_000,
            "%s%n",
            "<b>false</b>",
        ),
    ],
)
def test_what_is_no_truth_value_is_refused(text: str) -> None:
    """With the key, what is accepted, and no character that a terminal obeys."""
    found = request_of({SGPU: 2}, {KEY: text})

    assert isinstance(found, str), found
    assert KEY in found
    assert "true or false" in found
    assert found.isprintable()
    assert len(found) < 400


def test_it_goes_with_a_class() -> None:
    """Nothing of the class is lost."""
    asked = request_of({SGPU: 1}, {KEY: "false", CLASS: "offline"})

    assert isinstance(asked, PodRequest)
    assert asked.ignore_links
    assert asked.containers[0].share.startswith("offline")
