"""Gangs that wait for each other's room, and gangs that only seem to."""

from allocator.catalog.vocabularies import VOCABULARIES
from allocator.core.contest import Contest
from allocator.model.request import Mode
from allocator.shell.gangs import JUDGED_EVERY, Gangs
from kube.clock import Clock
from tests.builders import ask, pod
from tests.unit.allocator.test_gangs import EVICT, TIMEOUT, Cluster, deadlock, member

SLICE = pod(ask(11000), mode=Mode.MIG)


def held_up(cluster: Cluster) -> list[str]:
    """Return who is evicted in the end."""
    for cluster.now in (0, TIMEOUT, 2 * TIMEOUT):
        cluster.sweep(EVICT)
    return cluster.evicted


def test_gangs_that_want_different_gpus_are_left_alone() -> None:
    """The older one waits for a half of n0, and the younger one has nothing but a slice of n1."""
    cluster = Cluster(wishes={"new": SLICE})
    cluster.add(member("old-0", node="n0"), member("old-1"), member("single", node="n0"))
    cluster.add(member("new-0", node="n1"), member("new-1"))

    assert held_up(cluster) == []
    assert {"old: VgpuGangStuck", "new: VgpuGangStuck"} <= {*cluster.reasons()}


def test_a_gang_that_finds_room_anyway_needs_nobody_to_go() -> None:
    """A half is free where the younger one is: something else keeps its scheduler from it."""
    cluster = Cluster(wishes={"new": pod(ask(40000), mode=Mode.HAMI_CORE)})
    cluster.add(member("old-0", node="n1"), member("old-1"))
    cluster.add(member("new-0", node="n0"), member("new-1"))

    assert held_up(cluster) == []


def test_a_gang_of_which_nobody_knows_what_it_wants_drives_nobody_out() -> None:
    """In doubt nobody's pods are evicted."""
    cluster = deadlock()
    cluster.wishes["old"] = None

    assert held_up(cluster) == []


def test_the_youngest_that_is_in_the_way_lets_go() -> None:
    """A still younger gang, whose GPUs are no use to anybody, stays."""
    cluster = Cluster(gangs=("old", "new", "apart"), wishes={"apart": SLICE})
    cluster.add(member("old-0", node="n0"), member("old-1"))
    cluster.add(member("new-0", node="n0"), member("new-1"))
    cluster.add(member("apart-0", node="n1"), member("apart-1"), member("apart-2"))
    cluster.least = 3

    assert held_up(cluster)[0] == "new-0"
    assert "apart-0" not in cluster.evicted


def test_who_waits_for_whom_is_not_asked_every_second() -> None:
    """A look takes its time, and a sweep comes each second."""
    cluster = Cluster(wishes={"new": SLICE})
    cluster.add(member("old-0", node="n0"), member("old-1"), member("single", node="n0"))
    cluster.add(member("new-0", node="n1"), member("new-1"))
    asked: list[float] = []

    def contest() -> Contest:
        asked.append(cluster.now)
        return cluster.contest()

    cluster.gang_watch = Gangs(
        cluster,
        cluster.known,
        vocabularies=lambda: VOCABULARIES,
        contest=contest,
        tell=cluster.events.append,
        clock=Clock(monotonic=lambda: cluster.now),
    )

    for second in range(int(TIMEOUT + 2 * JUDGED_EVERY)):
        cluster.now = float(second)
        cluster.sweep(EVICT)

    assert asked == [TIMEOUT, TIMEOUT + JUDGED_EVERY]
