"""The monitor: its figures are what a program did, and what is wrong is told within two seconds."""

import asyncio
from pathlib import Path

import pytest

from agent.core.samples import Measured
from agent.core.violation import Kind
from agent.shell.monitor import AGAIN
from allocator.core.settings import Enforcement
from tests.fakes.hami_core import Tenant
from tests.fakes.kube_clock import FakeClock
from tests.integration.agent.monitored import Node
from tests.integration.agent.shares import GIB, GPU, NEIGHBOUR, OTHER, UID, share


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def measured(node: Node, gpu: str = GPU, uid: str = UID) -> Measured:
    figures = node.monitor.figures
    assert figures is not None
    return figures.measured[uid, "main", gpu]


def test_figures_are_what_the_program_did(node: Node) -> None:
    """Bytes by the library's count and by the driver's, compute, and when it last launched."""
    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        node.enrol(tenant)
        node.use(tenant, 3400, percent=37)
        tenant.tell(f"alloc 0 {3 * GIB}")
        tenant.tell(f"free 0 {GIB}")
        tenant.tell("launch")
        node.look()
        found = measured(node)

    assert (found.memory, found.host, found.cores) == (2 * GIB, 3400 * 1024**2, 37)
    assert found.last_kernel is not None


def test_nothing_is_known_before_the_first_process(node: Node) -> None:
    """The driver says that nobody is there; the library has said nothing yet."""
    node.look()
    before = measured(node)
    node.seed(share())
    node.look()

    assert before == measured(node) == Measured(memory=None, host=0, cores=0, last_kernel=None)


def test_what_a_killed_process_held_is_free(node: Node) -> None:
    """Its slot stays, and does not count."""
    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        node.enrol(tenant)
        node.use(tenant, 3400)
        tenant.tell(f"alloc 0 {3 * GIB}")
        node.look()
        before = measured(node).memory
        node.kill(tenant)
        node.look()

    assert (before, measured(node).memory) == (3 * GIB, 0)


def test_a_process_learns_its_number_on_the_node(node: Node) -> None:
    """Without it the library limits no compute."""
    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        node.enrol(tenant)
        before = tenant.tell("launch")
        node.look()

        assert (before, tenant.tell("host")) == ("free", str(tenant.pid))
        assert tenant.tell("launch") == "limited 30"


def test_a_lone_container_runs_free_until_another_is_active(tmp_path: Path) -> None:
    """With a library that reads its switch again and again."""
    other = share(uid=NEIGHBOUR, pod="train-1")
    node = Node(tmp_path, promised=(share(), other), following=True)
    first, second = node.seed(share()), node.seed(other)
    with Tenant(first, uuids=(GPU,)) as one, Tenant(second, uuids=(GPU,)) as two:
        node.enrol(one)
        node.enrol(two, uid=NEIGHBOUR)
        for tenant in (one, two):
            tenant.tell("launch")
        node.look()
        crowded = one.tell("launch")
        two.exit()
        node.look()

        assert (crowded, one.tell("launch")) == ("limited 30", "free")


def test_a_violation_is_told_once(node: Node) -> None:
    """At the first look that finds it, by an Event, a counter, and figures while it lasts."""
    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        node.enrol(tenant)
        node.use(tenant, 12000)
        node.look()
        node.use(tenant, 12001)
        node.look()

    (event,) = node.events
    assert (event.reason, event.regarding.uid) == ("VgpuLimitBreached", UID)
    assert "12000 of 8192 MiB" in event.note
    assert (node.counted, node.evictions) == ([Kind.MEMORY], [])
    assert node.monitor.figures is not None
    assert [v.kind for v in node.monitor.figures.violations] == [Kind.MEMORY]


def test_eviction_follows_at_the_second_look_and_is_not_repeated_at_once(node: Node) -> None:
    """What may be out of date is confirmed; what is not gone is asked for again after a while."""
    node.wanted = Enforcement.EVICT
    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        node.enrol(tenant)
        node.use(tenant, 500, gpu=OTHER)
        counts = []
        for pause in (1, 1, AGAIN / 2, AGAIN):
            node.look()
            counts.append(len(node.evictions))
            node.clock.now += pause
        node.look()

    assert counts == [0, 1, 1, 1]
    assert len(node.evictions) == 2
    assert [event.reason for event in node.events] == ["VgpuUnpromisedUse"]


def test_what_a_silent_gpu_does_not_confirm_is_not_over(node: Node) -> None:
    """A driver that fails for a moment makes no second Event of one violation."""
    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        node.enrol(tenant)
        node.use(tenant, 12000)
        node.look()
        node.lose(GPU)
        node.look()
        node.lose(GPU, lost=False)
        node.look()

    assert len(node.events) == 1


def test_what_nobody_was_promised_is_foreign(node: Node) -> None:
    """A pod without an entry holds memory that must not be promised to another."""
    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        node.enrol(tenant, uid=NEIGHBOUR)
        node.use(tenant, 700)
        node.look()

    assert node.monitor.foreign == {GPU: 700, OTHER: 0}
    assert node.events == []


class EnoughError(Exception):
    """Three looks are over."""


class Bounded(FakeClock):
    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        if len(self.slept) == 3:
            raise EnoughError


@pytest.mark.parametrize("wanted", list(Enforcement))
def test_two_looks_are_never_two_seconds_apart(tmp_path: Path, wanted: Enforcement) -> None:
    """Where a pod may be evicted, the look that confirms follows even sooner."""
    node = Node(tmp_path, wanted=wanted, clock=Bounded())
    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        node.enrol(tenant)
        node.use(tenant, 12000)
        with pytest.raises(EnoughError):
            asyncio.run(node.monitor.run())

    assert max(node.clock.slept) < 2
    assert (node.clock.slept[0] < 1) == (wanted is Enforcement.EVICT)


def test_a_look_that_fails_is_not_the_last(tmp_path: Path) -> None:
    """It is counted, and the next one comes as if nothing had been."""
    node = Node(tmp_path, clock=Bounded(), broken=True)

    with pytest.raises(EnoughError):
        asyncio.run(node.monitor.run())

    assert node.failures == 3
