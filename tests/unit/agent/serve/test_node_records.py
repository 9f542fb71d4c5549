"""Records of a node are by the schema, and written where something is news."""

from datetime import UTC, datetime

import orjson
import pytest

from agent.deviceplugin.container_edits import ContainerEdits
from agent.driver.driver import Process
from agent.mig.progress import Outcome
from agent.monitor.violation import (
    LocalPod,
    LocatedProcess,
    ObservedUse,
    Violation,
    ViolationKind,
)
from agent.node.cgroup import PodCgroup
from agent.serve.node_records import LONGEST_TEXT, NodeRecords
from agent.share import Owner, Share
from allocator.audit.record import (
    AllocatedRecord,
    AnyRecord,
    Component,
    DevicePart,
    EvictedRecord,
    HealthRecord,
    ReconfiguredRecord,
    StartedRecord,
    StartRefusedRecord,
    ViolationRecord,
)
from allocator.audit.record_source import RecordSource
from allocator.audit.record_writer import RecordWriter
from allocator.model.allocation import Grant
from allocator.model.request import Mode
from allocator.model.units import CorePercent, MiB
from console.receive.sender import Sender, rejection
from tests.builders.hostile_text import HOSTILE_TEXTS
from tests.builders.model import placed
from tests.fakes.kube_clock import FakeClock
from tests.harness.records import KeptRecords, strict_record

OWNER = Owner(uid="uid-1", namespace="team-a", pod="train-0", containers=("main",))
POD = LocalPod(uid="uid-1", namespace="team-a", name="train-0", containers={"c" * 64: "main"})
NOW = datetime(2026, 11, 24, tzinfo=UTC)
MIG = Grant(
    gpu="GPU-1", mode=Mode.MIG, memory=MiB(4864), cores=CorePercent(0), placed=placed("1g.5gb", 2)
)
SHARED = Grant(gpu="GPU-2", mode=Mode.HAMI_CORE, memory=MiB(8000), cores=CorePercent(30))


class WrittenRecords:
    """NodeRecords, and what they wrote."""

    def __init__(self) -> None:
        self.kept = KeptRecords()
        self.fake_clock = FakeClock()
        self.restart()

    def restart(self) -> None:
        """Begin with a new agent, which knows nothing of what the one before wrote."""
        source = RecordSource(Component.AGENT, instance="vgpu-agent-x", version="1.2.3")
        writer = RecordWriter(sink=self.kept, source=source, now=lambda: NOW)
        digests = {"uid-1": "k7q2m4x9tb"}
        self.records = NodeRecords(
            "gpu-1",
            writer,
            digest_of=lambda uid: digests.get(uid, ""),
            clock=self.fake_clock.clock(),
        )

    @property
    def parsed(self) -> list[AnyRecord]:
        """Return all that was written, each of which a console takes from the agent of gpu-1."""
        found = [strict_record(orjson.dumps(record)) for record in self.kept]
        sender = Sender(component=Component.AGENT, node="gpu-1")
        now = int(NOW.timestamp() * 1000)
        assert [rejection(record, sender, now) for record in found] == [""] * len(found)
        return found


@pytest.fixture
def written() -> WrittenRecords:
    return WrittenRecords()


def share(*grants: Grant, owner: Owner = OWNER) -> Share:
    return Share(owner=owner, grants=grants, key="c0")


def observed(*processes: LocatedProcess, pods: tuple[LocalPod, ...] = (POD,)) -> ObservedUse:
    return ObservedUse(
        processes=processes, shares=(share(SHARED),), pods={pod.uid: pod for pod in pods}
    )


def process(*, uid: str = "uid-1", container: str | None = "c" * 64) -> LocatedProcess:
    return LocatedProcess(Process(pid=7, gpu="GPU-2", memory=None), PodCgroup(uid, container))


