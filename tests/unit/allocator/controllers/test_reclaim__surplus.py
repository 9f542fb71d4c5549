"""An unbound pod with entries on three nodes keeps the two newer ones, whoever wrote the third."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Unpack

import jsonpatch
import msgspec
import pytest

from allocator.cluster.pods import Pods
from allocator.controllers.reclaim import ReclaimController
from allocator.ledger.ledger import Ledger, parse_ledger
from allocator.ledger.reclaim import SURPLUS_AGE
from allocator.request.pod_summary import PodSummary
from kube.client import CallOptions
from kube.clock import Clock
from kube.errors import InvalidError, NotFoundError
from tests.builders.gpunodes import NOON, Json, entry, gpu_node, patched
from tests.builders.model import nodes_of, soft_grant
from tests.builders.summaries import replace_pods
from tests.fakes.api_client import FakeApiClient
from tests.harness.records import KeptRecords, writer

UNBOUND = PodSummary(uid="a", node="", deleting=False, over=False)
WAITING: Json = {"metadata": {"uid": "a"}}


@dataclass(slots=True)
class Api(FakeApiClient):
    """GPUNodes with an entry of pod ``a`` each, some seconds after noon, and the pod."""

    seconds: Mapping[str, int]
    pod: Json | None = field(default_factory=lambda: WAITING)
    gone: frozenset[str] = frozenset()  # GPUNodes that only the caches show
    stored: dict[str, Json] = field(init=False)
    reads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stored = {
            name: gpu_node(
                nodes_of(1, name=name),
                [
                    entry("b", soft_grant(1000, gpu=f"GPU-{name}-0")),
                    entry("a", soft_grant(1000), since=NOON + timedelta(seconds=after)),
                ],
            )
            for name, after in self.seconds.items()
        }

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        kind, name = path.split("/")[-2:]
        self.reads.append(name)
        found = {"gpunodes": self.stored.get(name), "pods": self.pod}.get(kind)
        if found is None or name in self.gone:
            raise NotFoundError(404, "NotFound", path)
        return msgspec.json.encode(found)

    async def json_patch(
        self, path: str, ops: Sequence[Mapping[str, object]], **_: Unpack[CallOptions]
    ) -> bytes:
        name = path.rpartition("/")[2]
        try:
            self.stored[name] = patched(self.stored[name], ops)
        except jsonpatch.JsonPatchException as error:
            raise InvalidError(422, "Invalid", path) from error
        return b"{}"

    @property
    def ledgers(self) -> dict[str, Ledger]:
        return {name: parse_ledger(one) for name, one in self.stored.items()}

    def nodes_of_a(self) -> list[str]:
        """Return the nodes where the pod still has an entry; that of the other pod stays."""
        assert all(ledger.entry("b") for ledger in self.ledgers.values())
        return [name for name, ledger in self.ledgers.items() if ledger.entry("a")]


def sweep(api: Api, *, now: datetime, pod: PodSummary = UNBOUND) -> KeptRecords:
    """Sweep three times on caches that show all of the API server but what has gone."""
    records, pods = KeptRecords(), Pods()
    replace_pods(pods, {"a": pod, "b": PodSummary(uid="b", node="", deleting=False, over=False)})
    controller = ReclaimController(
        api,
        pods=pods,
        ledgers=lambda: api.ledgers,
        agents_serve=lambda: True,
        write_record=writer(records).write,
        clock=Clock(monotonic=lambda: 5.0, wall=lambda: now, random=lambda: 0),
    )
    for _ in range(3):
        asyncio.run(controller.sweep())
    return records


SOON = NOON + SURPLUS_AGE


def test_the_oldest_of_three_goes() -> None:
    """Long before it would expire; the record names its node."""
    api = Api({"n0": 0, "n1": 5, "n2": 3})
    records = sweep(api, now=SOON)
    assert api.nodes_of_a() == ["n1", "n2"]
    assert [(one["node"], one["why"]) for one in records.of("released")] == [("n0", "replaced")]


def test_of_five_the_two_newest_stay() -> None:
    """However many were written."""
    api = Api({"n0": 0, "n1": -1, "n2": 5, "n3": -2, "n4": 6})
    sweep(api, now=SOON)
    assert api.nodes_of_a() == ["n2", "n4"]


def test_a_young_one_waits_for_its_binding() -> None:
    """The API server may be about to land it."""
    api = Api({"n0": 0, "n1": 5, "n2": 3})
    sweep(api, now=SOON - timedelta(seconds=1))
    assert api.nodes_of_a() == ["n0", "n1", "n2"]
    assert api.reads == []


def test_two_stay_until_they_expire() -> None:
    """The rule allows two, and no ledger is read for them."""
    api = Api({"n0": 0, "n1": 5})
    sweep(api, now=NOON + 4 * SURPLUS_AGE)
    assert api.nodes_of_a() == ["n0", "n1"]
    assert api.reads == []


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(WAITING | {"spec": {"nodeName": "n0"}}, id="bound-there"),
        pytest.param(WAITING | {"spec": {"nodeName": "n2"}}, id="bound-to-another"),
        pytest.param(
            {"metadata": {"uid": "a", "deletionTimestamp": NOON.isoformat()}}, id="being-deleted"
        ),
    ],
)
def test_the_pod_is_read_before(pod: Json) -> None:
    """A cache that shows it unbound is not enough."""
    api = Api({"n0": 0, "n1": 5, "n2": 3}, pod=pod)
    sweep(api, now=SOON)
    assert api.nodes_of_a() == ["n0", "n1", "n2"]


def test_the_other_ledgers_are_read_before() -> None:
    """One that is gone has no entry, whatever the cache shows."""
    api = Api({"n0": 0, "n1": 5, "n2": 3}, gone=frozenset({"n2"}))
    sweep(api, now=SOON)
    assert api.nodes_of_a() == ["n0", "n1", "n2"]
    assert "n2" in api.reads


def test_an_entry_that_is_held_stays() -> None:
    """Containers may run on it, whatever the pod looks like."""
    api = Api({"n0": 0, "n1": 5, "n2": 3})
    api.stored["n0"]["status"]["held"] = ["a"]
    sweep(api, now=SOON)
    assert api.nodes_of_a() == ["n0", "n1", "n2"]
