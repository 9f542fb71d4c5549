"""The reconciler believes no cache: what it removes it has just read, twice."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Unpack

import jsonpatch
import pytest

from allocator.cluster.pods import Pods
from allocator.controllers.reclaim import ReclaimController
from allocator.ledger.ledger import parse_ledger
from allocator.ledger.reclaim import UNBOUND_AGE
from allocator.model.request import Mode
from allocator.request.pod_summary import PodSummary
from kube.client import CallOptions
from kube.clock import Clock
from kube.errors import InvalidError, NotFoundError, UnreachableError
from tests.builders.gpunodes import NOON, Json, entry, gpu_node, patched
from tests.builders.model import gpu, mig_grant, node
from tests.builders.summaries import replace_pods
from tests.fakes.api_client import FakeApiClient
from tests.harness.records import KeptRecords, writer

ENTRY = entry("a", mig_grant("1g.5gb", 0, gpu="GPU-n0-0"))
NODE = node("n0", gpu(mode=Mode.MIG))
MACHINE: Json = {"metadata": {"name": "n0"}, "status": {"nodeInfo": {"bootID": "boot-1"}}}
WAITING: Json = {"metadata": {"uid": "a"}}
BOUND: Json = WAITING | {"spec": {"nodeName": "n0"}}
UNBOUND = PodSummary(uid="a", node="", deleting=False, over=False)


@dataclass(slots=True)
class Api(FakeApiClient):
    """One GPUNode with one promise, and the pod that it is made to."""

    pod: Json | None = None
    stored: Json = field(default_factory=lambda: gpu_node(NODE, (ENTRY,)))
    reads: list[str] = field(default_factory=list)
    moves: bool = False  # somebody writes between our reads and our write
    down: bool = False

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        self.reads.append(path)
        if self.down:
            raise UnreachableError("down", sent=True)
        document = {"gpunodes": self.stored, "pods": self.pod, "nodes": MACHINE}[
            path.split("/")[-2]
        ]
        if document is None:
            raise NotFoundError(404, "NotFound", path)
        return json.dumps(document).encode()

    async def json_patch(
        self, path: str, ops: Sequence[Mapping[str, object]], **_: Unpack[CallOptions]
    ) -> bytes:
        if self.moves:
            self.stored["metadata"]["resourceVersion"] = "101"
        try:
            self.stored = patched(self.stored, ops)
        except jsonpatch.JsonPatchException as error:
            raise InvalidError(422, "Invalid", path) from error
        return b"{}"

    @property
    def left(self) -> int:
        return len(self.stored["spec"]["entries"])


def sweep(
    api: Api,
    *,
    known: Mapping[str, PodSummary] | None,
    wall: datetime = NOON + UNBOUND_AGE,
    times: int = 1,
    records: KeptRecords | None = None,
) -> Api:
    clock = Clock(monotonic=lambda: 5.0, wall=lambda: wall, random=lambda: 0)
    pods = Pods()
    controller = ReclaimController(
        api,
        pods=pods,
        ledgers=lambda: {"n0": parse_ledger(api.stored)},
        agents_serve=lambda: True,
        write_record=writer(KeptRecords() if records is None else records).write,
        clock=clock,
    )
    if known is not None:
        replace_pods(pods, known)
    for _ in range(times):
        asyncio.run(controller.sweep())
    return api


@pytest.mark.parametrize(
    ("pod", "left", "why"),
    [
        pytest.param(WAITING, 0, ["unbound"], id="unbound"),
        pytest.param(None, 0, ["over"], id="gone"),
        pytest.param({"metadata": {"uid": "b"}}, 0, ["over"], id="another-of-its-name"),
        pytest.param(BOUND | {"status": {"phase": "Failed"}}, 0, ["over"], id="ended"),
        pytest.param(WAITING | {"spec": {"nodeName": "n1"}}, 0, ["elsewhere"], id="elsewhere"),
        pytest.param(BOUND, 1, [], id="bound-since"),
    ],
)
def test_what_the_api_server_says_decides(pod: Json | None, left: int, why: list[str]) -> None:
    """The cache says unbound; the pod as it is now decides, and the record says so."""
    records = KeptRecords()

    assert sweep(Api(pod), known={"a": UNBOUND}, records=records).left == left
    assert [record["why"] for record in records.of("released")] == why


def test_a_record_says_what_was_released() -> None:
    """Whose it was, since when, and what of which GPU."""
    records = KeptRecords()

    sweep(Api(WAITING), known={"a": UNBOUND}, records=records)

    (record,) = records
    assert (record["pod_uid"], record["node"]) == ("a", "n0")
    assert record["since"] == ENTRY.since.isoformat(timespec="milliseconds")
    assert record["containers"][0]["devices"][0]["profile"] == "1g.5gb"


def test_a_removal_that_failed_is_not_recorded() -> None:
    """The entry is still there."""
    records = KeptRecords()

    sweep(Api(WAITING, moves=True), known={"a": UNBOUND}, records=records)

    assert records == []


def test_the_ledger_is_read_before_the_pod() -> None:
    """A Binding that lands after the pod was read has renewed the entry, and our write fails."""
    api = sweep(Api(WAITING), known={"a": UNBOUND})

    assert [path.split("/")[-2] for path in api.reads] == ["gpunodes", "pods", "nodes"]


def test_a_ledger_that_moved_keeps_its_entry() -> None:
    """Whatever was written in between may have been about this entry."""
    assert sweep(Api(WAITING, moves=True), known={"a": UNBOUND}).left == 1


def test_what_one_node_may_be_rid_of_goes_in_one_write() -> None:
    """Each write needs the agent's answer to it before the next: pods that end together go so."""
    entries = [entry(uid, mig_grant("1g.5gb", i, gpu="GPU-n0-0")) for i, uid in enumerate("abc")]
    api = Api(None, gpu_node(NODE, entries, held=["b"]))

    sweep(api, known={})

    assert [left["pod"]["uid"] for left in api.stored["spec"]["entries"]] == ["b"]
    assert api.stored["metadata"]["generation"] == 8


