"""Audit records of the control plane on a real API server: what a pod's life leaves behind."""

import json
from collections.abc import Callable

from allocator.audit.record import (
    AdmissionRecord,
    AnyRecord,
    CertificateRecord,
    SettingsRecord,
    SnapshotRecord,
    WaitingRecord,
)
from allocator.replay.fleet_codec import decode_fleet
from allocator.replay.request_codec import decode_request
from tests.builders.pods import pod
from tests.cluster.api import Json, wait_for
from tests.cluster.installation import PODS, SETTINGS, Installation
from tests.harness.records import strict_record
from webhook.records.waiting_controller import AFTER, SWEEP_SECONDS

WAITS = AFTER + 4 * SWEEP_SECONDS


def records(
    site: Installation, is_meant: Callable[[Json], bool] = lambda _: True
) -> list[AnyRecord]:
    """Return what all replicas have recorded, as the schema has it."""
    lines = [line for replica in site.replicas for line in replica.lines()]
    return [strict_record(json.dumps(line)) for line in lines if "kind" in line and is_meant(line)]


def test_settings_are_recorded_with_who_wrote_them(gpu_site: Installation) -> None:
    """By the digest that decisions name; the API server knows the manager, not the person."""

    def found() -> list[SettingsRecord]:
        return [one for one in records(gpu_site) if isinstance(one, SettingsRecord)]

    def ours() -> list[SettingsRecord]:
        return [one for one in found() if one.configmap == "vgpu-admission-settings"]

    wait_for(ours, within=WAITS)
    stored = gpu_site.api.get(SETTINGS)

    assert ours()[-1].text == stored["data"]["settings.yaml"]
    managers = {entry["manager"] for entry in stored["metadata"]["managedFields"]}
    assert ours()[-1].author in managers
    assert ours()[-1].changed_at
    assert ours()[-1].accepted


def test_the_certificate_that_is_served_is_recorded(gpu_site: Installation) -> None:
    """With the time until which it is valid."""
    found = [one for one in records(gpu_site) if isinstance(one, CertificateRecord)]

    assert [one for one in found if one.not_after]


def test_a_pod_that_waits_and_is_deleted(gpu_site: Installation, opted_in: str) -> None:
    """Its records follow it from its creation to its end, and its decision can be made again."""
    name = gpu_site.create(opted_in, pod()).body["metadata"]["name"]

    def of_pod() -> list[AnyRecord]:
        return records(gpu_site, lambda line: line.get("namespace") == opted_in)

    def waits() -> list[WaitingRecord]:
        return [one for one in of_pod() if isinstance(one, WaitingRecord)]

    wait_for(waits, within=WAITS)
    gpu_site.api.delete(f"{PODS.format(opted_in)}/{name}")
    wait_for(lambda: waits()[1:], within=WAITS)

    decided, confirmed, begun, over = of_pod()
    assert isinstance(decided, AdmissionRecord)
    assert isinstance(begun, WaitingRecord)
    assert isinstance(over, WaitingRecord)
    assert [begun.state, over.state, over.reason] == ["begun", "over", "gone"]
    assert begun.pod_uid == over.pod_uid == confirmed.pod_uid
    assert begun.digest == decided.digest == confirmed.digest
    assert over.seconds is not None
    assert over.seconds >= AFTER
    snapshots = [one for one in records(gpu_site) if isinstance(one, SnapshotRecord)]
    (fleet,) = {one.id: one for one in snapshots if one.content_digest == decided.snapshot}.values()
    assert decode_fleet(fleet.content).complete
    assert decode_request(decided.asked).request.vocabulary == decided.vocabulary
