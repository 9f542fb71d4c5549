"""The monitor: its figures are what a program did, and what is wrong is told within two seconds."""

import asyncio
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.driver.driver import DriverError
from agent.monitor.drift import LASTING_SECONDS
from agent.monitor.monitor_controller import EVICTION_INTERVAL, GPU_TIMEOUT, INTERVAL
from agent.monitor.samples import MeasuredUse
from agent.monitor.violation import ViolationKind
from agent.region.feedback import ACTIVE_SECONDS
from agent.region.layout import SEEDED
from agent.serve.node_records import NodeRecords
from allocator.audit.record import Component
from allocator.audit.record_source import RecordSource
from allocator.audit.record_writer import RecordWriter
from allocator.config.settings import Enforcement
from allocator.model.request import Priority
from tests.fakes.hami_core import Tenant, enrol
from tests.fakes.kube_clock import FakeClock
from tests.harness.records import KeptRecords
from tests.integration.agent.monitored import MonitoredNode
from tests.integration.agent.shares import GIB, GPU, ID, NEIGHBOUR, OTHER, UID, share


@pytest.fixture
def node(tmp_path: Path) -> MonitoredNode:
    return MonitoredNode(tmp_path)


def measured(node: MonitoredNode, gpu: str = GPU, uid: str = UID) -> MeasuredUse:
    figures = node.monitor.snapshot
    assert figures is not None
    return figures.measured[uid, "main", gpu]


def test_figures_are_what_the_program_did(node: MonitoredNode) -> None:
    """Bytes by the library's count and by the driver's, compute, and when it last launched."""
    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        node.enrol(tenant)
        node.use(tenant, 3400, percent=37)
        tenant.tell(f"alloc 0 {3 * GIB}")
        tenant.tell(f"free 0 {GIB}")
        tenant.tell("launch")
        node.run_cycle()
        found = measured(node)

    assert (found.memory, found.host, found.cores) == (2 * GIB, 3400 * 1024**2, 37)
    assert found.last_kernel is not None


def test_the_first_process_of_a_container_is_recorded(node: MonitoredNode) -> None:
    """Once, when the driver sees it, and under the name that the API server has for it."""
    kept = KeptRecords()
    source = RecordSource(Component.AGENT)
    writer = RecordWriter(sink=kept, source=source, now=lambda: datetime.now(UTC))
    node.monitor.on_observed = NodeRecords(
        "gpu-1", writer, digest_of=lambda _: "k7q2m4x9tb"
    ).write_started
    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        node.enrol(tenant)
        node.run_cycle()
        before = len(kept)
        node.use(tenant, 3400)
        for _ in range(3):
            node.run_cycle()

    (record,) = kept.of("started")
    assert before == 0
    assert (record["container"], record["pod_uid"]) == ("main", UID)
    assert (record["node"], record["digest"]) == ("gpu-1", "k7q2m4x9tb")


def test_nothing_is_known_before_the_first_process(node: MonitoredNode) -> None:
    """The driver says that nobody is there; the library has said nothing yet."""
    node.run_cycle()
    before = measured(node)
    node.seed(share())
    node.run_cycle()

    assert before == measured(node) == MeasuredUse(memory=None, host=0, cores=0, last_kernel=None)


def test_what_a_killed_process_held_is_free(node: MonitoredNode) -> None:
    """Its slot stays, and does not count."""
    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        node.enrol(tenant)
        node.use(tenant, 3400)
        tenant.tell(f"alloc 0 {3 * GIB}")
        node.run_cycle()
        before = measured(node).memory
        node.kill(tenant)
        node.run_cycle()

    assert (before, measured(node).memory) == (3 * GIB, 0)


def test_a_process_learns_its_number_on_the_node(node: MonitoredNode) -> None:
    """Without it the library limits no compute."""
    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        node.enrol(tenant)
        before = tenant.tell("launch")
        node.run_cycle()

        assert (before, tenant.tell("host")) == ("free", str(tenant.pid))
        assert tenant.tell("launch") == "limited 30"


def test_a_lone_container_runs_free_until_another_is_active(tmp_path: Path) -> None:
    """With a library that is known to read its switch again and again."""
    other = share(uid=NEIGHBOUR, pod="train-1")
    node = MonitoredNode(tmp_path, promised=(share(), other))
    env = {"CUDA_DEVICE_SM_LIMIT": "30"}
    one, two = (
        Tenant(node.region(of, seeded=False), uuids=(GPU,), generation="C", env=env)
        for of in (share(), other)
    )
    with one, two:
        node.enrol(one)
        node.enrol(two, uid=NEIGHBOUR)
        for tenant in (one, two):
            tenant.tell("launch")
        node.run_cycle()
        crowded = one.tell("launch")
        two.exit()
        node.run_cycle()

        assert (crowded, one.tell("launch")) == ("limited 30", "free")


