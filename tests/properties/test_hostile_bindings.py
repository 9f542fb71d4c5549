"""Whatever is sent as a Binding is answered in the protocol's form, and leaves nothing over."""

import asyncio
import copy
import json
from typing import Any

import orjson
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allocator.config.settings import DEFAULTS
from allocator.volcano.device_list import listed_uuids
from tests.builders.bindings import answered, binding, review, stored
from tests.builders.gpunodes import Json
from tests.builders.model import nodes_of, snapshot
from tests.builders.pods import MEMORY, NUMBER, admitted, container, pod, received
from tests.fakes.ledger_server import LedgerServer
from tests.harness.records import KeptRecords
from webhook.admission.context import AdmissionContext
from webhook.binding.binding_server import BindingHandler
from webhook.review.admission_review import NotAReviewError

AROUND = AdmissionContext(settings=DEFAULTS, snapshot=snapshot(nodes_of(8)))
ASKING = admitted(received(pod(container(limits={NUMBER: 1, MEMORY: 3000}))), AROUND)
GOOD: Json = orjson.loads(
    review(binding(annotations={"volcano.sh/vgpu-ids-new": "x"}, uid="6a7d-1"))
)
PLACES = (
    ("kind",),
    ("request",),
    ("request", "uid"),
    ("request", "kind"),
    ("request", "name"),
    ("request", "namespace"),
    ("request", "dryRun"),
    ("request", "userInfo"),
    ("request", "object"),
    ("request", "object", "metadata"),
    ("request", "object", "metadata", "name"),
    ("request", "object", "metadata", "uid"),
    ("request", "object", "metadata", "annotations"),
    ("request", "object", "target"),
    ("request", "object", "target", "name"),
)
names = st.sampled_from(["p", "n0", "..", "a/b", "", "p?x=1", "P", "%2e", "n0\n"])
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def answer(body: bytes) -> tuple[Json | None, int]:
    """Return the response, if the body was a review at all, and how many entries there are."""
    server = LedgerServer(pods={"p": stored(ASKING)})
    binder = BindingHandler(
        calls=server,
        context_of=lambda _: AROUND,
        nodes_with_entry=lambda _: frozenset(),
        remember=KeptRecords().remember,
    )
    try:
        response = answered(asyncio.run(binder.bind(body)))
    except NotAReviewError:
        return None, len(server.uids)
    return response, len(server.uids)


@settings(max_examples=250)
@example([(("request", "object", "metadata", "uid"), "%d")])
@example([(("request", "object", "metadata", "name"), "p%s")])
@given(st.lists(st.tuples(st.sampled_from(PLACES), values), min_size=1, max_size=3))
def test_a_crooked_review_is_answered(changes: list[tuple[tuple[str, ...], Any]]) -> None:
    """It is allowed with an entry, or refused or rejected without one."""
    found = copy.deepcopy(GOOD)
    for place, value in changes:
        at: Any = found
        for step in place[:-1]:
            at = at.get(step) if isinstance(at, dict) else None
        if isinstance(at, dict):
            at[place[-1]] = value

    response, entries = answer(json.dumps(found).encode())

    dry = isinstance(found.get("request"), dict) and bool(found["request"].get("dryRun"))
    promised = response is not None and response["allowed"] and not dry
    assert entries == (1 if promised else 0)
    if response is not None and not response["allowed"]:
        assert "%" not in response["status"]["message"]  # schedulers take it for a format


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_are_rejected(body: bytes) -> None:
    """What is no review leaves nothing."""
    assert answer(body) == (None, 0)


@settings(max_examples=300)
@given(st.text(alphabet="GPU-a1,;:[]NVIDIA0 ", max_size=60))
def test_any_device_list_is_read(text: str) -> None:
    """A scheduler's list gives names of GPUs or nothing, and nothing else comes of it."""
    assert all(uuid and set(uuid) <= set("GPUaNVID10-") for uuid in listed_uuids(text))
