"""Gangs that cannot start: their PodGroups are told when, how far they have come, and why."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Unpack

import pytest

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.cluster.pods import Pods
from allocator.config.settings import DEFAULTS
from allocator.controllers.gang import MOST_REFUSALS, GangController
from allocator.request.pod_summary import PodSummary
from kube.client import CallOptions
from kube.clock import Clock
from kube.errors import NotFoundError
from kube.events import Event, Recorder
from tests.builders.pods import NUMBER
from tests.builders.summaries import replace_pods
from tests.fakes.api_client import FakeApiClient
from tests.fakes.api_objects import Objects, parsed
from tests.fakes.direct_store import DirectStore
from tests.fakes.kube_clock import FakeClock

TIMEOUT = DEFAULTS.gang_timeout_seconds


def member(name: str, *, node: str = "", asks: bool = True) -> PodSummary:
    """Make a member of the gang that its name begins with."""
    return PodSummary(
        uid=f"uid-{name}",
        namespace="team-a",
        name=name,
        node=node,
        deleting=False,
        over=False,
        extended=(NUMBER,) if asks else (),
        group=name.partition("-")[0],
    )


def done(work: Coroutine[None, None, None]) -> None:
    """Carry *work* through, which waits for nothing here; a loop for each would take longer."""
    with pytest.raises(StopIteration):
        work.send(None)


@dataclass(slots=True)
class Cluster(FakeApiClient):
    """Some gangs of two members or more."""

    gangs: tuple[str, ...] = ("old", "new")
    malformed: tuple[str, ...] = ()
    least: int = 2
    pods: dict[str, PodSummary] = field(default_factory=dict)
    now: float = 0.0
    events: list[Event] = field(default_factory=list)
    gang_watch: GangController = field(init=False)
    known: Pods = field(default_factory=Pods)

    def __post_init__(self) -> None:
        self.gang_watch = GangController(
            self,
            self.known,
            vocabularies=lambda: VOCABULARIES,
            record=self.events.append,
            clock=Clock(monotonic=lambda: self.now),
        )

    async def get(self, path: str, **_: Unpack[CallOptions]) -> bytes:
        name = path.rpartition("/")[2]
        if name in self.malformed:
            return b'{"metadata": []}'
        if name not in self.gangs:
            raise NotFoundError(404, "NotFound", path)
        group = {"metadata": {"uid": f"uid-{name}"}, "spec": {"minMember": self.least}}
        return json.dumps(group).encode()

    def add(self, *members: PodSummary) -> None:
        self.pods.update({one.name: one for one in members})

    def sweep(self) -> None:
        replace_pods(self.known, {pod.uid: pod for pod in self.pods.values()})
        done(self.gang_watch.sweep(DEFAULTS))

    def reasons(self) -> list[str]:
        return [f"{event.regarding.name}: {event.reason}" for event in self.events]


def deadlock() -> Cluster:
    """Two gangs of two, each with one of two slots."""
    cluster = Cluster()
    for gang in cluster.gangs:
        cluster.add(member(f"{gang}-0", node="n0"), member(f"{gang}-1"))
    return cluster


def test_gangs_that_are_stuck_are_reported() -> None:
    """Each of them, after the time and not before."""
    cluster = deadlock()

    cluster.sweep()
    cluster.now = TIMEOUT - 1
    cluster.sweep()
    early = cluster.reasons()
    cluster.now = TIMEOUT
    cluster.sweep()

    assert (early, cluster.reasons()) == ([], ["old: VgpuGangStuck", "new: VgpuGangStuck"])
    note = f"1 of 2 members have held GPUs for more than {TIMEOUT} s while 1 wait"
    assert {event.note for event in cluster.events} == {note}


def gone(cluster: Cluster) -> None:
    del cluster.pods["old-0"], cluster.pods["old-1"]


def complete(cluster: Cluster) -> None:
    cluster.add(member("old-2", node="n0"))


def unknown(cluster: Cluster) -> None:
    cluster.gangs = ("new",)


def idle(cluster: Cluster) -> None:
    cluster.add(member("old-0", node="n0", asks=False))


def complete_without_gpu(cluster: Cluster) -> None:
    cluster.add(member("old-2", node="n0", asks=False))


def ended(cluster: Cluster) -> None:
    cluster.add(replace(member("old-0", node="n0"), over=True))


def ending(cluster: Cluster) -> None:
    cluster.add(replace(member("old-0", node="n0"), deleting=True))


def of_two_namespaces(cluster: Cluster) -> None:
    cluster.add(replace(member("old-1"), namespace="team-b"))


def malformed(cluster: Cluster) -> None:
    cluster.malformed = ("old",)


@pytest.mark.parametrize(
    "change",
    [
        gone,
        complete,
        complete_without_gpu,
        unknown,
        idle,
        ended,
        ending,
        of_two_namespaces,
        malformed,
    ],
)
def test_a_gang_that_is_not_stuck_is_not_reported(change: Callable[[Cluster], None]) -> None:
    """It is not there, may start, is no gang, cannot be read, or holds no GPU."""
    cluster = deadlock()
    change(cluster)

    cluster.sweep()
    cluster.now = TIMEOUT
    cluster.sweep()

    assert cluster.reasons() == ["new: VgpuGangStuck"]


def test_progress_is_waited_for() -> None:
    """A gang whose members still get bound is not stuck."""
    cluster = deadlock()
    cluster.least = 4
    cluster.sweep()

    for minute in range(1, 4):
        cluster.now = minute * (TIMEOUT - 1)
        cluster.add(member(f"old-{minute + 1}", node="n0"))
        cluster.sweep()

    assert "old: VgpuGangStuck" not in cluster.reasons()


def test_a_gang_is_reported_for_as_long_as_it_is_stuck() -> None:
    """The recorder folds repeats into one Event, whose count says that it goes on."""
    cluster = deadlock()

    for now in (0, TIMEOUT, TIMEOUT + 1):
        cluster.now = now
        cluster.sweep()

    assert cluster.reasons() == ["old: VgpuGangStuck", "new: VgpuGangStuck"] * 2


def test_a_gang_that_is_stuck_anew_has_its_time_anew() -> None:
    """It had all that it waited for in between."""
    cluster = deadlock()
    cluster.sweep()

    for now, node in ((TIMEOUT - 1, "n0"), (TIMEOUT, "")):
        cluster.now = now
        cluster.add(member("old-1", node=node))
        cluster.sweep()

    assert "old: VgpuGangStuck" not in cluster.reasons()


def test_refusals_beyond_the_queue_are_dropped() -> None:
    """A storm of refused binds neither fails nor waits."""
    cluster = deadlock()

    for _ in range(MOST_REFUSALS + 1):
        cluster.gang_watch.note_refusal("uid-new-1", "no room", "Conflict")


def test_a_refused_member_tells_its_group() -> None:
    """It says how far the gang has come; who has no group, or enough members, hears nothing."""
    cluster = deadlock()
    cluster.add(replace(member("single-0"), group=""), member("old-2", node="n0"))
    replace_pods(cluster.known, {pod.uid: pod for pod in cluster.pods.values()})

    for uid in ("uid-new-1", "uid-old-1", "uid-single-0", "uid-gone"):
        done(cluster.gang_watch.report_refusal(uid, "no room", "GpuMemoryShort"))

    (event,) = cluster.events
    assert (event.regarding.kind, event.regarding.name) == ("PodGroup", "new")
    assert (event.regarding.namespace, event.regarding.uid) == ("team-a", "uid-new")
    assert event.reason == "VgpuGangShort"
    assert event.series == "GpuMemoryShort"
    assert event.note == 'bind of pod "new-1" was refused, 1 of 2 members are bound: no room'


@dataclass(slots=True)
class Written(Cluster):
    """The same cluster, whose Events a recorder writes."""

    objects: Objects = field(default_factory=Objects)
    time: FakeClock = field(default_factory=FakeClock)

    def report(self, *refusals: tuple[str, str, str]) -> None:
        """Report refusals and write what is recorded of them."""
        replace_pods(self.known, {pod.uid: pod for pod in self.pods.values()})
        recorder = Recorder(
            DirectStore(self.objects, self.time),
            controller="vgpu-admission.io/webhook",
            instance="webhook-1",
            clock=self.time.clock(),
        )

        async def story() -> None:
            for refusal in refusals:
                await self.gang_watch.report_refusal(*refusal)
                await recorder.write(self.events[-1])
                self.time.now += 1

        asyncio.run(story())

    def written(self) -> dict[str, int]:
        """Return how often each Event counts, by its note."""
        found = self.objects.at(parsed("/apis/events.k8s.io/v1/namespaces/team-a/events"))
        return {one["note"]: one.get("series", {}).get("count", 1) for one in found}


def test_refusals_of_a_group_for_one_reason_are_one_event() -> None:
    """Whichever member was refused on whichever node; another reason, or group, has its own."""
    cluster = Written()
    members = [member(f"{gang}-{number}") for gang in ("old", "new") for number in range(8)]
    cluster.add(*members)
    short = [
        (f"uid-old-{number % 8}", f"no room on n{number} for {number}", "GpuMemoryShort")
        for number in range(100)
    ]

    cluster.report(*short, ("uid-old-1", "busy", "Conflict"), ("uid-new-1", "no", "Conflict"))

    notes = cluster.written()
    first = 'bind of pod "old-0" was refused, 0 of 2 members are bound: no room on n0 for 0'
    assert len(notes) == 3
    assert notes[first] > 50  # the count lags by a minute at most
