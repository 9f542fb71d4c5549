"""Answers on the wire: field names and nulls as kube-scheduler reads them."""

import asyncio
import json
from dataclasses import replace
from typing import Any, Unpack

import orjson
import pytest

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.config.settings import Settings
from allocator.extender.filter import FilterContext
from allocator.extender.index import IndexBuilder
from allocator.placement.choose import PlacementPolicy
from kube.client import CallOptions
from kube.errors import ApiError
from tests.builders.model import T4, gpu, node, soft_grant
from tests.builders.pods import MEMORY, NUMBER, container, pod, received
from tests.fakes.api_client import FakeApiClient
from webhook.binding.scheduler_pod import unbound_pod
from webhook.serve.extender_verbs import BadQuestionError, Extender

Json = dict[str, Any]

POD: Json = received(pod(container(limits={NUMBER: 1, MEMORY: 3000})))
PLAIN: Json = received(pod(container()))
WHOLE: list[Json] = [
    {"metadata": {"name": name, "labels": {"kept": "as it came"}}} for name in ("roomy", "full")
]
BIND = {"PodName": "p", "PodNamespace": "team-a", "PodUID": "u", "Node": "n"}


class Writer(FakeApiClient):
    def __init__(self, error: ApiError | None = None) -> None:
        self.posted: list[tuple[str, Json]] = []
        self._error = error

    async def create(self, path: str, body: bytes, **_: Unpack[CallOptions]) -> bytes:
        self.posted.append((path, json.loads(body)))
        if self._error is not None:
            raise self._error
        return b"{}"


def extender(writer: Writer | None = None, *, bind: bool = True) -> Extender:
    indexer = IndexBuilder()
    indexer.put(node("roomy", gpu(T4)))
    indexer.put(node("full", gpu(T4, grants=[soft_grant(15000)])))
    index = indexer.index(version="1", complete=True)
    return Extender(
        index=lambda: index,
        read_pod=lambda raw: unbound_pod(raw, VOCABULARIES),
        settings=lambda: Settings(extender_bind=bind),
        context_of=lambda _: FilterContext(policy=PlacementPolicy()),
        writer=writer,
    )


def filtered(found: Json, **more: object) -> Json:
    question = {"Pod": found, "Nodes": None, "NodeNames": None, **more}
    answer: Json = json.loads(extender().filter(orjson.dumps(question)))
    return answer


def test_names_are_answered_by_names() -> None:
    """All keys are there, nodes that fit in one list and the others in two maps."""
    assert filtered(POD, NodeNames=["roomy", "full", "gone"]) == {
        "Nodes": None,
        "NodeNames": ["roomy"],
        "FailedNodes": {"full": "insufficient GPU memory"},
        "FailedAndUnresolvableNodes": {"gone": "no GPU inventory"},
        "Error": "",
    }


def test_a_pod_with_resource_claims_is_told_before_a_node_is_allocated() -> None:
    """Its claim would stay allocated there, and it would be bound to that node again and again."""
    pinned = received(
        pod(
            container(limits={NUMBER: 1, MEMORY: 3000}),
            resourceClaims=[{"name": "nic", "resourceClaimName": "nic-0"}],
        )
    )

    answer = filtered(pinned, NodeNames=["full", "roomy"])

    assert answer["NodeNames"] == ["roomy"]
    assert answer["FailedNodes"] == {"full": "insufficient GPU memory"}


@pytest.mark.parametrize("names", [pytest.param(None, id="null"), pytest.param([], id="empty")])
def test_no_names_are_an_empty_list(names: list[str] | None) -> None:
    """The scheduler takes null for "no nodes", without a word on any."""
    assert filtered(POD, NodeNames=names)["NodeNames"] == []


def test_whole_nodes_are_given_back_as_they_came() -> None:
    """Their fields are not ours to drop."""
    answer = filtered(POD, Nodes={"metadata": {}, "items": WHOLE})

    assert answer["Nodes"] == {"items": WHOLE[:1]}
    assert answer["NodeNames"] is None


def test_a_pod_that_asks_for_nothing_passes_everywhere() -> None:
    """Also on nodes that nobody knows."""
    assert filtered(PLAIN, NodeNames=["full", "gone"])["NodeNames"] == ["full", "gone"]


@pytest.mark.parametrize(
    "question",
    [
        pytest.param({"NodeNames": ["roomy", 'odd"name', "full"]}, id="names"),
        pytest.param({"Nodes": {"items": WHOLE}}, id="nodes"),
        pytest.param({"NodeNames": []}, id="none"),
    ],
)
def test_nodes_that_score_are_listed(question: Json) -> None:
    """Each of them that was asked about; schedulers add nothing for those that are not."""
    names = question.get("NodeNames", ["roomy", "full"])

    answer = json.loads(extender().prioritize(orjson.dumps({"Pod": POD, **question})))

    assert [found["Host"] for found in answer] == [name for name in names if name == "full"]
    assert all(found.keys() == {"Host", "Score"} and found["Score"] > 0 for found in answer)


def test_a_bind_is_posted_with_the_uid() -> None:
    """The uid is a precondition: a pod recreated under the same name is not bound."""
    writer = Writer()

    answer = asyncio.run(extender(writer).bind(orjson.dumps(BIND)))

    assert json.loads(answer) == {"Error": ""}
    ((path, body),) = writer.posted
    assert path == "/api/v1/namespaces/team-a/pods/p/binding"
    assert body["metadata"] == {"name": "p", "uid": "u"}
    assert body["target"]["name"] == "n"


def test_a_refused_bind_says_why() -> None:
    """What our hook says of it is what the scheduler shows."""
    writer = Writer(ApiError(409, "Conflict", 'node "n": insufficient GPU memory', place="POST"))

    answer = json.loads(asyncio.run(extender(writer).bind(orjson.dumps(BIND))))

    assert 'node "n": insufficient GPU memory' in answer["Error"]


@pytest.mark.parametrize(
    ("writer", "bind"),
    [pytest.param(Writer(), False, id="setting"), pytest.param(None, True, id="port")],
)
def test_a_bind_must_be_enabled(writer: Writer | None, *, bind: bool) -> None:
    """By the setting, on a port that may."""
    answer = json.loads(asyncio.run(extender(writer, bind=bind).bind(orjson.dumps(BIND))))

    assert "extenderBind" in answer["Error"]
    assert writer is None or writer.posted == []


def test_a_name_that_is_a_path_is_refused() -> None:
    """It would reach another object than the one that it names."""
    with pytest.raises(BadQuestionError):
        asyncio.run(extender(Writer()).bind(orjson.dumps(BIND | {"PodName": "../x"})))


def test_who_finds_no_node_is_looked_after() -> None:
    """With what was asked and found, but not where some node fits."""
    noted: list[object] = []
    found = replace(extender(), note_unschedulable=noted.append)

    for names in (["full"], ["full", "roomy"], []):
        found.filter(orjson.dumps({"Pod": POD, "NodeNames": names}))

    assert len(noted) == 1
