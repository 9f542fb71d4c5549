"""The whole agent on a node in mode mps: from the configuration to a container and back."""

from typing import Never

import orjson
import pytest

from agent.deviceplugin.cdi import file_name
from agent.driver.driver import ComputeMode, DriverError, Fault
from agent.driver.driver_thread import DriverThread
from agent.mps.journal_files import MpsJournal
from agent.mps.partitions.book_files import PartitionBook
from agent.mps.simulated.simulated_files import SimulatedDaemons
from agent.serve.mps_service import MpsParts, MpsService
from allocator.ledger.schema import spec_of
from allocator.model.allocation import Grant
from allocator.model.request import Mode
from allocator.model.units import CorePercent, MiB
from tests.builders.gpunodes import entry
from tests.builders.model import soft_grant
from tests.fakes.api_objects import parsed
from tests.fakes.driver import RelayedDriver
from tests.integration.agent.serve.test_agent import DEVICES, GPU_NODES, Scene, run_agent
from tests.integration.waiting import until

IN_MPS = (
    DEVICES,
    "volcano-vgpu-node-config",
    {"config.json": '{"nodeconfig": [{"name": "n", "operatingmode": "mps"}]}'},
)
NOT_IN_MPS = {"config.json": '{"nodeconfig": [{"name": "n", "operatingmode": "hami-core"}]}'}
GONE = "GPU-11111111-2222-3333-4444-555555555555"
SHARED = 1  # the index of the GPU that is not in MIG mode


def mps_grant(gpu: str, memory: int, cores: int) -> Grant:
    return Grant(gpu=gpu, mode=Mode.MPS, memory=MiB(memory), cores=CorePercent(cores))


def compute(scene: Scene, gpu: str) -> ComputeMode:
    return scene.parts.driver_thread.driver.compute_mode(gpu)


def gpu_status(scene: Scene, index: int) -> dict[str, object]:
    return dict(scene.status["gpus"][index])


def test_a_container_gets_the_daemon_of_its_gpu() -> None:
    """Variables, sockets and shared memory by CDI; the other GPU, in MIG mode, is left alone."""

    async def act(scene: Scene) -> None:
        await scene.wait_until_serving()
        await until(lambda: gpu_status(scene, SHARED).get("mode") == Mode.MPS)
        await until(lambda: gpu_status(scene, SHARED).get("healthy", True))
        gpu, cut = scene.uuid(SHARED), scene.uuid(0)
        assert "operatingmode is mps" in str(gpu_status(scene, 0)["reason"])
        uid = scene.create_bound_pod("p")
        spec = spec_of([entry(uid, mps_grant(gpu, 3000, 50))])
        scene.change(f"{GPU_NODES}/n", spec=spec)
        await until(lambda: uid in scene.parts.node_informer.pods)

        held = await scene.kubelet.admit(uid, "p")
        await scene.kubelet.run(held)

        (slot,) = held.slots
        document = orjson.loads((scene.root / "var/run/cdi" / file_name(slot)).read_bytes())
        edits = document["devices"][0]["containerEdits"]
        assert {
            f"NVIDIA_VISIBLE_DEVICES={gpu}",
            "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=3000M",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50",
        } <= set(edits["env"])
        assert not any(text.startswith("LD_PRELOAD") for text in edits["env"])
        mounts = {mount["containerPath"]: mount["hostPath"] for mount in edits["mounts"]}
        assert mounts == {
            "/tmp/nvidia-mps": f"/usr/local/vgpu/mps/{gpu}/pipe",
            "/dev/shm": f"/usr/local/vgpu/mps/{gpu}/shm",
        }
        assert compute(scene, gpu) is ComputeMode.EXCLUSIVE_PROCESS
        assert compute(scene, cut) is ComputeMode.DEFAULT

    run_agent(act, IN_MPS)


def test_the_mode_changes_when_the_gpu_is_empty() -> None:
    """Neither direction cuts anybody off; until then the GPU takes nobody and says why."""

    async def act(scene: Scene) -> None:
        await scene.wait_until_serving()
        await until(lambda: gpu_status(scene, SHARED).get("mode") == Mode.MPS)
        gpu = scene.uuid(SHARED)
        uid = scene.create_bound_pod("p")
        entries = spec_of([entry(uid, mps_grant(gpu, 3000, 50))])
        scene.change(f"{GPU_NODES}/n", spec=entries)
        await until(scene.parts.mps.controller.progress)

        configured, _, _ = IN_MPS
        scene.change(f"{configured}/volcano-vgpu-node-config", data=NOT_IN_MPS)
        await until(lambda: "yet to end" in str(gpu_status(scene, SHARED).get("reason", "")))
        assert gpu_status(scene, SHARED)["mode"] == Mode.MPS
        assert compute(scene, gpu) is ComputeMode.EXCLUSIVE_PROCESS

        scene.change(f"{GPU_NODES}/n", spec=spec_of([entry(uid, soft_grant(1000, gpu=gpu))]))
        await until(lambda: gpu_status(scene, SHARED).get("mode") != Mode.MPS)
        await until(lambda: compute(scene, gpu) is ComputeMode.DEFAULT)
        await until(lambda: scene.parts.mps.controller.is_idle)

    run_agent(act, IN_MPS)