def test_nothing_is_touched_before_anything_is_known() -> None:
    """Without a picture of all pods every promise would look lost."""
    assert sweep(Api(None), known=None).reads == []


def test_a_young_promise_is_left_alone() -> None:
    """Its Binding may be on its way."""
    young = NOON + timedelta(seconds=10)

    assert sweep(Api(WAITING), known={"a": UNBOUND}, wall=young).reads == []


def test_a_promise_that_stays_is_not_asked_about_at_once_again() -> None:
    """What may not go yet is looked at less and less often."""
    api = sweep(Api(BOUND), known={}, times=3)

    assert len(api.reads) == 3


def test_a_promise_is_asked_about_again_when_its_ledger_moves() -> None:
    """The agent let go: nobody waits for the end of a pause."""
    api = Api(None)
    api.stored["status"]["held"] = ["a"]
    clock = Clock(monotonic=lambda: 5.0, wall=lambda: NOON, random=lambda: 0)
    pods = Pods()
    replace_pods(pods, {})
    ledgers = {"n0": parse_ledger(api.stored)}
    controller = ReclaimController(
        api, pods=pods, ledgers=lambda: ledgers, agents_serve=lambda: True, clock=clock
    )

    async def story() -> None:
        await controller.sweep()
        api.stored["status"]["held"] = []
        api.stored["metadata"]["resourceVersion"] = "101"
        ledgers["n0"] = parse_ledger(api.stored)
        await controller.sweep()

    asyncio.run(story())

    assert api.left == 0


def test_a_silent_api_server_ends_nothing() -> None:
    """The sweep goes on, and so does the reconciler."""
    assert sweep(Api(down=True), known={}).left == 1


def test_a_pod_that_does_not_answer_keeps_its_own_promise_alone() -> None:
    """Nobody tells whether it is over; of the others on its node that is known."""
    entries = [entry(uid, mig_grant("1g.5gb", i, gpu="GPU-n0-0")) for i, uid in enumerate("abc")]
    api = Silent(None, gpu_node(NODE, entries), silent="/pods/b")

    sweep(api, known={})

    assert [left["pod"]["uid"] for left in api.stored["spec"]["entries"]] == ["b"]


def test_a_node_that_does_not_answer_delays_no_other() -> None:
    """The others' promises go while its call hangs, and so they do in the next sweep."""
    api = Silent(None, hangs="/gpunodes/n1")
    pods = Pods()
    replace_pods(pods, {})
    ledgers = {"n1": parse_ledger(gpu_node(node("n1", gpu(mode=Mode.MIG)), (ENTRY,)))}
    ledgers["n0"] = parse_ledger(api.stored)
    controller = ReclaimController(
        api, pods=pods, ledgers=lambda: ledgers, agents_serve=lambda: True
    )

    async def swept() -> None:
        async with asyncio.timeout(5):
            await controller.sweep()
            await controller.sweep()

    asyncio.run(swept())

    assert api.left == 0
    assert api.reads.count("/apis/vgpu-admission.io/v1alpha1/gpunodes/n1") == 1


@dataclass(slots=True)
class Silent(Api):
    """An API server that has trouble with one object."""

    silent: str = "nothing"
    hangs: str = "nothing"

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        if path.endswith(self.hangs):
            self.reads.append(path)
            await asyncio.Event().wait()
        if path.endswith(self.silent):
            raise UnreachableError("down", sent=True)
        return await Api.get(self, path)


def test_an_age_is_of_before_the_reads() -> None:
    """A process that is stopped between a read and its decision must not find an entry aged.

    Meanwhile the Binding that renewed it may have landed.
    """
    api = Api(WAITING)
    before, after = NOON + UNBOUND_AGE - timedelta(seconds=1), NOON + 2 * UNBOUND_AGE
    clock = Clock(
        monotonic=lambda: 5.0, wall=lambda: after if api.reads else before, random=lambda: 0
    )
    controller = ReclaimController(
        api, pods=Pods(), ledgers=dict, agents_serve=lambda: True, clock=clock
    )

    assert asyncio.run(controller.reclaim("n0", "a")) == frozenset()
    assert api.left == 1
    assert asyncio.run(controller.reclaim("n0", "a")) == {"a"}