@pytest.mark.parametrize("generation", "ABCDE")
def test_who_goes_first_holds_back_the_others_while_it_computes(
    tmp_path: Path, generation: str
) -> None:
    """By the promise, with every generation of the library; and nobody when the agent is gone."""
    low = share()
    high = share(uid=NEIGHBOUR, pod="train-1", priority=Priority.HIGH)
    node = MonitoredNode(tmp_path, promised=(low, high))
    files = [node.region(one, seeded=generation == "E") for one in (low, high)]
    tenants = [
        Tenant(file, uuids=(GPU,), generation=generation, env={"CUDA_TASK_PRIORITY": text})
        for file, text in zip(files, ("0", "1"), strict=True)
    ]
    with tenants[0] as patient, tenants[1] as urgent:
        node.enrol(patient)
        node.enrol(urgent, uid=NEIGHBOUR)
        node.run_cycle()
        urgent.tell("launch")
        node.run_cycle()
        meanwhile = patient.tell("launch"), urgent.tell("launch")
        figures = node.monitor.snapshot
        asyncio.run(node.monitor.release())
        without_us = patient.tell("launch")
        urgent.tell("launch")
        node.run_cycle()
        again = patient.tell("launch")
        node.ahead = ACTIVE_SECONDS + 2.0
        node.run_cycle()
        node.run_cycle()

        assert meanwhile[0] == again == "blocked"
        assert figures is not None
        assert figures.held_back == {(UID, "main")}
        assert "blocked" not in {meanwhile[1], without_us, patient.tell("launch")}


def test_who_computes_beyond_its_promise_waits_until_that_is_made_up_for(
    node: MonitoredNode,
) -> None:
    """By the driver's figures; and whom nothing holds back is told, and not evicted."""
    node.enforced = Enforcement.EVICT
    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        node.enrol(tenant)

        def look(percent: int) -> bool:
            node.use(tenant, 600, percent=percent)
            node.ahead += INTERVAL
            node.run_cycle()
            return tenant.tell("launch") == "blocked"

        greedy = [look(100) for _ in range(5)]
        waits = node.monitor.snapshot
        idle = [look(0) for _ in range(8)]
        assert not node.counted_violations
        unheld = [look(100) for _ in range(12)]

    assert (greedy[0], greedy[-1], idle[-1], unheld[-1]) == (False, True, False, True)
    assert waits is not None
    assert waits.held_back == {(UID, "main")}
    (event,) = node.events
    assert event.reason == "VgpuLimitBreached"
    assert "beyond the 30 % of its entry" in event.note
    assert (node.counted_violations, node.evictions) == ([ViolationKind.COMPUTE], [])


def test_a_violation_is_told_once(node: MonitoredNode) -> None:
    """At the first look that finds it, by an Event, a counter, and figures while it lasts."""
    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        node.enrol(tenant)
        node.use(tenant, 12000)
        node.run_cycle()
        node.use(tenant, 12001)
        node.run_cycle()

    (event,) = node.events
    assert (event.reason, event.regarding.uid) == ("VgpuLimitBreached", UID)
    assert "12000 of 8192 MiB" in event.note
    assert (node.counted_violations, node.evictions) == ([ViolationKind.MEMORY], [])
    assert node.monitor.snapshot is not None
    assert [v.kind for v in node.monitor.snapshot.violations] == [ViolationKind.MEMORY]


def test_eviction_follows_at_the_second_look_and_is_not_repeated_at_once(
    node: MonitoredNode,
) -> None:
    """What may be out of date is confirmed; what is not gone is asked for again after a while."""
    node.enforced = Enforcement.EVICT
    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        node.enrol(tenant)
        node.use(tenant, 500, gpu=OTHER)
        counts = []
        for pause in (1, 1, EVICTION_INTERVAL / 2, EVICTION_INTERVAL):
            node.run_cycle()
            counts.append(len(node.evictions))
            node.clock.now += pause
        node.run_cycle()

    assert counts == [0, 1, 1, 1]
    assert len(node.evictions) == 2
    assert [event.reason for event in node.events] == ["VgpuUnpromisedUse", "VgpuDrift"]