def test_every_record_says_of_which_pod_and_node_it_is(written: WrittenRecords) -> None:
    """With the digest on the pod and the program; nobody called, so there is no caller."""
    written.records.write_eviction(POD, "uses GPU-1 without an entry")

    (record,) = written.parsed
    assert isinstance(record, EvictedRecord)
    assert (record.node, record.namespace, record.pod) == ("gpu-1", "team-a", "train-0")
    assert (record.pod_uid, record.digest) == ("uid-1", "k7q2m4x9tb")
    assert (record.component, record.instance) == (Component.AGENT, "vgpu-agent-x")
    assert (record.version, record.caller) == ("1.2.3", ())
    assert record.text == "uses GPU-1 without an entry"


def test_an_allocation_names_the_devices(written: WrittenRecords) -> None:
    """A MIG instance by its UUID, its profile and where it starts."""
    edits = ContainerEdits(env=(), shown=("MIG-7", "GPU-2"))
    written.records.write_allocation("slot-0000", share(MIG, SHARED), edits)

    (record,) = written.parsed
    assert isinstance(record, AllocatedRecord)
    assert (record.container, record.waited_seconds) == ("main", None)
    assert record.devices == (
        DevicePart(
            gpu="GPU-1",
            mode="mig",
            memory_mib=4864,
            cores_percent=0,
            profile="1g.5gb",
            start=2,
            instance="MIG-7",
        ),
        DevicePart(gpu="GPU-2", mode="hami-core", memory_mib=8000, cores_percent=30),
    )


def test_an_allocation_is_written_once(written: WrittenRecords) -> None:
    """A container that crashes gets the same devices again; others are news."""
    for shown in ("MIG-7", "MIG-7", "MIG-8"):
        edits = ContainerEdits(env=(), shown=(shown,))
        written.records.write_allocation("slot-0000", share(MIG), edits)

    ids = [record.id for record in written.parsed]
    written.restart()
    written.records.write_allocation(
        "slot-0000", share(MIG), ContainerEdits(env=(), shown=("MIG-8",))
    )

    assert len(set(ids)) == 2
    assert written.parsed[-1].id == ids[-1]  # which a console knows


def test_an_allocation_says_how_long_its_container_was_refused(written: WrittenRecords) -> None:
    """From the first refusal of this pod in the slot."""
    other = Owner(uid="uid-2", namespace="team-a", pod="train-1", containers=("main",))
    written.records.write_refusal("slot-0000", other, "busy")
    written.fake_clock.now += 5
    written.records.write_refusal("slot-0000", OWNER, "busy")
    written.fake_clock.now += 20
    written.records.write_refusal("slot-0000", OWNER, "busy")
    written.fake_clock.now += 2.5
    written.records.write_allocation(
        "slot-0000", share(SHARED), ContainerEdits(env=(), shown=("GPU-2",))
    )

    last = written.parsed[-1]
    assert isinstance(last, AllocatedRecord)
    assert last.waited_seconds == 22.5


def test_a_refusal_whose_numbers_alone_change_is_not_repeated(written: WrittenRecords) -> None:
    """Another reason is news, and so is the next pod in the slot."""
    other = Owner(uid="uid-2", namespace="team-a", pod="train-1", containers=("main",))
    for why in ("in use by pid 7", "in use by pid 8", "MIG mode is off", "in use by pid 9"):
        written.records.write_refusal("slot-0000", OWNER, why)
    written.records.write_refusal("slot-0000", other, "in use by pid 9")

    found = [(r.text, r.pod, r.digest) for r in written.parsed if isinstance(r, StartRefusedRecord)]
    assert found == [
        ("in use by pid 7", "train-0", "k7q2m4x9tb"),
        ("MIG mode is off", "train-0", "k7q2m4x9tb"),
        ("in use by pid 9", "train-0", "k7q2m4x9tb"),
        ("in use by pid 9", "train-1", ""),
    ]


