"""A promise that nobody can read shuts its node, is told, and goes as any other does."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Unpack

import orjson
import pytest

from allocator.cluster.pods import Pods
from allocator.controllers.reclaim import ReclaimController
from allocator.ledger.drift import DriftKind, find_drifts
from allocator.ledger.ledger import parse_ledger, parse_ledger_text
from allocator.ledger.reclaim import UNBOUND_AGE
from allocator.ledger.schema import MOST_ENTRIES
from allocator.request.pod_summary import PodSummary
from kube.client import CallOptions
from kube.clock import Clock
from kube.errors import NotFoundError
from tests.builders.gpunodes import NOON, Json, entry, gpu_node, patched
from tests.builders.model import nodes_of, soft_grant
from tests.builders.summaries import replace_pods
from tests.fakes.api_client import FakeApiClient
from tests.harness.late_commits import bound, scene

NODE = nodes_of(1)
SHARE = soft_grant(10, gpu="GPU-n0-0")
OTHER = entry("b", SHARE)
HERE = PodSummary(uid="b", node="n0", deleting=False, over=False)
POD: Json = {"namespace": "team-a", "name": "a", "uid": "a"}
MACHINE: Json = {"metadata": {"name": "n0"}, "status": {"nodeInfo": {"bootID": "boot-1"}}}


def crowded(**change: object) -> Json:
    """Write an entry of more containers than are read."""
    containers = [{"name": f"c{i}", "devices": []} for i in range(65)]
    since = NOON.isoformat()
    return {"pod": POD, "since": since, "containers": containers} | change


def shut(*elements: object, held: Sequence[str] = ()) -> Json:
    """Write a GPUNode with one good promise and others."""
    result = gpu_node(NODE, (OTHER,), held=list(held))
    result["spec"]["entries"] += elements
    return result


@dataclass(slots=True)
class Api(FakeApiClient):
    """One GPUNode and the pods there are, by name."""

    stored: Json
    pods: Mapping[str, Json] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        self.reads.append(path)
        kind, name = path.split("/")[-2:]
        document = {"gpunodes": self.stored, "pods": self.pods.get(name), "nodes": MACHINE}[kind]
        if document is None:
            raise NotFoundError(404, "NotFound", path)
        return json.dumps(document).encode()

    async def json_patch(
        self, _: str, ops: Sequence[Mapping[str, object]], **__: Unpack[CallOptions]
    ) -> bytes:
        self.stored = patched(self.stored, ops)
        return b"{}"


def swept(api: Api, *known: PodSummary, agent: bool = True) -> list[str]:
    """Let the reconciler sweep once, and return whose promises are left."""
    pods = Pods()
    replace_pods(pods, {pod.uid: pod for pod in (HERE, *known)})
    result = ReclaimController(
        api,
        pods=pods,
        ledgers=lambda: {"n0": parse_ledger(api.stored)},
        agents_serve=lambda: agent,
        clock=Clock(monotonic=lambda: 5.0, wall=lambda: NOON + UNBOUND_AGE, random=lambda: 0),
    )
    asyncio.run(result.sweep())
    return [str(uid) for uid in parse_ledger(api.stored).entry_uids or ()]


def test_it_shuts_its_node_and_says_whose_it_is() -> None:
    """The others are read, and nothing more is promised: it may hold anything."""
    result = parse_ledger(shut(crowded()))

    assert [entry_.uid for entry_ in result.entries] == ["b"]
    assert [(entry_.namespace, entry_.pod, entry_.uid) for entry_ in result.unreadable] == [
        ("team-a", "a", "a")
    ]
    assert not any(gpu.healthy for gpu in result.node.gpus)
    assert parse_ledger_text(orjson.dumps(shut(crowded())))[0] == result


UNBOUND: Json = {"metadata": {"uid": "a"}}
BOUND: Json = UNBOUND | {"spec": {"nodeName": "n0"}}


@pytest.mark.parametrize(
    ("pod", "element", "held", "left"),
    [
        pytest.param(None, crowded(), [], ["b"], id="gone"),
        pytest.param(None, crowded(), ["a"], ["b", "a"], id="gone-and-held"),
        pytest.param({"metadata": {"uid": "z"}}, crowded(), [], ["b"], id="made-anew"),
        pytest.param(BOUND, crowded(), [], ["b", "a"], id="bound-there"),
        pytest.param(
            BOUND | {"status": {"phase": "Failed"}}, crowded(), [], ["b"], id="bound-and-over"
        ),
        pytest.param(UNBOUND, crowded(), [], ["b"], id="never-bound"),
        pytest.param(UNBOUND, crowded(since="once"), [], ["b", "a"], id="nobody-knows-since-when"),
        pytest.param(None, crowded(since="once"), [], ["b"], id="gone-since-some-time"),
    ],
)
def test_it_goes_as_any_other_promise_does(
    pod: Json | None, element: Json, *, held: list[str], left: list[str]
) -> None:
    """When its pod is over or was never bound, and the node has let go; on two reads."""
    api = Api(shut(element, held=held), {} if pod is None else {"a": pod})

    assert swept(api) == left
    assert [path.split("/")[-2] for path in api.reads] == ["gpunodes", "pods", "nodes"]


def test_a_node_is_open_again_once_it_went() -> None:
    """Nobody had to touch it by hand."""
    api = Api(shut(crowded()))

    swept(api)

    result = parse_ledger(api.stored)
    assert (result.unreadable, result.problems) == ((), ())
    assert all(gpu.healthy for gpu in result.node.gpus)


def test_a_ledger_that_is_too_long_is_read_again_once_it_is_shorter() -> None:
    """Of too many none is read; all the same those of pods that are gone go."""
    many = [entry(f"u{i}", SHARE) for i in range(MOST_ENTRIES)]
    api = Api(gpu_node(NODE, (OTHER, *many)))
    living = [
        PodSummary(uid=f"u{i}", node="n0", deleting=False, over=False) for i in range(1, 1024)
    ]

    assert len(parse_ledger(api.stored).entries) == 0
    assert "u0" not in swept(api, *living)
    assert len(parse_ledger(api.stored).entries) == MOST_ENTRIES


NAMELESS: Json = {"since": NOON.isoformat(), "containers": []}
STRANGER = PodSummary(uid="s", node="n0", deleting=False, over=False, extended=("x/y",))


@pytest.mark.parametrize(
    ("element", "known", "held", "left"),
    [
        pytest.param(NAMELESS, [], [], ["b"], id="nobodys"),
        pytest.param("nonsense", [], [], ["b"], id="no-object"),
        pytest.param(crowded(pod={"uid": "a"}), [], [], ["b"], id="a-uid-that-is-gone"),
        pytest.param(NAMELESS, [], ["b"], ["b"], id="another-is-held"),
        pytest.param(NAMELESS, [], ["s"], ["b", ""], id="somebody-is-held"),
        pytest.param(NAMELESS, [STRANGER], [], ["b", ""], id="somebody-may-run-on-it"),
        pytest.param(
            crowded(pod={"uid": "s"}), [STRANGER], [], ["b", "s"], id="a-uid-that-is-there"
        ),
        pytest.param(
            crowded(pod={"uid": "s", "namespace": "..", "name": "../../x"}),
            [STRANGER],
            [],
            ["b", "s"],
            id="a-name-that-is-a-path",
        ),
    ],
)
def test_what_names_no_pod_goes_when_it_can_be_nobodys(
    element: object, known: Iterable[PodSummary], *, held: list[str], left: list[str]
) -> None:
    """There is no pod to ask for: nobody on the node may be without a promise of his own."""
    api = Api(shut(element, held=held))

    assert swept(api, *known) == left
    assert not any("/pods/" in path for path in api.reads)


def test_it_is_told() -> None:
    """On the Node: whose it is, and what about it nobody can read."""
    result = list(find_drifts(parse_ledger(shut(crowded(), held=["a"])), {}))

    assert [(drift.kind, drift.uid) for drift in result] == [
        (DriftKind.UNREADABLE, "a"),
        (DriftKind.UNREADABLE, ""),
    ]
    assert 'the entry of pod "team-a/a" cannot be read' in result[0].what
    assert "spec.entries[1].containers: 65 elements found" in result[1].what


def test_its_pod_hears_of_it() -> None:
    """It is not promised something else while nobody knows what it has."""
    living = bound({})
    result = scene(living)
    pod = {"namespace": "team-a", "name": "p", "uid": "uid-p"}
    result.server.gpu_node["spec"]["entries"] = [crowded(pod=pod)]

    result.sweep()

    assert result.server.writes == 0
    assert [event.reason for event in result.events] == ["VgpuUnpromised"]
    assert "its entry cannot be read; delete the pod" in result.events[0].note
