"""Starts in mode mps, and modes that our agent does not serve: what is refused, and why."""

import msgspec
import pytest

from agent.deviceplugin import grpc_client
from allocator.model.allocation import Grant
from allocator.model.request import Mode
from tests.builders.model import soft_grant
from tests.integration.agent.starting import Site, edits, on

UUIDS = tuple(f"GPU-00000000-0000-0000-0000-00000000000{n}" for n in (6, 7))


def grant(gpu: str = UUIDS[1], *, mode: Mode = Mode.MPS) -> Grant:
    return msgspec.structs.replace(soft_grant(6000, 30, gpu=gpu), mode=mode)


async def refusal(site: Site, *grants: Grant) -> str:
    """Return why the start of a container that was promised *grants* is refused."""
    site.ledger.promise("uid-1", "train-0", *grants)
    held = await site.kubelet.admit("uid-1", "train-0", count=len(grants))
    with pytest.raises(grpc_client.CallError) as refused:
        await site.kubelet.run(held, tries=1)
    assert site.ledger.held == []  # so that its entry may still be replaced
    return str(refused.value)


def test_a_client_gets_the_daemon_of_its_gpu() -> None:
    """Its pipe, its limits, and no library."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", grant())

        held = await site.kubelet.admit("uid-1", "train-0")
        assert await site.kubelet.run(held) == 0

        (slot,) = held.slots
        found = edits(site, slot)
        assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=6000M" in found["env"]
        assert f"/usr/local/vgpu/mps/{UUIDS[1]}/pipe" in str(found["mounts"])
        assert "/regions/" not in str(found["mounts"])
        assert "LD_PRELOAD" not in str(found["env"])
        assert site.ledger.held == ["uid-1"]

    on(act)


def test_a_client_of_two_gpus_is_refused() -> None:
    """A process speaks to one daemon, and each daemon has one GPU."""

    async def act(site: Site) -> None:
        assert "reaches the daemon of one GPU only" in await refusal(site, *map(grant, UUIDS))

    on(act)


def test_without_cdi_a_client_is_refused() -> None:
    """Allocate would have had to name the pipe before anybody knew the GPU."""

    async def act(site: Site) -> None:
        assert "needs a container runtime that reads CDI" in await refusal(site, grant())

    on(act, cdi=False)


@pytest.mark.parametrize("mode", [Mode.SGPU, Mode.NATIVE])
def test_an_entry_in_a_mode_of_another_plugin_is_refused(mode: Mode) -> None:
    """Nothing of ours would hold its container to its share."""

    async def act(site: Site) -> None:
        why = await refusal(site, grant(mode=mode))
        assert f"its entry is in mode {mode}, which this agent does not serve" in why

    on(act)


def test_an_entry_of_mig_without_a_placement_is_refused() -> None:
    """There is no instance that could be meant."""

    async def act(site: Site) -> None:
        why = await refusal(site, grant(mode=Mode.MIG))
        assert f"the entry names no placement for MIG on {UUIDS[1]}" in why
        assert site.ledger.asked == 0

    on(act)
