"""An agent that leaves takes back what it put there, and no file that somebody has mounted."""

import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from agent.deviceplugin.cdi import file_name
from agent.serve.device_plugin import Paths
from agent.serve.withdrawal_controller import WithdrawalController
from allocator.cluster.inventory import GPU_NODES
from tests.fakes.api_objects import parsed
from tests.integration.agent.clusterside import (
    MEMORY,
    NODE,
    SETTINGS,
    SLOT,
    Scene,
    play,
    promised,
)
from tests.integration.waiting import until


class AgentFiles:
    """What an agent leaves on a node."""

    def __init__(self, root: Path) -> None:
        self.paths = Paths(
            root=root,
            host_root=root / "usr/local/vgpu",
            kubelet=root / "kubelet",
            state=root / "state",
        )
        self.cdi = root / "cdi"
        self.ours = [
            self.paths.plugins / "vgpu-admission.sock",
            self.paths.state / "mig.journal",
            self.cdi / file_name("slot-0001"),
            root / "usr/local/vgpu/libvgpu.so",
            root / "usr/local/vgpu/vgpu/containers/u_main/vgpu.cache",
        ]
        self.theirs = [self.cdi / "nvidia.yaml", self.paths.plugins / "nvidia-gpu.sock"]
        for path in (*self.ours, *self.theirs):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")

    def remaining(self) -> list[Path]:
        return [path for path in self.ours if path.exists()]


def withdrawal(scene: Scene, files: AgentFiles) -> WithdrawalController:
    async def alive() -> set[str]:
        return scene.alive

    return WithdrawalController(
        scene.informer, scene.capacity_controller, files.paths, cdi=files.cdi, alive=alive
    )


def test_nothing_is_left_and_nothing_of_others_is_touched(tmp_path: Path) -> None:
    """Twice is once."""
    files = AgentFiles(tmp_path)

    async def act(scene: Scene) -> None:
        leaving = withdrawal(scene, files)
        await leaving.step()
        await leaving.step()

        assert files.remaining() == []
        assert all(path.exists() for path in files.theirs)

    play(act)


def test_it_says_that_nothing_is_left_once_that_is_so(tmp_path: Path) -> None:
    """Kubelet counts slots for a while; what cannot be removed is left too."""
    files = AgentFiles(tmp_path)

    async def act(scene: Scene) -> None:
        leaving = withdrawal(scene, files)
        with capture_logs() as logs:
            await _set_slot_capacity(scene, "20")
            await leaving.step()
            assert [line["event"] for line in logs] == ["kubelet still counts slots"]

            await _set_slot_capacity(scene, "0")
            shutil.rmtree(files.paths.state)
            files.paths.state.write_text("in the way")
            with pytest.raises(NotADirectoryError):
                await leaving.step()
            assert len(logs) == 1

            files.paths.state.unlink()
            await leaving.step()
            await leaving.step()
            assert [line["event"] for line in logs[1:]] == ["withdrawal complete"]
        assert SLOT not in scene.node["status"]["capacity"]

    play(act)


class SlowGpus:
    """GPUs that are out of mode mps only when they are asked a third time."""

    def __init__(self) -> None:
        self.asked = 0

    async def withdraw(self, *, in_use: bool) -> bool:
        self.asked += not in_use
        return self.asked > 2


def test_it_says_what_files_are_kept_for(tmp_path: Path) -> None:
    """The journal of compute modes stays until all are put back, and nothing is complete then."""
    files = AgentFiles(tmp_path)

    async def act(scene: Scene) -> None:
        leaving = withdrawal(scene, files)
        leaving.mps = SlowGpus()
        with capture_logs() as logs:
            for _ in range(2):
                await leaving.step()
                assert files.remaining()
            await leaving.step()
            assert not files.remaining()
        kept = "files kept until all GPUs have left mode mps"
        assert [line["event"] for line in logs] == [kept, "withdrawal complete"]

    play(act)


