"""Whatever is sent to the extender is answered in the protocol's form, and nothing stays of it."""

import asyncio
import copy
import gc
import json
import random
import sys
from collections.abc import MutableMapping
from typing import Any, Final, Unpack

import orjson
import pytest
from starlette.applications import Starlette

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.config.settings import Settings
from allocator.extender.filter import FilterContext
from allocator.extender.index import IndexBuilder
from allocator.model.request import Mode
from allocator.placement.choose import PlacementPolicy
from kube.client import CallOptions
from kube.errors import ApiError
from tests.builders.model import A30, nodes_of
from tests.builders.pods import MEMORY, NUMBER, container, pod, received
from tests.fakes.api_client import FakeApiClient
from webhook.binding.scheduler_pod import unbound_pod
from webhook.serve.extender_routes import app
from webhook.serve.extender_verbs import Extender

Json = dict[str, Any]

PAYLOADS: Final = 10_000
GROWTH: Final = 2_000  # blocks of memory that half as many may leave: less than one for each
CIRCUMSTANCES: Final = FilterContext(policy=PlacementPolicy())
POD: Final = received(pod(container(limits={NUMBER: 1, MEMORY: 6000})))
NAMES: Final = ["n0", "n1", "gone"]
GOOD: Final[dict[str, Json]] = {
    "filter": {"Pod": POD, "Nodes": None, "NodeNames": NAMES},
    "prioritize": {
        "Pod": POD,
        "Nodes": {"metadata": {}, "items": [{"metadata": {"name": name}} for name in NAMES]},
        "NodeNames": None,
    },
    "preempt": {
        "Pod": POD,
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": {"n0": {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}},
    },
    "bind": {"PodName": "p", "PodNamespace": "team-a", "PodUID": "u", "Node": "n0"},
}
KEYS: Final = {
    "filter": {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"},
    "preempt": {"NodeNameToMetaVictims"},
    "bind": {"Error"},
}
ODD: Final[list[Any]] = [
    None,
    True,
    -1,
    0,
    2**70,
    1.5,
    "",
    "../x",
    'n0","Score":10},{"Host":"n1',
    "\x00",
    "x" * 5000,
    [],
    {},
    [None],
    {"": None},
    [[[[[[]]]]]],
]


class NoServer(FakeApiClient):
    """Refuses every write."""

    async def create(self, path: str, body: bytes, **_: Unpack[CallOptions]) -> bytes:
        assert path == "/api/v1/namespaces/team-a/pods/p/binding" or "/.." not in path
        orjson.loads(body)
        raise ApiError(404, "NotFound", "no such pod", place=path)


def extender() -> Extender:
    indexer = IndexBuilder()
    for name in ("n0", "n1"):
        indexer.put(nodes_of(2, A30, mode=Mode.MIG, name=name))
    index = indexer.index(version="1", complete=True)

    return Extender(
        index=lambda: index,
        read_pod=lambda raw: unbound_pod(raw, VOCABULARIES),
        settings=lambda: Settings(extender_bind=True),
        context_of=lambda _: CIRCUMSTANCES,
        writer=NoServer(),
    )


def places(found: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the path of everything in a document."""
    if isinstance(found, dict):
        return [path, *(p for key, value in found.items() for p in places(value, (*path, key)))]
    if isinstance(found, list):
        return [path, *(p for i, value in enumerate(found) for p in places(value, (*path, i)))]
    return [path]


def crooked(good: Json, rng: random.Random) -> bytes:
    """Return *good* with some of it replaced, removed, or cut off."""
    found = copy.deepcopy(good)
    for _ in range(rng.randint(1, 3)):
        *way, last = rng.choice(places(found)[1:])
        at: Any = found
        for step in way:
            at = at[step]
        if rng.random() < 0.2:
            del at[last]
        else:
            at[last] = copy.deepcopy(rng.choice(ODD))
    body = json.dumps(found).encode()
    if rng.random() < 0.1:
        at = rng.randrange(len(body) + 1)
        body = body[:at] + rng.randbytes(rng.randint(0, 3)) + body[at + rng.randint(0, 4) :]
    return body


async def posted(
    application: Starlette, path: str, body: bytes, *, method: str = "POST"
) -> tuple[int, bytes]:
    parts = [body]
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": parts.pop() if parts else b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
    await application(scope, receive, send)
    return sent[0]["status"], b"".join(m.get("body", b"") for m in sent[1:])


@pytest.mark.parametrize("verb", GOOD)
def test_ten_thousand_bad_payloads(verb: str) -> None:
    """Each is answered as the protocol has it, or refused as no question; nothing is left over."""
    application, rng = app(extender()), random.Random(verb)  # noqa: S311 -- payloads, no secrets

    async def some(count: int) -> set[int]:
        statuses = set()
        for _ in range(count):
            status, answer = await posted(
                application, f"/extender/{verb}", crooked(GOOD[verb], rng)
            )
            statuses.add(status)
            if status == 200:
                well_formed(verb, answer)
        return statuses

    statuses = asyncio.run(some(PAYLOADS // 2))
    before = blocks()
    statuses |= asyncio.run(some(PAYLOADS // 2))

    assert statuses == {200, 400}
    assert blocks() - before < GROWTH


def blocks() -> int:
    gc.collect()
    return sys.getallocatedblocks()


def well_formed(verb: str, text: bytes) -> None:
    answer: Any = orjson.loads(text)
    if verb == "prioritize":
        assert all(found.keys() == {"Host", "Score"} for found in answer)
        assert all(0 < found["Score"] <= 10 for found in answer)
    else:
        assert answer.keys() == KEYS[verb]


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        pytest.param("/extender/filter", "GET", 405, id="method"),
        pytest.param("/extender/steal", "POST", 404, id="verb"),
        pytest.param("/", "POST", 404, id="nothing"),
        pytest.param("/any/prefix/filter", "POST", 200, id="prefix"),
    ],
)
def test_paths(path: str, method: str, status: int) -> None:
    """Only the last part of a path counts, and only POST asks."""
    body = orjson.dumps(GOOD["filter"])

    assert asyncio.run(posted(app(extender()), path, body, method=method))[0] == status


def test_a_body_has_bounds() -> None:
    """What is larger than thousands of nodes is refused before it is read."""
    big = b" " * (33 << 20)

    assert asyncio.run(posted(app(extender()), "/extender/filter", big))[0] == 413
