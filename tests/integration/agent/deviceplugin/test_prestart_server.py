"""What a container receives between kubelet's Allocate and its start."""

import pytest

from agent.deviceplugin import grpc_client
from agent.node.slots import SlotOffer
from agent.proto import deviceplugin_pb2 as pb
from agent.share import ReadyInstance
from allocator.model.board import Placement
from tests.builders.model import mig_grant, soft_grant
from tests.integration.agent.starting import Site, edits, links, on


def test_a_start_hands_the_slot_its_share() -> None:
    """After Allocate and PreStart the slot's CDI device carries what the ledger promised."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", soft_grant(6000, 30, gpu="GPU-7"))

        held = await site.kubelet.admit("uid-1", "train-0")
        await site.kubelet.run(held)

        (slot,) = held.slots
        assert [device.name for device in held.answer.cdi_devices] == [
            f"vgpu-admission.io/slot={slot}"
        ]
        assert dict(held.answer.envs) == {"NVIDIA_VISIBLE_DEVICES": "void"}
        assert "NVIDIA_VISIBLE_DEVICES=GPU-7" in edits(site, slot)["env"]
        assert "CUDA_DEVICE_MEMORY_LIMIT_0=6000m" in edits(site, slot)["env"]
        assert "/regions/uid-1_main" in str(edits(site, slot)["mounts"])
        assert site.ledger.held == ["uid-1"]

    on(act)


def test_a_bare_start_brings_no_library() -> None:
    """Its edits show the GPU and neither mount nor limit anything."""

    async def act(site: Site) -> None:
        site.ledger.library_off = True
        site.ledger.promise("uid-1", "train-0", soft_grant(15360, 100, gpu="GPU-7"))

        held = await site.kubelet.admit("uid-1", "train-0")
        assert await site.kubelet.run(held) == 0

        (slot,) = held.slots
        assert "NVIDIA_VISIBLE_DEVICES=GPU-7" in edits(site, slot)["env"]
        assert "CUDA_" not in str(edits(site, slot)["env"])
        assert not edits(site, slot).get("mounts")

    on(act)


def test_without_cdi_a_bare_start_mounts_nothing() -> None:
    """Allocate named the mounts before anybody knew; they lead nowhere."""

    async def act(site: Site) -> None:
        site.ledger.library_off, site.ledger.mounting = True, False
        site.ledger.promise("uid-1", "train-0", soft_grant(15360, 100, gpu="GPU-7"))

        held = await site.kubelet.admit("uid-1", "train-0")
        assert await site.kubelet.run(held) == 0

        (slot,) = held.slots
        assert set(links(site, slot).values()) == {"/dev/null"}

    on(act, cdi=False)


def test_two_devices_are_handed_out_by_one_slot() -> None:
    """A container with two slots gets one CDI device that carries both grants."""

    async def act(site: Site) -> None:
        grants = mig_grant("1g.5gb", 3, gpu="GPU-1"), mig_grant("1g.5gb", 0, gpu="GPU-2")
        site.ledger.promise("uid-1", "train-0", *grants)

        held = await site.kubelet.admit("uid-1", "train-0", count=2)
        await site.kubelet.run(held)

        assert len(held.answer.cdi_devices) == 1
        assert (
            "NVIDIA_VISIBLE_DEVICES=MIG-GPU-1-3,MIG-GPU-2-0" in edits(site, min(held.slots))["env"]
        )
        assert len(edits(site, min(held.slots))["deviceNodes"]) == 2

    on(act)


@pytest.mark.parametrize("cdi", [True, False], ids=["cdi", "no-cdi"])
def test_a_mig_container_with_our_mounts_finds_no_region(*, cdi: bool) -> None:
    """Admission mounts the region of a pod that may become either; nobody would bound that file."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", mig_grant("1g.5gb", 3, gpu="GPU-7"))
        site.ledger.promise("uid-2", "train-1", soft_grant(6000))
        for uid, pod in (("uid-1", "train-0"), ("uid-2", "train-1")):
            await site.kubelet.run(await site.kubelet.admit(uid, pod))

        assert set(site.ledger.withheld) == {("uid-1", "main")}

    on(act, cdi=cdi)


