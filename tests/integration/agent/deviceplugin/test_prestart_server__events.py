"""What a pod's user is told of the starts of its containers."""

import asyncio

import pytest

from agent.deviceplugin import grpc_client
from agent.share import ReadyInstance
from allocator.model.board import Placement
from kube.events import Event, Reference, Severity
from tests.builders.model import mig_grant, soft_grant
from tests.integration.agent.starting import NODE, Site, on

POD = Reference(api_version="v1", kind="Pod", name="train-0", namespace="team-a", uid="uid-1")


def reasons_and_notes(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.reason, event.note) for event in events]


def test_a_start_is_recorded_once() -> None:
    """What it received is on the pod, and not again for a restart with the same devices."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", mig_grant("1g.5gb", 3, gpu="GPU-7"))
        held = await site.kubelet.admit("uid-1", "train-0")

        await site.kubelet.run(held)
        await site.kubelet.run(held)

        (event,) = site.ledger.told
        assert event == Event(
            regarding=POD,
            severity=Severity.NORMAL,
            reason="VgpuAllocated",
            action="Allocate",
            note='container "main": 1g.5gb at slot 3 of GPU-7 (MIG-GPU-7-3)',
            related=NODE,
        )

    on(act)


def test_the_start_of_each_container_of_a_pod_is_recorded() -> None:
    """An app container that reuses its init container's slot has an Event of its own."""

    async def act(site: Site) -> None:
        grant = soft_grant(6000, 30, gpu="GPU-7")
        site.ledger.promise("uid-1", "train-0", grant, container="prepare")
        first = await site.kubelet.admit("uid-1", "train-0", container="prepare", init=True)
        then = await site.kubelet.admit("uid-1", "train-0")
        assert first.slots == then.slots
        await site.kubelet.run(first)
        site.ledger.shares.clear()
        site.ledger.promise("uid-1", "train-0", grant)
        await site.kubelet.run(then)

        given = "6000 MiB and 30 % of its compute on GPU-7"
        assert reasons_and_notes(site.ledger.told) == [
            ("VgpuAllocated", f'container "prepare": {given}'),
            ("VgpuAllocated", f'container "main": {given}'),
        ]

    on(act)


def test_a_refused_start_is_recorded_with_its_reason() -> None:
    """As a warning in the same words each time, so that it is counted and not repeated."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", soft_grant(6000))
        grants, site.ledger.shares = site.ledger.shares, {}
        held = await site.kubelet.admit("uid-1", "train-0")

        for _ in range(2):
            with pytest.raises(grpc_client.CallError):
                await site.kubelet.prestart(held.slots)
        site.ledger.shares = grants
        await site.kubelet.run(held)

        first, again, started = site.ledger.told
        assert first == again
        assert first.severity is Severity.WARNING
        assert (first.reason, first.regarding, first.related) == ("VgpuAllocateFailed", POD, NODE)
        assert first.note == 'container "main": train-0 has no entry in the ledger'
        assert started.reason == "VgpuAllocated"

    on(act)


def test_a_start_of_an_unknown_pod_is_not_recorded() -> None:
    """There is nothing to write an Event on; kubelet shows the reason all the same."""

    async def act(site: Site) -> None:
        held = await site.kubelet.admit("uid-1", "train-0")

        with pytest.raises(grpc_client.CallError, match="has not sent it to this node yet"):
            await site.kubelet.prestart(held.slots)

        assert site.ledger.told == []

    on(act)


def test_what_is_written_into_the_pod_first_is_no_failure() -> None:
    """Without CDI the first try only waits for the second one."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", mig_grant("1g.5gb", 3, gpu="GPU-7"))
        held = await site.kubelet.admit("uid-1", "train-0")

        with pytest.raises(grpc_client.CallError, match="noted on the pod"):
            await site.kubelet.prestart(held.slots)
        assert site.ledger.told == []
        await site.kubelet.run(held)

        assert [event.reason for event in site.ledger.told] == ["VgpuAllocated"]

    on(act, cdi=False)


def test_a_slot_handed_on_while_its_start_runs_out_of_time_is_handed_on() -> None:
    """Allocate is not refused, however slowly the start before it comes to its end."""

    async def act(site: Site) -> None:
        ending, ended = asyncio.Event(), asyncio.Event()

        async def ensure(gpu: str, placed: Placement) -> ReadyInstance:
            try:
                await asyncio.Event().wait()
            finally:
                ending.set()
                await ended.wait()
            raise AssertionError(gpu, placed)

        site.ledger.ensuring = ensure
        site.prestart.deadline = 0.05
        site.ledger.promise("uid-1", "train-0", mig_grant("1g.5gb", 3, gpu="GPU-7"))
        first = await site.kubelet.admit("uid-1", "train-0")
        start = asyncio.create_task(site.kubelet.prestart(first.slots))
        await ending.wait()
        site.kubelet.forget("uid-1")
        site.ledger.promise("uid-2", "train-1", soft_grant(6000))

        second = await site.kubelet.admit("uid-2", "train-1")
        ended.set()

        assert second.slots == first.slots
        with pytest.raises(grpc_client.CallError, match="went to another pod in the meantime"):
            await start
        assert await site.kubelet.run(second) == 0
        assert [event.regarding.uid for event in site.ledger.told] == ["uid-2"]

    on(act)


def test_a_failed_write_is_a_refusal() -> None:
    """What the slot the slot cannot be written: a reason like any other, and tried again."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", soft_grant(6000))
        held = await site.kubelet.admit("uid-1", "train-0")
        blocked = site.root / "cdi" / "vgpu-admission.io-slot_slot-0000.json"
        blocked.mkdir()

        with pytest.raises(
            grpc_client.CallError, match=r"the slot cannot be written: .* Is a directory"
        ):
            await site.kubelet.prestart(held.slots)
        blocked.rmdir()
        assert await site.kubelet.run(held) == 0

        assert [e.reason for e in site.ledger.told] == ["VgpuAllocateFailed", "VgpuAllocated"]

    on(act)