def test_whoever_has_an_entry_is_told_of_trouble() -> None:
    """An Event on the pod and one on the Node; the GPU is served again."""

    async def act(scene: Scene) -> None:
        await scene.wait_until_serving()
        await until(lambda: gpu_status(scene, SHARED).get("mode") == Mode.MPS)
        gpu = scene.uuid(SHARED)
        uid = scene.create_bound_pod("p")
        scene.change(f"{GPU_NODES}/n", spec=spec_of([entry(uid, mps_grant(gpu, 3000, 50))]))
        await until(lambda: uid in scene.parts.node_informer.pods)
        await scene.parts.mps.controller.ready_daemon(mps_grant(gpu, 3000, 50))
        await scene.parts.mps.daemons.kill(gpu)
        await scene.parts.mps.controller.settle()
        await until(lambda: "VgpuMpsTrouble" in scene.event_reasons("team-a"))
        await until(lambda: "VgpuMpsTrouble" in scene.event_reasons("default"))
        await until(lambda: not scene.parts.mps.controller.unready())

    run_agent(act, IN_MPS)


def test_an_agent_that_leaves_puts_the_compute_mode_back() -> None:
    """No file goes before that, because the journal says what was there."""

    async def act(scene: Scene) -> None:
        await scene.wait_until_serving()
        await until(lambda: gpu_status(scene, SHARED).get("mode") == Mode.MPS)
        gpu = scene.uuid(SHARED)
        await until(lambda: compute(scene, gpu) is ComputeMode.EXCLUSIVE_PROCESS)
        withdrawal = scene.agent.withdrawal()
        await withdrawal.step()
        await withdrawal.step()
        assert compute(scene, gpu) is ComputeMode.DEFAULT

    run_agent(act, IN_MPS)


def test_without_a_gpunode_no_gpu_is_taken_from_running_pods() -> None:
    """Nobody knows their entries; once they have ended, nothing keeps the uninstall waiting."""

    async def act(scene: Scene) -> None:
        await scene.wait_until_serving()
        await until(lambda: gpu_status(scene, SHARED).get("mode") == Mode.MPS)
        gpu, mps = scene.uuid(SHARED), scene.parts.mps
        await until(lambda: compute(scene, gpu) is ComputeMode.EXCLUSIVE_PROCESS)
        scene.server.objects.delete(parsed(f"{GPU_NODES}/n"))
        await until(lambda: scene.parts.node_informer.gpu_node is None)

        assert not await mps.withdraw(in_use=True)
        assert compute(scene, gpu) is ComputeMode.EXCLUSIVE_PROCESS
        assert await mps.withdraw(in_use=False)
        assert compute(scene, gpu) is ComputeMode.DEFAULT

    run_agent(act, IN_MPS)


IN_STATIC_MPS = (
    DEVICES,
    "volcano-vgpu-node-config",
    {"config.json": '{"nodeconfig": [{"name": "n", "operatingmode": "mps", "mpsstatic": true}]}'},
)


def test_a_container_on_a_partitioned_gpu_gets_a_partition() -> None:
    """The GPUNode says how many chunks there are; 50 % are half of them, until the entry ends."""

    async def act(scene: Scene) -> None:
        await scene.wait_until_serving()
        await until(lambda: gpu_status(scene, SHARED).get("chunks") == 16)
        await until(lambda: gpu_status(scene, SHARED).get("healthy", True))
        gpu = scene.uuid(SHARED)
        uid = scene.create_bound_pod("p")
        scene.change(f"{GPU_NODES}/n", spec=spec_of([entry(uid, mps_grant(gpu, 3000, 50))]))
        await until(lambda: uid in scene.parts.node_informer.pods)

        held = await scene.kubelet.admit(uid, "p")
        await scene.kubelet.run(held)

        (slot,) = held.slots
        document = orjson.loads((scene.root / "var/run/cdi" / file_name(slot)).read_bytes())
        env = dict(text.split("=", 1) for text in document["devices"][0]["containerEdits"]["env"])
        assert env["CUDA_MPS_SM_PARTITION"].startswith(f"{gpu}/")
        assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in env
        daemons = scene.parts.mps.daemons
        assert isinstance(daemons, SimulatedDaemons)
        assert list(daemons.daemon(gpu).partitions.values()) == [8]
        scene.change(f"{GPU_NODES}/n", spec=spec_of([]))
        await until(lambda: not daemons.daemon(gpu).partitions)

    run_agent(act, IN_STATIC_MPS)


def unavailable(call: str, _: tuple[object, ...]) -> Never:
    """Be a driver that is not there."""
    raise DriverError(Fault.UNAVAILABLE, call, "Driver Not Loaded (9)")


def service_without_driver(scene: Scene, journal: MpsJournal) -> MpsService:
    """Return mode mps of the agent that comes after the driver has gone: it has seen no GPU."""
    parts = MpsParts(
        informer=scene.parts.node_informer,
        worker=DriverThread(RelayedDriver(unavailable)),
        hardware=lambda: None,
        pods=dict,
        report=lambda *_: None,
        count=lambda _: None,
        changed=lambda: None,
        is_loaded=lambda: False,
    )
    daemons = SimulatedDaemons(scene.root / "daemons")
    book = PartitionBook(scene.root / "mps-partitions.json", boot="boot-1")
    return MpsService(parts, daemons, journal=journal, book=book, root="/usr/local/vgpu")


@pytest.mark.parametrize("known", [True, False], ids=["gpunode", "no-gpunode"])
def test_an_agent_leaves_a_node_whose_driver_has_gone(*, known: bool) -> None:
    """It finds a journal, entries of nobody, and no driver that could be asked."""

    async def act(scene: Scene) -> None:
        await scene.wait_until_serving()
        if not known:
            scene.server.objects.delete(parsed(f"{GPU_NODES}/n"))
            await until(lambda: scene.parts.node_informer.gpu_node is None)
        file = scene.root / "mps.json"
        MpsJournal(file, boot="boot-1").record(GONE, ComputeMode.DEFAULT)
        service = service_without_driver(scene, MpsJournal(file, boot="boot-1"))
        assert await service.withdraw(in_use=False)
        assert not MpsJournal(file, boot="boot-1").before

    run_agent(act)
