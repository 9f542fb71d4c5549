"""Records of waiting pods: that one waits, for another reason, and no longer; each once."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Unpack

import orjson
import pytest

from allocator.catalog.keys import DECISION_KEY
from allocator.catalog.vocabularies import VOCABULARIES
from allocator.cluster.pods import Pods
from allocator.request.pod_summary import PodSummary
from kube.client import CallOptions
from kube.clock import Clock
from kube.errors import NotFoundError, UnreachableError
from tests.builders.gpunodes import NOON, Json
from tests.builders.pods import NUMBER
from tests.builders.summaries import replace_pods
from tests.fakes.api_client import FakeApiClient
from tests.harness.records import KeptRecords, writer
from webhook.records.waiting_controller import (
    AFTER,
    MOST_READS,
    READ_AGAIN_AFTER,
    WaitingController,
    WaitingFigure,
    WaitingFigures,
)

WHY = "0/5 nodes are available: 5 Insufficient volcano.sh/vgpu-number."


def summary(uid: str = "a", node: str = "", *, deleting: bool = False) -> PodSummary:
    return PodSummary(
        uid=uid,
        namespace="team-a",
        name=f"pod-{uid}",
        node=node,
        deleting=deleting,
        over=False,
        extended=(NUMBER,),
    )


def live(
    uid: str = "a", *, reason: str = "Unschedulable", message: str = WHY, **spec: object
) -> Json:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    metadata = {
        "uid": uid,
        "creationTimestamp": (NOON - timedelta(seconds=30)).isoformat(),
        "annotations": {DECISION_KEY: "k7q2m4x9tb"},
    }
    return {"metadata": metadata, "spec": spec, "status": {"conditions": [condition]}}


@dataclass(slots=True)
class Site(FakeApiClient):
    """A leader, its picture of the pods, and the pods as they are."""

    stored: dict[str, Json] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    records: KeptRecords = field(default_factory=KeptRecords)
    figures: list[WaitingFigures] = field(default_factory=list)
    pods: Pods = field(default_factory=Pods)
    seconds: float = 1000.0
    down: bool = False
    controller: WaitingController = field(init=False)

    def __post_init__(self) -> None:
        now = Clock(monotonic=lambda: self.seconds, wall=lambda: NOON + timedelta(seconds=10))
        self.controller = WaitingController(
            calls=self,
            pods=self.pods,
            vocabularies=lambda: VOCABULARIES,
            write_record=writer(self.records).write,
            report=self.figures.append,
            clock=now,
        )

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        self.reads.append(path)
        if self.down:
            raise UnreachableError("down", sent=True)
        found = self.stored.get(path.rpartition("pod-")[2])
        if found is None:
            raise NotFoundError(404, "NotFound", path)
        return orjson.dumps(found)

    def see(self, *pods: PodSummary, after: float = 0.0) -> "Site":
        """Let time pass, and the leader look at these pods."""
        self.seconds += after
        replace_pods(self.pods, {pod.uid: pod for pod in pods})
        asyncio.run(self.controller.sweep())
        return self

    @property
    def states(self) -> list[str]:
        return [record["state"] for record in self.records.of("waiting")]


def test_a_pod_that_waits_is_recorded_once_with_the_words_of_its_scheduler() -> None:
    """Whoever schedules it, and however often the leader looks."""
    site = Site(stored={"a": live()}).see(summary()).see(summary(), after=AFTER)
    site.see(summary(), after=5)

    (record,) = site.records
    assert (record["state"], record["reason"], record["text"]) == ("begun", "Unschedulable", WHY)
    assert (record["pod_uid"], record["digest"]) == ("a", "k7q2m4x9tb")
    assert len(site.reads) == 1


def test_a_pod_that_is_bound_at_once_never_waited() -> None:
    """Its bind says enough."""
    site = Site(stored={"a": live()}).see().see(summary()).see(summary(node="n0"), after=5)

    assert site.records == []
    assert site.reads == []


def test_the_end_says_how_long_it_waited() -> None:
    """Since the pod was created, and where it went."""
    site = Site(stored={"a": live()}).see().see(summary()).see(summary(), after=AFTER)
    site.see(summary(node="n0"), after=5).see(summary(node="n0"))

    begun, over = site.records
    assert (over["state"], over["reason"], over["node"]) == ("over", "bound", "n0")
    assert over["seconds"] == 40.0
    assert begun["id"] != over["id"]


@pytest.mark.parametrize("deleting", [True, False])
def test_a_pod_that_is_deleted_waits_no_longer(*, deleting: bool) -> None:
    """Also one of which others recorded that it waits, before the leader read it."""
    left = (summary(deleting=True),) if deleting else ()
    site = Site().see().see(summary()).see(*left, after=5)

    (record,) = site.records
    assert (record["state"], record["reason"], record["seconds"]) == ("over", "gone", 5.0)


def test_what_began_before_the_leader_is_not_guessed() -> None:
    """It may have waited for a day."""
    site = Site().see(summary()).see(after=5)

    (record,) = site.records
    assert record["state"] == "over"
    assert "seconds" not in record


def test_another_reason_is_a_change() -> None:
    """Other numbers in the text are none."""
    site = Site(stored={"a": live(reason="SchedulingGated", message="")})
    site.see(summary()).see(summary(), after=AFTER)
    for message in (WHY, "0/6 nodes are available"):
        site.stored["a"] = live(message=message)
        site.see(summary(), after=READ_AGAIN_AFTER)

    assert site.states == ["begun", "changed"]
    assert site.records[-1]["reason"] == "Unschedulable"


def test_two_leaders_store_one_beginning_and_one_end() -> None:
    """The identifiers are those of the pod."""
    sites = [Site(stored={"a": live()}).see(summary()) for _ in range(2)]
    for site in sites:
        site.see(summary(), after=AFTER).see(summary(node="n0"))

    ids = [[record["id"] for record in site.records] for site in sites]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2


def test_a_sweep_reads_a_bounded_number_of_pods() -> None:
    """The others follow, those first that wait for it longest."""
    uids = [str(number) for number in range(MOST_READS + 5)]
    pods = [summary(uid) for uid in uids]
    site = Site(stored={uid: live(uid) for uid in uids}).see(*pods).see(*pods, after=AFTER)

    assert len(site.reads) == MOST_READS
    assert len(site.see(*pods, after=1).records) == len(uids)


def test_pods_that_ask_for_no_gpu_are_none_of_ours() -> None:
    """They may wait for what they like."""
    other = PodSummary(uid="b", node="", deleting=False, over=False, extended=("x.io/fpga",))
    site = Site().see(other).see(other, after=AFTER).see()

    assert (site.records, site.reads) == ([], [])


def test_what_cannot_be_read_is_read_again() -> None:
    """An API server that is away, a pod of another uid, one that was bound since, odd JSON."""
    site = Site(stored={"a": live()}, down=True).see(summary()).see(summary(), after=AFTER)
    site.down = False
    for odd in (live("b"), live(nodeName="n0"), {"status": 7}):
        site.stored["a"] = odd
        site.see(summary(), after=READ_AGAIN_AFTER)
    assert site.records == []

    site.stored["a"] = live()
    site.see(summary(), after=READ_AGAIN_AFTER)
    assert site.states == ["begun"]


def test_nothing_is_said_before_the_pods_are_known() -> None:
    """An empty picture would end everybody's waiting."""
    site = Site()
    asyncio.run(site.controller.sweep())

    assert site.records == []


def test_those_who_wait_are_counted_and_the_oldest_is_known() -> None:
    """Once each is known to wait, and since it was created; nobody afterwards."""
    site = Site(stored={"a": live()}).see().see(summary())
    assert site.figures[-1] == {}

    site.see(summary(), after=AFTER)
    (figure,) = site.figures[-1].items()
    assert figure == ((summary().namespace, "Unschedulable"), WaitingFigure(1, 40.0))

    site.see(summary(node="n0"), after=5)
    assert site.figures[-1] == {}