def test_what_a_silent_gpu_does_not_confirm_is_not_over_and_evicts_nobody(
    node: MonitoredNode,
) -> None:
    """A driver that fails for a moment makes no second Event, and no second look, of one."""
    node.enforced = Enforcement.EVICT
    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        node.enrol(tenant)
        node.use(tenant, 12000)
        node.run_cycle()
        node.lose(GPU)
        node.run_cycle()
        unconfirmed = len(node.evictions)
        node.lose(GPU, lost=False)
        node.run_cycle()

    assert (len(node.events), unconfirmed, len(node.evictions)) == (1, 0, 1)


def test_while_the_driver_hangs_regions_are_looked_after(node: MonitoredNode) -> None:
    """Nobody waits for what would not come; limits that were changed are put right as before."""
    gate, hanging = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        gate.wait()

    async def story() -> None:
        while not hanging.is_set():  # on a busy machine a call may be given up before it begins
            with pytest.raises(DriverError):
                await node.worker.call(hang, within=0.05)
        async with asyncio.timeout(
            2 * GPU_TIMEOUT
        ):  # which each look that waited would take half of
            for _ in range(3):
                await node.monitor.run_cycle()

    file = node.seed(share())
    with file.open("r+b") as region:
        region.seek(SEEDED.memory_limits)
        region.write(bytes(8))
    try:
        asyncio.run(story())
    finally:
        gate.set()

    assert node.counted_violations == [ViolationKind.LIMITS]
    assert measured(node) == MeasuredUse()


def test_what_nobody_was_promised_is_foreign(node: MonitoredNode) -> None:
    """A pod without an entry holds memory that must not be promised to another."""
    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        node.enrol(tenant, uid=NEIGHBOUR)
        node.use(tenant, 700)
        node.run_cycle()

    assert node.monitor.foreign == {GPU: 700, OTHER: 0}
    assert node.events == []


def test_where_pods_without_a_share_run_is_known_while_a_gpu_is_silent(
    node: MonitoredNode,
) -> None:
    """What is charged to them must not move because a driver fails for a moment."""

    def reached() -> dict[str, frozenset[str]]:
        node.run_cycle()
        assert node.monitor.snapshot is not None
        return dict(node.monitor.snapshot.reached)

    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        node.enrol(tenant, uid=NEIGHBOUR)
        node.use(tenant, 700)
        seen = reached()
        node.lose(GPU)
        silent = reached()

    assert seen == silent == {NEIGHBOUR: {GPU}}


def test_what_nobody_answers_for_is_told_once_of_the_node(node: MonitoredNode) -> None:
    """Once it has lasted; a GPU that is silent for a moment ends nothing."""
    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        enrol(node.root / "proc", tenant.pid, uid=NEIGHBOUR, container=ID)
        node.use(tenant, 700)
        told = []
        for lost in (False, False, True, False, False):
            node.lose(GPU, lost=lost)
            node.run_cycle()
            told.append(len(node.events))
            node.clock.now += LASTING_SECONDS / 2

    assert told == [0, 0, 1, 1, 1]
    (event,) = node.events
    assert (event.reason, event.regarding.kind, event.related) == ("VgpuDrift", "Node", None)
    assert GPU in event.note


def test_figures_of_a_node_that_nobody_knows_any_more_end(node: MonitoredNode) -> None:
    """Stale ones would say that they were measured now."""
    node.run_cycle()
    before = node.monitor.snapshot
    node.promised = None
    node.run_cycle()

    assert before is not None
    assert node.monitor.snapshot is None


class EnoughError(Exception):
    """Three looks are over."""


class ThreeCyclesClock(FakeClock):
    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        if len(self.slept) == 3:
            raise EnoughError


@pytest.mark.parametrize("wanted", list(Enforcement))
def test_two_looks_are_never_two_seconds_apart(tmp_path: Path, wanted: Enforcement) -> None:
    """Where a pod may be evicted, the look that confirms follows even sooner."""
    node = MonitoredNode(tmp_path, enforced=wanted, clock=ThreeCyclesClock())
    with Tenant(node.seed(share()), uuids=(GPU,)) as tenant:
        node.enrol(tenant)
        node.use(tenant, 12000)
        with pytest.raises(EnoughError):
            asyncio.run(node.monitor.run())

    assert max(node.clock.slept) < 2
    assert (node.clock.slept[0] < 1) == (wanted is Enforcement.EVICT)


def test_a_look_that_fails_is_not_the_last(tmp_path: Path) -> None:
    """It is counted, and the next one comes as if nothing had been."""
    node = MonitoredNode(tmp_path, clock=ThreeCyclesClock(), broken=True)

    with pytest.raises(EnoughError):
        asyncio.run(node.monitor.run())

    assert node.failures == 3