async def _set_slot_capacity(scene: Scene, amount: str) -> None:
    """Let kubelet write how many slots there are."""
    scene.change(f"{NODE}/n", status={"capacity": {"cpu": "2", SLOT: amount}})
    await until(
        lambda: scene.informer.node is not None and scene.informer.node.capacity.get(SLOT) == amount
    )


def test_files_stay_for_as_long_as_a_tenant_has_them(tmp_path: Path) -> None:
    """Its containers start again with what they have mounted."""
    files = AgentFiles(tmp_path)

    async def act(scene: Scene) -> None:
        scene.bind("tenant")
        await scene.caught_up()
        leaving = withdrawal(scene, files)
        await leaving.step()
        assert files.remaining() == files.ours[1:]  # the socket serves nobody any more

        scene.bind("tenant", phase="Succeeded")
        await scene.caught_up()
        await leaving.step()
        assert files.remaining() == []

    play(act)


def test_files_stay_for_a_container_that_outlives_its_pod(tmp_path: Path) -> None:
    """Deleted by force, it runs on for a while."""
    files = AgentFiles(tmp_path)

    async def act(scene: Scene) -> None:
        scene.promise(promised("ghost"))
        await scene.caught_up()
        await scene.status_controller.flush({"ghost"})
        await scene.caught_up()
        scene.alive = {"ghost"}
        leaving = withdrawal(scene, files)
        await leaving.step()

        assert files.remaining() == files.ours[1:]

    play(act)


def test_a_node_that_is_left_takes_no_promise(tmp_path: Path) -> None:
    """The status stays true for the pods that are still there, without an inventory."""
    files = AgentFiles(tmp_path)

    async def act(scene: Scene) -> None:
        uid = await scene.held("tenant")
        scene.status_controller.leaving = True
        await scene.told()
        await withdrawal(scene, files).step()

        assert "inventory" not in scene.status
        assert scene.status["held"] == [uid]

    play(act)


def test_a_node_can_be_left_without_its_driver(tmp_path: Path) -> None:
    """It may have been removed first."""
    files = AgentFiles(tmp_path)

    async def act(scene: Scene) -> None:
        await scene.status_controller.flush()
        assert scene.status["inventory"]
        scene.hardware, scene.status_controller.leaving = None, True
        await scene.told()
        await withdrawal(scene, files).step()

        assert "inventory" not in scene.status

    play(act)


def test_an_agent_of_another_plugins_node_says_nothing(tmp_path: Path) -> None:
    """There the control plane writes the status; two would write for ever."""
    files = AgentFiles(tmp_path)

    async def act(scene: Scene) -> None:
        text = "nodeAgent: upstream"
        body = {"metadata": {"name": "vgpu-admission-settings"}, "data": {"settings.yaml": text}}
        scene.server.objects.create(parsed(SETTINGS), body)
        await until(lambda: scene.informer.is_upstream)
        await scene.status_controller.flush()
        await scene.capacity_controller.sweep()

        assert not scene.server.objects.read(parsed(f"{GPU_NODES}/n")).get("status")
        assert MEMORY not in scene.node["status"]["capacity"]
        assert "labels" not in scene.node["metadata"]
        assert "nodeAgent" in scene.informer.plugin_conflict
        assert files.remaining()

    play(act)


SELECTED = {"vgpu-admission.io/node": "enabled"}


def labels_of(scene: Scene) -> dict[str, str]:
    found: dict[str, str] = scene.node["metadata"].get("labels") or {}
    return found


async def serving(scene: Scene) -> None:
    """Write all that an agent writes on its Node."""
    await scene.caught_up()
    await scene.status_controller.flush()
    await scene.caught_up()
    await scene.capacity_controller.sweep()
    await scene.capacity_controller.sweep()
    assert MEMORY in scene.node["status"]["capacity"]
    assert "vgpu-admission.io/agent" in labels_of(scene)
    await until(lambda: scene.informer.node is not None and MEMORY in scene.informer.node.capacity)


def relabel(scene: Scene, **labels: str) -> None:
    metadata = {**scene.node["metadata"], "labels": labels}
    scene.change(f"{NODE}/n", metadata=metadata)


