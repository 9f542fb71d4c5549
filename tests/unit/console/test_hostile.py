"""Whatever stands in an object, a view of it is shown or the object is told to be unreadable."""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from console.core.gpurows import gpu_listing
from console.core.layout import drawn
from console.core.listing import Listing, Output, printed
from console.core.noderows import node_listing
from console.core.podrows import pod_listing, pod_rows
from console.core.site import Site
from console.core.why import Facts, why
from console.core.whydocument import why_document
from console.core.whytext import lines
from tests.gpunodes import gpu_node
from tests.pods import MEMORY, NUMBER, Json, container, pod
from tests.unit.console.sites import NOW, hard, held_hard, held_soft, machine, site, soft, stored

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


GOOD = [gpu_node(hard(), held_hard()), gpu_node(soft(), held_soft())]
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


def shown(found: Site) -> Iterator[Listing]:
    yield node_listing(found, wide=True)
    yield gpu_listing(found, wide=True)
    rows = pod_rows(found, [WAITS], gone=True, namespace=None)
    yield pod_listing(rows, NOW, wide=True, spaces=True)


@settings(max_examples=150, deadline=None)
@given(documents=odd())
def test_every_view_of_odd_ledgers_can_be_shown(documents: list[Json]) -> None:
    """Lists, drawings and explanations; a line never holds what a terminal would obey."""
    found = site(documents, [machine("gpu-a"), machine("gpu-b")])

    texts = [line for listing in shown(found) for line in printed(listing, Output.TABLE)]
    assert all(list(printed(listing, Output.JSON)) for listing in shown(found))
    told = why(Facts(pod=WAITS, site=found))
    texts += ["".join(span.text for span in line) for line in (*drawn(found), *lines(told))]
    assert why_document(told)
    assert all(text.isprintable() for text in texts)
    assert len(found.ledgers) + len(found.odd) == len(documents)
