"""Who starts: identity from kubelet's two sources, one start at a time in one slot."""

import asyncio

import pytest

from agent.deviceplugin import grpc_client
from agent.share import NotYetError
from tests.builders.model import mig_grant, soft_grant
from tests.integration.agent.starting import Site, edits, on
from tests.integration.waiting import until


def test_init_containers_share_slots_with_the_app() -> None:
    """Each of a pod's containers that reuse slots starts with what that container was promised."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", soft_grant(1000), container="warm-up")
        init = await site.kubelet.admit("uid-1", "train-0", container="warm-up", init=True)
        app = await site.kubelet.admit("uid-1", "train-0")
        (slot,) = init.slots

        await site.kubelet.run(init)
        warm = edits(site, slot)["env"]
        site.ledger.shares.clear()
        site.ledger.promise("uid-1", "train-0", soft_grant(6000))
        await site.kubelet.run(app)

        assert init.slots == app.slots
        assert "CUDA_DEVICE_MEMORY_LIMIT_0=1000m" in warm
        assert "CUDA_DEVICE_MEMORY_LIMIT_0=6000m" in edits(site, slot)["env"]
        assert site.ledger.vacated == []

    on(act)


def test_an_init_container_that_podresources_does_not_list_starts() -> None:
    """A pod whose only GPU container is an init container is known from the checkpoint."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", soft_grant(1000), container="warm-up")
        held = await site.kubelet.admit("uid-1", "train-0", container="warm-up", init=True)

        assert await site.kubelet.run(held) == 0

    on(act)


@pytest.mark.parametrize("content", [None, b"", b"\xff\x00", b'{"Data": 3}'])
def test_a_checkpoint_that_cannot_be_read_names_nobody(content: bytes | None) -> None:
    """Whoever owns the slot is not guessed: the start waits until kubelet's file is whole."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", soft_grant(6000))
        held = await site.kubelet.admit("uid-1", "train-0")
        whole = site.kubelet.checkpoint.read_bytes()
        site.kubelet.checkpoint.unlink()
        if content is not None:
            site.kubelet.checkpoint.write_bytes(content)

        with pytest.raises(grpc_client.CallError, match="checkpoint cannot be read"):
            await site.kubelet.prestart(held.slots)
        site.kubelet.checkpoint.write_bytes(whole)

        assert await site.kubelet.run(held) == 0

    on(act)


def test_a_start_that_kubelet_gave_up_on_is_not_started_twice() -> None:
    """After the cut a second call for the slot waits for the first, and both end the same."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", mig_grant("1g.5gb", 3))
        site.ledger.stuck = asyncio.Event()
        held = await site.kubelet.admit("uid-1", "train-0")

        with pytest.raises(grpc_client.CallError) as cut:
            await site.kubelet.prestart(held.slots, within=0.2)
        again = asyncio.create_task(site.kubelet.prestart(held.slots))
        await asyncio.sleep(0.1)
        meanwhile = list(site.ledger.made)
        site.ledger.stuck.set()
        await again

        assert cut.value.code is grpc_client.Code.LATE
        assert meanwhile == []
        assert len(site.ledger.made) == 2  # one after the other, each level-triggered

    on(act)


def test_a_start_of_whoever_lost_the_slot_is_refused() -> None:
    """A pod deleted by force while it starts does not get what its slot now holds for another."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "gone", mig_grant("1g.5gb", 3, gpu="GPU-1"))
        site.ledger.promise("uid-2", "next", soft_grant(6000, gpu="GPU-2"))
        site.ledger.stuck = asyncio.Event()
        gone = await site.kubelet.admit("uid-1", "gone")
        starting = asyncio.create_task(site.kubelet.prestart(gone.slots))
        await until(lambda: site.ledger.asked > 0)

        site.kubelet.forget("uid-1")
        heir = await site.kubelet.admit("uid-2", "next")
        with pytest.raises(grpc_client.CallError, match="went to another pod"):
            await starting
        await site.kubelet.run(heir)

        assert gone.slots == heir.slots
        assert "NVIDIA_VISIBLE_DEVICES=GPU-2" in edits(site, min(heir.slots))["env"]

    on(act)


def test_our_own_deadline_comes_with_a_reason() -> None:
    """Kubelet would show only its own words after 30 seconds; ours say what takes so long."""

    async def act(site: Site) -> None:
        site.prestart.deadline = 0.1
        site.ledger.promise("uid-1", "train-0", mig_grant("1g.5gb", 3, gpu="GPU-7"))
        site.ledger.stuck = asyncio.Event()
        held = await site.kubelet.admit("uid-1", "train-0")

        with pytest.raises(
            grpc_client.CallError, match=r"creating .*1g\.5gb.* on GPU-7 took longer than"
        ):
            await site.kubelet.prestart(held.slots)

    on(act)


def test_one_slow_start_holds_up_no_other() -> None:
    """Starts in different slots go side by side."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "slow", mig_grant("1g.5gb", 3))
        site.ledger.promise("uid-2", "quick", soft_grant(6000))
        site.ledger.stuck = asyncio.Event()
        slow = await site.kubelet.admit("uid-1", "slow")
        waiting = asyncio.create_task(site.kubelet.prestart(slow.slots))

        await site.kubelet.run(await site.kubelet.admit("uid-2", "quick"))

        assert not waiting.done()
        site.ledger.stuck.set()
        await waiting

    on(act)


def test_kubelets_rate_limit_is_waited_out() -> None:
    """Whoever meets the limit asks again shortly, and is answered in the end."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", soft_grant(6000))
        held = await site.kubelet.admit("uid-1", "train-0")

        answers = await asyncio.gather(*(site.resources.list() for _ in range(60)))

        assert {listed.slots for answer in answers for listed in answer} == {held.slots}
        assert all(answers)
        assert site.kubelet.rejected > 0

    on(act)


def test_a_refusal_of_podresources_is_a_refusal_to_start() -> None:
    """Without kubelet's word nobody is taken for the owner."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", soft_grant(6000))
        held = await site.kubelet.admit("uid-1", "train-0")
        await site.kubelet.deafen()

        with pytest.raises(NotYetError, match="kubelet did not list who holds the slots"):
            await site.prestart.start(held.slots)

    on(act)


def test_many_at_once_each_get_their_own() -> None:
    """Pods that start together ask kubelet once or twice in all, and nobody gets another's."""

    async def act(site: Site) -> None:
        pods = [f"uid-{i}" for i in range(8)]
        for i, uid in enumerate(pods):
            site.ledger.promise(uid, uid, soft_grant(1000 + i, gpu=f"GPU-{i}"))
        helds = [await site.kubelet.admit(uid, uid) for uid in pods]

        await asyncio.gather(*(site.kubelet.prestart(held.slots) for held in helds))

        await until(lambda: len(site.ledger.held) == 8)
        for i, held in enumerate(helds):
            assert f"NVIDIA_VISIBLE_DEVICES=GPU-{i}" in edits(site, min(held.slots))["env"]
        assert site.kubelet.calls < 8

    on(act)