def test_a_reconfiguration_that_keeps_failing_is_written_once(written: WrittenRecords) -> None:
    """Each that is done is written."""
    for outcome, note in (
        (Outcome.FAILED, "try 1"),
        (Outcome.FAILED, "try 2"),
        (Outcome.FAILED, "another reason"),
        (Outcome.DONE, "1g.5gb at 0 in 0.1 s"),
        (Outcome.DONE, "1g.5gb at 0 in 0.2 s"),
        (Outcome.FAILED, "try 3"),
    ):
        written.records.write_reconfiguration("GPU-1", outcome, note)

    found = [(r.gpu, r.done, r.text) for r in written.parsed if isinstance(r, ReconfiguredRecord)]
    assert found == [
        ("GPU-1", False, "try 1"),
        ("GPU-1", False, "another reason"),
        ("GPU-1", True, "1g.5gb at 0 in 0.1 s"),
        ("GPU-1", True, "1g.5gb at 0 in 0.2 s"),
        ("GPU-1", False, "try 3"),
    ]


def test_health_is_written_both_ways(written: WrittenRecords) -> None:
    """With the reason, where there is one."""
    written.records.write_health("GPU-1", "Xid 79")
    written.records.write_health("GPU-1", "")

    found = [(r.gpu, r.healthy, r.text) for r in written.parsed if isinstance(r, HealthRecord)]
    assert found == [("GPU-1", False, "Xid 79"), ("GPU-1", True, "")]


@pytest.mark.parametrize("kind", ViolationKind)
def test_a_violation_names_its_container(written: WrittenRecords, kind: ViolationKind) -> None:
    """Where it is known."""
    for container in ("main", ""):
        written.records.write_violation(
            Violation(kind=kind, pod=POD, container=container, gpu="GPU-1", note="too much")
        )

    found = [
        (r.violation, r.text, r.container) for r in written.parsed if isinstance(r, ViolationRecord)
    ]
    assert found == [(kind, "too much", "main"), (kind, "too much", "")]


def test_a_container_has_started_once_its_first_process_is_seen(written: WrittenRecords) -> None:
    """Once for each container that the runtime made, also if the agent restarts."""
    written.records.write_started(observed())
    for _ in range(3):
        written.records.write_started(observed(process(), process()))
    written.restart()
    written.records.write_started(observed(process()))
    again = LocalPod(uid="uid-1", namespace="team-a", name="train-0", containers={"d" * 64: "main"})
    written.records.write_started(observed(process(container="d" * 64), pods=(again,)))

    first, same, restarted = written.parsed
    assert isinstance(first, StartedRecord)
    assert (first.container, first.pod) == ("main", "train-0")
    assert first.id == same.id != restarted.id


@pytest.mark.parametrize(
    "stranger",
    [
        pytest.param(process(uid="uid-9"), id="no-entry"),
        pytest.param(process(container=None), id="no-container"),
        pytest.param(process(container="e" * 64), id="a-name-not-known-yet"),
        pytest.param(LocatedProcess(Process(pid=7, gpu="GPU-2", memory=None), None), id="no-pod"),
    ],
)
def test_processes_of_no_promised_container_start_nothing(
    written: WrittenRecords, stranger: LocatedProcess
) -> None:
    """Violations tell of the others."""
    written.records.write_started(observed(stranger))

    assert written.parsed == []


@pytest.mark.parametrize("text", [*HOSTILE_TEXTS.values(), "x" * 100_000])
def test_what_tenants_wrote_is_cut_and_escaped(written: WrittenRecords, text: str) -> None:
    """Wherever it stands."""
    pod = LocalPod(uid=text, namespace=text, name=text)
    owner = Owner(uid=text, namespace=text, pod=text, containers=(text,))
    written.records.write_eviction(pod, text)
    written.records.write_refusal("slot-0000", owner, text)
    written.records.write_violation(
        Violation(kind=ViolationKind.MEMORY, pod=pod, container=text, gpu=text, note=text)
    )
    written.records.write_health(text, text)
    written.records.write_allocation(
        "slot-0000", share(MIG, owner=owner), ContainerEdits(env=(), shown=(text,))
    )

    assert len(written.parsed) == 5
    for record in written.kept:
        for value in record.values():
            assert not isinstance(value, str) or (
                value.isprintable() and len(value) <= LONGEST_TEXT
            )