def test_without_cdi_an_instance_is_annotated_first() -> None:
    """The first try writes the instance on the pod and is refused, the next one starts."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", mig_grant("1g.5gb", 3, gpu="GPU-7"))

        held = await site.kubelet.admit("uid-1", "train-0")
        refused = await site.kubelet.run(held)
        again = await site.kubelet.run(held)

        (slot,) = held.slots
        assert (refused, again) == (1, 0)
        assert site.ledger.annotations["uid-1"] == {"vgpu-admission.io/c0.visible": "MIG-GPU-7-3"}
        assert not held.answer.cdi_devices
        assert set(links(site, slot).values()) == {"/dev/null"}

    on(act, cdi=False)


def test_without_cdi_each_pod_is_annotated_with_its_instance() -> None:
    """One that gets slot and instance of a pod before it is told of them too before it starts."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", mig_grant("1g.5gb", 3, gpu="GPU-7"))
        first = await site.kubelet.admit("uid-1", "train-0")
        assert [await site.kubelet.run(first), await site.kubelet.run(first)] == [1, 0]

        site.kubelet.forget("uid-1")
        site.ledger.promise("uid-2", "train-1", mig_grant("1g.5gb", 3, gpu="GPU-7"))
        second = await site.kubelet.admit("uid-2", "train-1")

        assert second.slots == first.slots
        assert [await site.kubelet.run(second), await site.kubelet.run(second)] == [1, 0]
        assert site.ledger.annotations["uid-2"] == {"vgpu-admission.io/c0.visible": "MIG-GPU-7-3"}

    on(act, cdi=False)


def test_without_cdi_the_folder_of_the_slot_leads_to_the_share() -> None:
    """Allocate names files of the slot's folder, PreStart puts links to the share there."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", soft_grant(6000))

        held = await site.kubelet.admit("uid-1", "train-0")
        before = links(site, min(held.slots))
        await site.kubelet.run(held)

        folder = site.root / "usr/local/vgpu/slots" / min(held.slots)
        assert before == {}
        assert {mount.container_path: mount.host_path for mount in held.answer.mounts} == {
            "/usr/local/vgpu/libvgpu.so": str(folder / "libvgpu.so"),
            "/etc/ld.so.preload": str(folder / "ld.so.preload"),
            "/tmp/vgpu/vgpu.cache": str(folder / "vgpu.cache"),
            "/tmp/cudevshr.cache": str(folder / "cudevshr.cache"),
        }
        assert links(site, min(held.slots)) == {
            "libvgpu.so": str(site.root / "usr/local/vgpu/libvgpu.so"),
            "ld.so.preload": str(site.root / "usr/local/vgpu/ld.so.preload"),
            "vgpu.cache": "/regions/uid-1_main/vgpu.cache",
            "cudevshr.cache": "/regions/uid-1_main/vgpu.cache",
        }

    on(act, cdi=False)


def test_where_all_gpus_are_cut_nothing_is_mounted() -> None:
    """A MIG container needs no library, and without CDI Allocate is the last to say so."""

    async def act(site: Site) -> None:
        site.plugin.offer(SlotOffer(total=8, healthy=8, soft=False))
        site.ledger.promise("uid-1", "train-0", mig_grant("1g.5gb", 3, gpu="GPU-7"))

        held = await site.kubelet.admit("uid-1", "train-0")
        await site.kubelet.run(held)

        assert list(held.answer.mounts) == []

    on(act, cdi=False)


def test_a_share_that_was_allocated_no_mounts_does_not_start_without_them() -> None:
    """Unless admission mounts the library: else nothing would keep it to its share, ever."""

    async def act(site: Site) -> None:
        site.plugin.offer(SlotOffer(total=8, healthy=8, soft=False))
        site.ledger.promise("uid-1", "train-0", soft_grant(6000))
        site.ledger.mounting = False
        held = await site.kubelet.admit("uid-1", "train-0")
        site.plugin.offer(SlotOffer(total=8, healthy=8))

        with pytest.raises(grpc_client.CallError, match="every GPU was in MIG mode"):
            await site.kubelet.prestart(held.slots)
        site.ledger.mounting = True
        assert await site.kubelet.run(held) == 0

        site.ledger.mounting = False
        site.kubelet.forget("uid-1")
        site.ledger.promise("uid-2", "train-1", soft_grant(6000))
        second = await site.kubelet.admit("uid-2", "train-1")
        assert second.slots == held.slots
        assert await site.kubelet.run(second) == 0
        assert len(second.answer.mounts) == 4

    on(act, cdi=False)


def test_allocate_is_never_refused() -> None:
    """Ids that we never offered are answered with nothing to see, and refused in PreStart."""

    async def act(site: Site) -> None:
        asked = pb.ContainerAllocateRequest(devices_ids=["../../etc"])
        nothing = pb.ContainerAllocateRequest()
        request = pb.AllocateRequest(container_requests=[asked, nothing])

        answer = await site.kubelet.client.channel.call(grpc_client.ALLOCATE, request, within=5)

        assert [dict(each.envs) for each in answer.container_responses] == [
            {"NVIDIA_VISIBLE_DEVICES": "void"}
        ] * 2
        with pytest.raises(grpc_client.CallError, match="is not a slot of this node"):
            await site.kubelet.prestart(["../../etc"])

    on(act)


def test_allocate_survives_a_folder_that_is_gone() -> None:
    """A document that cannot be removed is PreStart's to tell, not Allocate's."""

    async def act(site: Site) -> None:
        blocked = site.root / "cdi" / "vgpu-admission.io-slot_slot-0000.json"
        blocked.mkdir()
        site.ledger.promise("uid-1", "train-0", soft_grant(6000))

        held = await site.kubelet.admit("uid-1", "train-0")

        with pytest.raises(grpc_client.CallError, match="cannot be written"):
            await site.kubelet.prestart(held.slots)
        blocked.rmdir()
        assert await site.kubelet.run(held) == 0

    on(act)


def test_a_pod_without_promise_waits_with_a_reason() -> None:
    """PreStart is refused with the ledger's words until there is an entry."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0")
        site.ledger.shares.clear()
        held = await site.kubelet.admit("uid-1", "train-0")

        with pytest.raises(grpc_client.CallError, match="no entry") as refused:
            await site.kubelet.prestart(held.slots)
        site.ledger.promise("uid-1", "train-0", soft_grant(6000))

        assert refused.value.code is grpc_client.Code.NOT_YET
        assert await site.kubelet.run(held) == 0

    on(act)


