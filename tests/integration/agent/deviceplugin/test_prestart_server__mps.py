"""Starts in mode mps, and in modes that no agent of ours serves: what is given, what is refused."""

import asyncio

import msgspec
import pytest

from agent.deviceplugin import grpc_client
from agent.mps.daemon import folders_of
from allocator.model.allocation import Grant
from allocator.model.request import Mode
from tests.builders.model import mig_grant, soft_grant
from tests.integration.agent.starting import Site, edits, on

GPU = "GPU-00000000-0000-0000-0000-000000000007"


def grant(mode: Mode, *, gpu: str = GPU) -> Grant:
    """Return a grant of 6000 MiB in *mode*."""
    return msgspec.structs.replace(soft_grant(6000, 30, gpu=gpu), mode=mode)


MPS = grant(Mode.MPS)


def test_a_client_gets_the_folders_of_its_daemon() -> None:
    """Its pipe and its shared memory, each at its own place; both are written by either side."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", MPS)

        held = await site.kubelet.admit("uid-1", "train-0")
        assert await site.kubelet.run(held) == 0

        folders = folders_of("/usr/local/vgpu", GPU)
        (slot,) = held.slots
        mounts = [
            (mount["hostPath"], mount["containerPath"], "ro" in mount["options"])
            for mount in edits(site, slot)["mounts"]
            if isinstance(mount, dict)
        ]
        assert mounts == [
            (folders.pipe, "/tmp/nvidia-mps", False),
            (folders.shared_memory, "/dev/shm", False),
        ]
        assert f"NVIDIA_VISIBLE_DEVICES={GPU}" in edits(site, slot)["env"]
        assert site.ledger.held == ["uid-1"]
        assert not site.ledger.made

    on(act)


def test_a_client_on_a_partitioned_gpu_gets_its_partition_for_the_limit_of_threads() -> None:
    """The daemon ignores that limit; without a partition the client would not run."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", MPS)
        site.ledger.partitions[GPU] = f"{GPU}/Dx4AAA="

        held = await site.kubelet.admit("uid-1", "train-0")
        assert await site.kubelet.run(held) == 0

        (slot,) = held.slots
        names = [str(text).partition("=")[0] for text in edits(site, slot)["env"]]
        assert f"CUDA_MPS_SM_PARTITION={GPU}/Dx4AAA=" in edits(site, slot)["env"]
        assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in names
        assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" in names

    on(act)


@pytest.mark.parametrize("mode", [Mode.MPS, Mode.MEMORY_ONLY])
@pytest.mark.parametrize("mounting", [True, False])
def test_a_client_with_our_mounts_finds_no_region(mode: Mode, *, mounting: bool) -> None:
    """No library of ours runs there, so that nobody would bound that file."""

    async def act(site: Site) -> None:
        site.ledger.mounting = mounting
        site.ledger.promise("uid-1", "train-0", grant(mode))

        await site.kubelet.run(await site.kubelet.admit("uid-1", "train-0"))

        assert site.ledger.withheld == ([("uid-1", "main")] if mounting else [])

    on(act)


@pytest.mark.parametrize(
    ("grants", "cdi", "why"),
    [
        pytest.param((MPS,), False, "mode mps needs a container runtime that reads CDI", id="cdi"),
        pytest.param(
            (MPS, grant(Mode.MPS, gpu="GPU-00000000-0000-0000-0000-000000000008")),
            True,
            "a container in mode mps reaches the daemon of one GPU only",
            id="two-gpus",
        ),
        pytest.param(
            (grant(Mode.SGPU),),
            True,
            "its entry is in mode sgpu, which this agent does not serve",
            id="sgpu",
        ),
        pytest.param(
            (grant(Mode.NATIVE),),
            True,
            "its entry is in mode native, which this agent does not serve",
            id="native",
        ),
        pytest.param(
            (msgspec.structs.replace(mig_grant("1g.5gb", 3), placed=None),),
            True,
            "the entry names no placement for MIG on GPU-0",
            id="mig-without-a-placement",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_and_not_held(
    grants: tuple[Grant, ...], why: str, *, cdi: bool
) -> None:
    """The reason is told each time, and nothing is published for the slot."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", *grants)
        held = await site.kubelet.admit("uid-1", "train-0", count=len(grants))

        with pytest.raises(grpc_client.CallError, match=why):
            await site.kubelet.prestart(held.slots)

        assert site.ledger.held == []
        assert not list((site.root / "cdi").glob("*"))
        (event,) = site.ledger.told
        assert event.reason == "VgpuAllocateFailed"
        assert why in event.note

    on(act, cdi=cdi)


def test_a_daemon_that_does_not_answer_is_named() -> None:
    """A user sees for what the pod waits."""

    async def act(site: Site) -> None:
        site.ledger.stuck = asyncio.Event()
        site.prestart.deadline = 0.05
        site.ledger.promise("uid-1", "train-0", MPS)
        held = await site.kubelet.admit("uid-1", "train-0")

        with pytest.raises(grpc_client.CallError) as refused:
            await site.kubelet.prestart(held.slots)

        assert f"waiting for the MPS daemon of {GPU} took longer than 0.05 s" in str(refused.value)
        assert site.ledger.held == []

    on(act)