@pytest.mark.parametrize("labels", [{}, {"vgpu-admission.io/node": "disabled"}])
def test_an_agent_whose_node_lost_its_label_withdraws_at_its_end(
    tmp_path: Path, labels: dict[str, str]
) -> None:
    """Whether its watch has told of that or not; the last word is the API server's."""
    files = AgentFiles(tmp_path)

    async def act(scene: Scene) -> None:
        await serving(scene)
        others = {k: v for k, v in labels_of(scene).items() if k not in SELECTED}
        relabel(scene, **others, **labels)
        await withdrawal(scene, files).depart(scene.status_controller)

        assert MEMORY not in scene.node["status"]["capacity"]
        assert labels_of(scene) == labels
        assert "inventory" not in scene.status
        assert files.remaining() == []

    play(act, metadata={"name": "n", "labels": SELECTED})


def test_an_agent_that_is_replaced_withdraws_nothing(tmp_path: Path) -> None:
    """A rollout stops it as well; its Node is still selected."""
    files = AgentFiles(tmp_path)

    async def act(scene: Scene) -> None:
        await serving(scene)
        before = scene.node, scene.status
        await withdrawal(scene, files).depart(scene.status_controller)

        assert (scene.node, scene.status) == before
        assert scene.status["inventory"]
        assert files.remaining() == files.ours

    play(act, metadata={"name": "n", "labels": SELECTED})


def test_an_agent_that_was_never_selected_by_label_withdraws_nothing(tmp_path: Path) -> None:
    """The DaemonSet of the simulated overlay runs on nodes without it."""
    files = AgentFiles(tmp_path)

    async def act(scene: Scene) -> None:
        await serving(scene)
        before = scene.node
        await withdrawal(scene, files).depart(scene.status_controller)

        assert scene.node == before
        assert files.remaining() == files.ours

    play(act)


def test_an_agent_that_cannot_ask_withdraws_nothing(tmp_path: Path) -> None:
    """It ends all the same, with a line in its log."""
    files = AgentFiles(tmp_path)

    async def act(scene: Scene) -> None:
        await serving(scene)
        scene.server.objects.delete(parsed(f"{NODE}/n"))
        with capture_logs() as logs:
            await withdrawal(scene, files).depart(scene.status_controller)

        assert [line["event"] for line in logs] == ["withdrawal incomplete"]
        assert files.remaining() == files.ours

    play(act, metadata={"name": "n", "labels": SELECTED})


def test_tenants_keep_their_files_when_the_label_goes(tmp_path: Path) -> None:
    """Their containers have them mounted; their entry stays, and the node takes no other."""
    files = AgentFiles(tmp_path)

    async def act(scene: Scene) -> None:
        uid = await scene.held("tenant")
        await serving(scene)
        relabel(scene, **{"vgpu-admission.io/agent": "1"})
        await withdrawal(scene, files).depart(scene.status_controller)

        assert scene.status["held"] == [uid]
        assert "inventory" not in scene.status
        assert MEMORY not in scene.node["status"]["capacity"]
        assert files.remaining() == files.ours[1:]

    play(act, metadata={"name": "n", "labels": SELECTED})


def test_slots_that_kubelet_still_counts_stay_noted(tmp_path: Path) -> None:
    """Whoever comes next knows by the annotation which resource to remove."""
    files = AgentFiles(tmp_path)

    async def act(scene: Scene) -> None:
        await serving(scene)
        capacity = scene.node["status"]["capacity"]
        scene.change(f"{NODE}/n", status={"capacity": {**capacity, SLOT: "20"}})
        await until(
            lambda: scene.informer.node is not None and SLOT in scene.informer.node.capacity
        )
        relabel(scene)
        await withdrawal(scene, files).depart(scene.status_controller)

        assert scene.node["metadata"]["annotations"] == {"vgpu-admission.io/capacity": SLOT}
        assert scene.node["status"]["capacity"] == {"cpu": "2", SLOT: "20"}

    play(act, metadata={"name": "n", "labels": SELECTED})
