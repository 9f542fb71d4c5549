"""What if: stored requests decided on the cluster of today."""

import msgspec
import pytest

from allocator.audit.record import AdmissionRecord, AdmissionVerdict
from allocator.config.namespace_policy import NamespacePolicy
from allocator.model.request import Filters, Mode, PodRequest
from allocator.replay.request_codec import RecordedRequest
from allocator.report.feasibility import FeasibilityVerdict
from allocator.report.terminal_lines import plain_text, printed_lines
from console.cluster.snapshot import ClusterView
from console.replay.outcome import NotReplayable
from console.replay.what_if import WhatIf, what_if, what_if_lines
from tests.builders.audit import recorded_admission
from tests.builders.gpunodes import entry, gpu_node
from tests.builders.model import A100_40, T4, ask, mig_grant, nodes_of, pod, snapshot, soft_grant
from tests.unit.console.sites import machine, site

ONE_T4 = nodes_of(1, T4, name="gpu-b")
ONE_A100 = nodes_of(1, A100_40, mode=Mode.MIG, name="gpu-a")


def recorded(request: PodRequest, *, settings: str = "", pod_uid: str = "") -> AdmissionRecord:
    found = recorded_admission(
        RecordedRequest(request=request), snapshot(ONE_T4), settings=settings, pod_uid=pod_uid
    )
    assert found.admission is not None
    return found.admission


def today(record: AdmissionRecord, cluster: ClusterView) -> WhatIf:
    found = what_if(record, cluster)
    assert isinstance(found, WhatIf)
    return found


def test_the_same_cluster_decides_the_same() -> None:
    """A request that was admitted is admitted in the same mode, and fits while a GPU is free."""
    found = today(recorded(pod(ask(4000))), site([gpu_node(ONE_T4)], [machine("gpu-b")]))

    assert found.verdict is FeasibilityVerdict.FITS
    assert not found.changed


def test_another_fleet_decides_otherwise() -> None:
    """Where MIG is there by now, the mode of admission is another one."""
    record = recorded(pod(ask(4000)))
    there = site([gpu_node(ONE_A100)], [machine("gpu-a")])

    found = today(record, there)

    assert record.mode == Mode.HAMI_CORE
    assert found.fit.choice is not None
    assert found.fit.choice.mode is Mode.MIG
    assert found.changed


def test_a_busy_cluster_has_no_room_now() -> None:
    """Admission is the same, but the pod would wait."""
    full = soft_grant(15_000, gpu="GPU-gpu-b-0")
    busy = site([gpu_node(ONE_T4, [entry("other", full)])], [machine("gpu-b")])

    found = today(recorded(pod(ask(4000))), busy)

    assert found.verdict is FeasibilityVerdict.NOT_NOW
    assert not found.changed
    lines = [plain_text(line) for line in printed_lines(what_if_lines(found))]
    assert any(line.startswith("missing") for line in lines)


def test_what_the_pod_holds_itself_counts_as_free() -> None:
    """A pod that runs is not told that its own grants are in the way."""
    held = soft_grant(15_000, gpu="GPU-gpu-b-0")
    its = site([gpu_node(ONE_T4, [entry("uid-1", held)])], [machine("gpu-b")])

    found = today(recorded(pod(ask(12_000)), pod_uid="uid-1"), its)

    assert found.verdict is FeasibilityVerdict.FITS


def test_a_refusal_that_no_longer_holds_is_a_change() -> None:
    """What a closed fleet refused is admitted where the fleet is open today."""
    record = recorded(pod(ask(90_000)), settings="fleet: closed")
    assert record.outcome is AdmissionVerdict.REFUSED

    found = today(record, site([gpu_node(ONE_T4)], [machine("gpu-b")]))

    assert found.changed
    assert found.verdict is FeasibilityVerdict.NEVER


def test_the_namespace_of_today_counts() -> None:
    """A demand that was made since refuses what names a weaker mode."""
    record = recorded(pod(ask(4000), mode=Mode.HAMI_CORE))
    demanding = NamespacePolicy(min_isolation="mig")

    found = what_if(record, site([gpu_node(ONE_T4)], [machine("gpu-b")]), policy=demanding)

    assert isinstance(found, WhatIf)
    assert found.changed
    assert found.verdict in (FeasibilityVerdict.REFUSED, FeasibilityVerdict.NEVER)
    lines = " ".join(plain_text(line) for line in printed_lines(what_if_lines(found), 200))
    assert "IsolationTooWeak" in lines


@pytest.mark.parametrize("asked", [{}, {"vocabulary": "x", "containers": [["a", 0, "app", 1]]}])
def test_a_request_that_cannot_be_read_is_told(asked: dict[str, object]) -> None:
    """Nothing is guessed for it."""
    record = msgspec.structs.replace(recorded(pod(ask(1))), asked=asked)

    assert isinstance(what_if(record, site([gpu_node(ONE_T4)])), NotReplayable)


def test_instances_are_told_with_their_slots() -> None:
    """The lines say where it would go, as ``kubectl vgpu fit`` does."""
    taken = mig_grant("1g.5gb", 0, gpu="GPU-gpu-a-0")
    there = site([gpu_node(ONE_A100, [entry("other", taken)])], [machine("gpu-a")])
    record = recorded(pod(ask(4000), filters=Filters(models=("A100",))))

    lines = [plain_text(line) for line in printed_lines(what_if_lines(today(record, there)))]

    assert any("mig, 1g.5gb at slot" in line and "gpu-a GPU 0" in line for line in lines)