def test_a_promise_that_is_exchanged_meanwhile_starts_nothing() -> None:
    """Until it is held a repeated bind may move it; the next start has what holds from then on."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", mig_grant("1g.5gb", 3, gpu="GPU-7"))
        held = await site.kubelet.admit("uid-1", "train-0")

        async def exchanged(gpu: str, placed: Placement) -> ReadyInstance:
            site.ledger.ensuring = None
            ready = await site.ledger.ensure(gpu, placed)
            site.ledger.promise("uid-1", "train-0", mig_grant("1g.5gb", 0, gpu="GPU-8"))
            return ready

        site.ledger.ensuring = exchanged
        with pytest.raises(grpc_client.CallError, match="the entry changed"):
            await site.kubelet.prestart(held.slots)

        assert await site.kubelet.run(held) == 0
        assert "NVIDIA_VISIBLE_DEVICES=MIG-GPU-8-0" in edits(site, min(held.slots))["env"]

    on(act)


def test_a_share_of_another_size_is_refused() -> None:
    """Two slots for one promised device cannot be the same container."""

    async def act(site: Site) -> None:
        site.ledger.promise("uid-1", "train-0", soft_grant(6000))
        held = await site.kubelet.admit("uid-1", "train-0", count=2)

        with pytest.raises(grpc_client.CallError, match=r"lists 1 devices .* assigned 2 slots"):
            await site.kubelet.prestart(held.slots)

    on(act)


@pytest.mark.parametrize("cdi", [True, False], ids=["cdi", "folder"])
def test_a_slot_handed_on_has_nothing_of_its_last_holder(cdi: bool) -> None:
    """Allocate empties the slot; its new holder waits until the old one's processes are gone."""

    async def act(site: Site) -> None:
        for uid in ("uid-1", "uid-2"):
            site.ledger.promise(uid, uid, soft_grant(6000, gpu=f"GPU-{uid}"))
        first = await site.kubelet.admit("uid-1", "uid-1")
        await site.kubelet.run(first)
        site.kubelet.forget("uid-1")
        site.ledger.lingering.add("uid-1")

        second = await site.kubelet.admit("uid-2", "uid-2")
        with pytest.raises(grpc_client.CallError, match="a process of uid-1 still runs"):
            await site.kubelet.prestart(second.slots)
        emptied = not any((site.root / "cdi").iterdir()) if cdi else not links(site, "slot-0000")
        site.ledger.lingering.clear()
        await site.kubelet.run(second)

        assert first.slots == second.slots
        assert emptied
        assert site.ledger.vacated == ["uid-1"]
        assert site.slots.holders(second.slots) == {"uid-2"}

    on(act, cdi=cdi)
