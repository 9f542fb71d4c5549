"""Whatever stands in an object, a view of it is shown or the object is told to be unreadable."""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.report.terminal_lines import plain_text, printed_lines
from console.cluster.snapshot import ClusterView, account_of
from console.explain.why import PodFacts, why
from console.explain.why_json import why_document
from console.explain.why_text import lines
from console.get.gpu_rows import gpu_listing
from console.get.layout import layout_lines
from console.get.listing import Listing, OutputFormat, listing_lines
from console.get.node_rows import node_listing
from console.get.pod_rows import pod_listing, pod_rows
from tests.builders.gpunodes import gpu_node
from tests.builders.pods import MEMORY, NUMBER, Json, container, pod
from tests.unit.console.sites import (
    NOW,
    hard,
    held_hard,
    held_soft,
    machine,
    site,
    soft,
    stored,
    with_driver_report,
)

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 2**40)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["mig", "hami-core", "memory-only", "1g.5gb", "9g.1gb", "GPU-gpu-a-0"])
)
VALUES = LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(st.text(max_size=3), LEAVES)
WAITS = stored("big-0", pod(container(limits={NUMBER: 1, MEMORY: 9000})))


def places(node: Any, *path: str | int) -> Iterator[tuple[str | int, ...]]:  # noqa: ANN401 -- JSON
    """Yield the path of everything in a document."""
    pairs = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in pairs:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, *path, key)


GOOD = [with_driver_report(gpu_node(hard(), held_hard())), gpu_node(soft(), held_soft())]
NAMES = ["gpu-a", "gpu-b"]
PLACES = [(number, *path) for number, one in enumerate(GOOD) for path in places(one)]


@st.composite
def odd(draw: st.DrawFn) -> list[Json]:
    """Draw two GPUNodes with nonsense in up to three places; their names stay."""
    found = copy.deepcopy(GOOD)
    for path in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=3)):
        *steps, last = path
        node: Any = found
        for step in steps:
            there = isinstance(node, dict) or (isinstance(node, list) and isinstance(step, int))
            node = node[step] if there and _has(node, step) else None
        if isinstance(node, dict) and path[1:] != ("metadata", "name") and len(path) > 2:
            node[last] = draw(VALUES)
    return found


def _has(node: Any, step: str | int) -> bool:  # noqa: ANN401 -- JSON
    return step in node if isinstance(node, dict) else isinstance(step, int) and step < len(node)


def shown(found: ClusterView) -> Iterator[Listing]:
    yield node_listing(found)
    yield gpu_listing(found)
    rows = pod_rows(found, [WAITS], gone=True, namespace=None)
    yield pod_listing(rows, NOW, spaces=True)


@settings(max_examples=150)
@given(documents=odd())
def test_every_view_of_odd_ledgers_can_be_shown(documents: list[Json]) -> None:
    """Lists, drawings and explanations; a line never holds what a terminal would obey."""
    found = site(documents, [machine("gpu-a"), machine("gpu-b")])

    plain = (OutputFormat.TABLE, OutputFormat.WIDE, OutputFormat.CSV)
    texts = [
        line for one in shown(found) for output in plain for line in listing_lines(one, output)
    ]
    assert all(list(listing_lines(listing, OutputFormat.JSON)) for listing in shown(found))
    answer = why(PodFacts(pod=WAITS, site=found))
    texts += map(plain_text, printed_lines((*layout_lines(found), *lines(answer))))
    assert why_document(answer)
    assert all(text.isprintable() for text in texts)
    assert len(found.ledgers) + len(found.unreadable) == len(documents)


@given(
    status=st.dictionaries(
        st.sampled_from(["driver", "exposed", "gpus"]),
        VALUES | st.lists(st.dictionaries(st.sampled_from(["uuid", "reason"]), VALUES)),
    )
    | VALUES
)
def test_an_account_is_read_as_far_as_it_can_be(status: object) -> None:
    """What is no text is left out, whatever stands in its place."""
    account = account_of({"status": status})

    assert isinstance(account.driver, str)
    assert isinstance(account.exposed, str)
    assert all(isinstance(text, str) and text for pair in account.reasons.items() for text in pair)


@settings(max_examples=100)
@given(
    spec=VALUES | st.dictionaries(st.just("unschedulable"), VALUES),
    status=VALUES | st.dictionaries(st.sampled_from(["conditions", "nodeInfo"]), VALUES),
)
def test_a_node_that_cannot_be_read_takes_no_pod(spec: object, status: object) -> None:
    """It is told, and the others are shown as ever."""
    odd = {**machine("gpu-a"), "spec": spec, "status": status}

    found = site(GOOD, [odd, machine("gpu-b")])

    assert found.machines is not None
    assert list(found.machines) == ["gpu-a", "gpu-b"]
    assert not found.closed_reason("gpu-b")
    assert all("gpu-a" in text for text in found.unreadable)
    assert bool(found.unreadable) <= bool(found.closed_reason("gpu-a"))


def test_a_node_may_have_nothing_in_it() -> None:
    """Null is what an object without a spec and a status has."""
    found = site(GOOD, [machine(name) | {"spec": None, "status": None} for name in NAMES])

    assert not found.unreadable
    assert not any(map(found.closed_reason, found.ledgers))


def test_a_fleet_of_thousands_is_listed() -> None:
    """Every node has its row and its drawing, none of them twice."""
    names = [f"n{number}" for number in range(5000)]
    found = site([named(GOOD[0], name) for name in names], map(machine, names))

    assert len(node_listing(found).rows) == len(names)
    assert len(gpu_listing(found).rows) == 3 * len(names)
    drawn = map(plain_text, printed_lines(layout_lines(found)))
    assert sum(line.partition(" ")[0] in found.ledgers for line in drawn) == len(names)


def named(document: Json, name: str) -> Json:
    return {**document, "metadata": {**document["metadata"], "name": name}}
