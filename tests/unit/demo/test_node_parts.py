"""The nodes of the demo: records by the code of the agent."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from allocator.audit.lines import line_of
from allocator.audit.record import (
    AllocatedRecord,
    AnyRecord,
    Component,
    HealthRecord,
    StartedRecord,
    ViolationRecord,
    parse_record,
)
from allocator.ledger.commit import commit_all
from allocator.model.request import Mode
from demo.cluster import DemoCluster
from demo.node_parts import DemoNodes
from demo.timeline import Timeline
from tests.builders.gpunodes import entry
from tests.builders.model import A100_40, T4, gpu, mig_grant, node, soft_grant

END = datetime(2026, 11, 24, 23, 0, tzinfo=UTC)
HARD = entry("hard", mig_grant("2g.10gb", 0, gpu="GPU-n0-0"))
SOFT = entry("soft", soft_grant(4000, 20, gpu="GPU-n0-1"))


class Records(list[Mapping[str, Any]]):
    """A sink that keeps what it takes."""

    def remember(self, record: Mapping[str, Any], /) -> None:
        self.append(record)

    @property
    def read(self) -> list[AnyRecord]:
        return [parse_record(line_of(record) or b"") for record in self]


@pytest.fixture
def found() -> Records:
    return Records()


@pytest.fixture
def nodes(found: Records) -> DemoNodes:
    there = node("n0", gpu(A100_40, mode=Mode.MIG), gpu(T4, index=1))
    cluster = DemoCluster([there], created="2026-10-21T09:00:00Z")
    ledger = cluster.ledger("n0")
    assert ledger is not None
    for one in (HARD, SOFT):
        stamped = {"vgpu-admission.io/decision": f"d-{one.uid}"}
        cluster.pods["team-a", one.pod] = {"metadata": {"uid": one.uid, "annotations": stamped}}
    path = "/apis/vgpu-admission.io/v1alpha1/gpunodes/n0"
    asyncio.run(cluster.json_patch(path, commit_all(ledger, [HARD, SOFT])))
    return DemoNodes(cluster, found, Timeline(END), version="1.2.3")


def test_a_start_is_recorded_by_the_agent(nodes: DemoNodes, found: Records) -> None:
    """A container of a MIG share is told its instance, and is seen once."""
    for _ in range(2):
        nodes.allocate("n0", HARD)
        asyncio.run(nodes.see_started("n0", HARD))

    allocated, started = found.read
    assert isinstance(allocated, AllocatedRecord)
    assert isinstance(started, StartedRecord)
    (device,) = allocated.devices
    assert (device.profile, device.start, device.memory_mib) == ("2g.10gb", 0, 9856)
    assert device.instance.startswith("MIG-")
    assert {one.component for one in (allocated, started)} == {Component.AGENT}
    assert {one.digest for one in (allocated, started)} == {"d-hard"}
    assert started.container == "main"


def test_a_share_in_software_that_is_kept_violates_nothing(
    nodes: DemoNodes, found: Records
) -> None:
    """The agent's own rule decides, with its allowance for contexts."""
    nodes.observe("n0", SOFT, 4000)

    assert found.read == []


def test_more_memory_than_promised_is_a_violation(nodes: DemoNodes, found: Records) -> None:
    """The note names what is held and what was promised."""
    nodes.observe("n0", SOFT, 9000)

    (violation,) = found.read
    assert isinstance(violation, ViolationRecord)
    assert (violation.violation, violation.pod_uid) == ("memory", "soft")
    assert violation.text.startswith("uses 9000 of 4000 MiB on GPU-n0-1")


def test_a_gpu_that_fails_is_recorded(nodes: DemoNodes, found: Records) -> None:
    """With the reason that its agent reports, and with its return."""
    nodes.report_health("n0", "GPU-n0-1", "XID 79")
    nodes.report_health("n0", "GPU-n0-1", "")

    failed, back = found.read
    assert isinstance(failed, HealthRecord)
    assert isinstance(back, HealthRecord)
    assert (failed.gpu, failed.healthy, failed.text) == ("GPU-n0-1", False, "XID 79")
    assert back.healthy
