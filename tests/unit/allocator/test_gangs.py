"""Gangs that keep each other from starting: told, and ended by letting the younger one go."""

import json
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace

import pytest

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.core.choose import Terms
from allocator.core.commitment import Wanted
from allocator.core.contest import Contest
from allocator.core.podfacts import Seen
from allocator.core.settings import GangDeadlock, Settings
from allocator.model.request import Mode, PodRequest
from allocator.shell.gangs import Gangs
from allocator.shell.reconciler import Pods
from kube.clock import Clock
from kube.errors import ApiError, NotFoundError
from kube.events import Event
from tests.builders import A30, ask, mig_grant, nodes_of, pod, soft_grant
from tests.pods import NUMBER
from tests.preemption import cluster as sites_of
from tests.preemption import resident

EVICT = Settings(gang_deadlock=GangDeadlock.EVICT)
REPORT = Settings()
TIMEOUT = REPORT.gang_timeout_seconds
HALF = pod(ask(20000), mode=Mode.HAMI_CORE)
SOFT = nodes_of(1, name="n0")
CUT = nodes_of(1, A30, mode=Mode.MIG, name="n1")


def member(name: str, *, node: str = "", asks: bool = True) -> Seen:
    """Make a member of the gang that its name begins with."""
    return Seen(
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
class Cluster:
    """Some gangs of two members or more, in the order of their creation, and two halves of a GPU.

    A gang wants halves, unless ``wishes`` say otherwise. Nodes are n0 and n1, which is cut.
    """

    gangs: tuple[str, ...] = ("old", "new")
    least: int = 2
    pods: dict[str, Seen] = field(default_factory=dict)
    now: float = 0.0
    guarded: bool = False  # by a disruption budget
    wishes: dict[str, PodRequest | None] = field(default_factory=dict)
    evicted: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    gang_watch: Gangs = field(init=False)
    known: Pods = field(default_factory=Pods)

    def __post_init__(self) -> None:
        self.gang_watch = Gangs(
            self,
            self.known,
            vocabularies=lambda: VOCABULARIES,
            contest=self.contest,
            tell=self.events.append,
            clock=Clock(monotonic=lambda: self.now),
        )

    def contest(self) -> Contest:
        bound = [one for one in self.pods.values() if one.node and one.extended]
        halves = [resident(o.uid, (0, soft_grant(20000))) for o in bound if o.node == "n0"]
        there = [one for one in bound if one.node == "n1"]
        grants = [mig_grant("2g.12gb", 2 * i, product=A30) for i in range(len(there))]
        slices = [resident(one.uid, (0, grant)) for one, grant in zip(there, grants, strict=True)]
        index = sites_of((SOFT, halves), (CUT, slices))
        return Contest(index=index, wanted=self.wanted, terms=lambda _: Terms())

    def wanted(self, one: Seen) -> Wanted | None:
        request = self.wishes.get(one.group, HALF)
        return None if request is None else Wanted(uid=one.uid, request=request)

    async def get(self, path: str) -> bytes:
        name = path.rpartition("/")[2]
        if name not in self.gangs:
            raise NotFoundError(404, "NotFound", path)
        created = f"2026-11-21T12:00:0{self.gangs.index(name)}Z"
        metadata = {"uid": f"uid-{name}", "creationTimestamp": created}
        return json.dumps({"metadata": metadata, "spec": {"minMember": self.least}}).encode()

    async def create(self, path: str, body: bytes) -> bytes:
        name = path.split("/")[-2]
        assert json.loads(body)["deleteOptions"]["preconditions"] == {"uid": f"uid-{name}"}
        if self.guarded:
            raise ApiError(429, "TooManyRequests", "the disruption budget needs it")
        self.evicted.append(name)
        self.pods[name] = replace(self.pods[name], node="")  # its controller makes another
        return b"{}"

    def add(self, *members: Seen) -> None:
        self.pods.update({one.name: one for one in members})

    def sweep(self, settings: Settings) -> None:
        self.known.know({pod.uid: pod for pod in self.pods.values()})
        done(self.gang_watch.sweep(settings))

    def reasons(self) -> list[str]:
        return [f"{event.regarding.name}: {event.reason}" for event in self.events]


def deadlock() -> Cluster:
    """Two gangs of two, each with one of two slots."""
    cluster = Cluster()
    for gang in cluster.gangs:
        cluster.add(member(f"{gang}-0", node="n0"), member(f"{gang}-1"))
    return cluster


def test_the_younger_gang_lets_go() -> None:
    """After the time, and not before; the older one is left alone."""
    cluster = deadlock()

    cluster.sweep(EVICT)
    cluster.now = TIMEOUT - 1
    cluster.sweep(EVICT)
    early = list(cluster.evicted)
    cluster.now = TIMEOUT
    cluster.sweep(EVICT)

    assert (early, cluster.evicted) == ([], ["new-0"])
    assert "new: VgpuGangEvicted" in cluster.reasons()


def test_a_deadlock_is_only_reported_unless_settings_say_more() -> None:
    """Evicting a user's pods is a site's decision."""
    cluster = deadlock()

    cluster.sweep(REPORT)
    cluster.now = TIMEOUT
    cluster.sweep(REPORT)

    assert cluster.evicted == []
    assert cluster.reasons() == ["old: VgpuGangStuck", "new: VgpuGangStuck"]


def alone(cluster: Cluster) -> None:
    del cluster.pods["old-0"], cluster.pods["old-1"]


def complete(cluster: Cluster) -> None:
    cluster.add(member("old-2", node="n0"))


def unknown(cluster: Cluster) -> None:
    cluster.gangs = ("new",)


def idle(cluster: Cluster) -> None:
    cluster.add(member("old-0", node="n0", asks=False))


@pytest.mark.parametrize("change", [alone, complete, unknown, idle])
def test_nobody_lets_go_for_nothing(change: Callable[[Cluster], None]) -> None:
    """No other gang is stuck: it is not there, may start, is no gang, or holds no GPU."""
    cluster = deadlock()
    change(cluster)

    cluster.sweep(EVICT)
    cluster.now = TIMEOUT
    cluster.sweep(EVICT)

    assert cluster.evicted == []


def test_progress_is_waited_for() -> None:
    """A gang whose members still get bound is not stuck."""
    cluster = deadlock()
    cluster.least = 4
    cluster.sweep(EVICT)

    for minute in range(1, 4):
        cluster.now = minute * (TIMEOUT - 1)
        cluster.add(member(f"old-{minute + 1}", node="n0"))
        cluster.sweep(EVICT)

    assert cluster.evicted == []


def test_a_guarded_pod_is_asked_for_again() -> None:
    """A disruption budget is respected, and nothing ends."""
    cluster = deadlock()
    cluster.guarded = True
    cluster.sweep(EVICT)
    cluster.now = TIMEOUT
    cluster.sweep(EVICT)

    cluster.guarded = False
    cluster.sweep(EVICT)
    cluster.now = 2 * TIMEOUT
    cluster.sweep(EVICT)

    assert cluster.evicted == ["new-0"]


def test_a_refused_member_tells_its_group() -> None:
    """It says how far the gang has come; who has no group, or enough members, hears nothing."""
    cluster = deadlock()
    cluster.add(replace(member("single-0"), group=""), member("old-2"))
    cluster.known.know({pod.uid: pod for pod in cluster.pods.values()})

    for uid in ("uid-new-1", "uid-single-0", "uid-gone"):
        done(cluster.gang_watch.tell_of(uid, "no room"))

    (event,) = cluster.events
    assert (event.regarding.kind, event.regarding.name) == ("PodGroup", "new")
    assert event.note == '"new-1" was refused, 1 of 2 members are bound: no room'


@pytest.mark.parametrize("seed", range(50))
def test_every_gang_runs_in_the_end(seed: int) -> None:
    """Whatever order a greedy scheduler binds in, two slots serve two gangs of two, or three.

    A gang that has all its members runs for a while, ends, and leaves its slots.
    """
    rng = random.Random(seed)  # noqa: S311 -- a schedule that can be repeated
    gangs = ("old", "mid", "new")[: rng.choice([2, 3])]
    cluster = Cluster(gangs=gangs)
    for gang in gangs:
        cluster.add(member(f"{gang}-0"), member(f"{gang}-1"))
    served: list[str] = []

    for _ in range(400):
        cluster.now += rng.choice([1, 20, 60])
        schedule(cluster, rng)
        cluster.sweep(EVICT)
        served += ended(cluster, rng)

    assert sorted(served) == sorted(gangs)


def schedule(cluster: Cluster, rng: random.Random) -> None:
    """Bind any pod that waits, while one of the two slots is free."""
    waiting = [name for name, pod in cluster.pods.items() if not pod.node]
    busy = len(cluster.pods) - len(waiting)
    for name in rng.sample(waiting, min(len(waiting), 2 - busy)):
        cluster.pods[name] = replace(cluster.pods[name], node="n0")


def ended(cluster: Cluster, rng: random.Random) -> list[str]:
    """End gangs that run, now and then, and return which."""
    found = []
    for gang in cluster.gangs:
        pods = [name for name, pod in cluster.pods.items() if pod.group == gang and pod.node]
        if len(pods) == cluster.least and rng.random() < 0.3:
            for name in pods:
                del cluster.pods[name]
            found.append(gang)
    return found
