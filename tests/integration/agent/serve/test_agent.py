"""The whole agent over simulated boards, between a small API server and a kubelet's sockets."""

import asyncio
import copy
import os
import signal
import tempfile
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from agent.deviceplugin.cdi import file_name
from agent.driver.driver import DriverError, Instance
from agent.driver.driver_thread import DriverThread
from agent.health.hardware_informer import HardwareInformer, HardwareListeners
from agent.node.status_controller import SETTLE_SECONDS
from agent.serve.agent import Agent, AgentParts
from agent.serve.agent import run as run_until_stopped
from agent.serve.options import BOOT_ID, AgentOptions, DriverKind
from allocator.audit.record import AllocatedRecord, ReconfiguredRecord
from allocator.catalog.keys import DECISION_KEY, NOT_READY_TAINT
from allocator.cli.audit import AuditOptions
from allocator.cli.http_server import Listen
from allocator.cli.process import background
from allocator.ledger.schema import spec_of
from allocator.volcano.register import HANDSHAKE_ANNOTATION, REGISTER_ANNOTATION
from kube.client import Client
from kube.config import Access
from tests.builders.gpunodes import entry
from tests.builders.model import mig_grant, soft_grant
from tests.fakes.api_objects import parsed
from tests.fakes.api_rules import Json
from tests.fakes.api_server import ApiServer
from tests.fakes.kubelet import Kubelet
from tests.fakes.pki import Authority
from tests.fakes.records_console import RecordsConsole, SenderFiles, listening
from tests.harness.records import strict_record
from tests.integration.waiting import until

NODE, GPU_NODES = "/api/v1/nodes", "/apis/vgpu-admission.io/v1alpha1/gpunodes"
PODS = "/api/v1/namespaces/team-a/pods"
SETTINGS = "/api/v1/namespaces/system/configmaps"
DEVICES = "/api/v1/namespaces/kube-system/configmaps"
SLOT = "volcano.sh/vgpu-number"
FLEET = """
nodes:
- name: "*"
  model: NVIDIA A100-SXM4-40GB
  gpus: [{count: 1, mode: mig}, {count: 1, mode: hami-core}]
"""
SLOTS = 7 + 10


@dataclass(slots=True, kw_only=True)
class Scene:
    """A node called ``n``, its kubelet, and the agent that runs on it."""

    server: ApiServer
    kubelet: Kubelet
    root: Path
    parts: AgentParts
    agent: Agent

    def read(self, path: str) -> Json:
        return self.server.objects.read(parsed(path))

    def change(self, path: str, **parts: Any) -> None:  # noqa: ANN401 -- any JSON
        stored = copy.deepcopy(self.read(path))
        self.server.objects.replace(parsed(path), stored | parts)

    @property
    def status(self) -> Json:
        return dict(self.read(f"{GPU_NODES}/n").get("status") or {})

    def uuid(self, index: int) -> str:
        return str(self.status["gpus"][index]["uuid"])

    async def wait_until_serving(self) -> None:
        await until(lambda: self.kubelet.allocatable and not self.agent.not_ready_reason())
        await until(lambda: self.status)

    def event_reasons(self, namespace: str) -> set[str]:
        """Return the reasons of the Events there."""
        events = parsed(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
        return {str(event["reason"]) for event in self.server.objects.at(events)}

    def create_bound_pod(self, name: str, annotations: Json | None = None) -> str:
        container = {"name": "main", "resources": {"limits": {SLOT: "1"}}}
        body = {"spec": {"nodeName": "n", "containers": [container]}}
        metadata = {"name": name, "annotations": annotations or {}}
        made = self.server.objects.create(parsed(PODS), {"metadata": metadata, **body})
        return str(made["metadata"]["uid"])


def run_agent(
    act: Callable[[Scene], Awaitable[None]],
    *configured: tuple[str, str, Json],
    resource: str = SLOT,
    withdraw: bool = False,
    audit: AuditOptions | None = None,
    **node: Any,  # noqa: ANN401 -- any JSON
) -> None:
    """Run *act* while an agent runs on a node that has no GPUs yet for all the cluster knows."""

    async def run(root: Path) -> None:
        (root / BOOT_ID).parent.mkdir(parents=True)
        (root / BOOT_ID).write_text("boot-1\n")
        (root / "fleet.yaml").write_text(FLEET)
        kubelet = Kubelet(root, resource=resource)
        async with ApiServer() as server:
            runtime = {"nodeInfo": {"containerRuntimeVersion": "containerd://2.2.1"}}
            body = {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "2"}, **runtime}}
            server.objects.create(parsed(NODE), body | node)
            server.objects.create(
                parsed(GPU_NODES), {"metadata": {"name": "n"}, "spec": {"entries": []}}
            )
            for path, name, data in configured:
                server.objects.create(parsed(path), {"metadata": {"name": name}, "data": data})
            await kubelet.start()
            try:
                await _run_scene(act, server, kubelet, root=root, withdraw=withdraw, audit=audit)
            finally:
                await kubelet.stop()

    with tempfile.TemporaryDirectory(prefix="vgpu-") as folder:  # a socket's path is short
        asyncio.run(run(Path(folder)))


async def _run_scene(
    act: Callable[[Scene], Awaitable[None]],
    server: ApiServer,
    kubelet: Kubelet,
    *,
    root: Path,
    **more: Any,  # noqa: ANN401 -- options of the agent
) -> None:
    access = Access(url=server.url)
    options = AgentOptions(
        access=access,
        node="n",
        namespace="system",
        listen=Listen("127.0.0.1", 0),
        driver=DriverKind.SIMULATED,
        fleet=root / "fleet.yaml",
        root=root,
        kubelet=kubelet.folder,
        **more,
    )
    async with Client(access) as client:
        parts = AgentParts(options, client)
        try:
            async with parts.audit.deliver(), background() as start:
                agent = Agent(options, client, parts)
                agent.begin(start)
                await act(
                    Scene(server=server, kubelet=kubelet, root=root, parts=parts, agent=agent)
                )
        finally:
            await parts.close()


def test_a_node_without_gpus_gets_all_that_its_boards_give() -> None:
    """Slots through kubelet, capacity on the Node, and then the taint goes."""
    taints = [{"key": NOT_READY_TAINT, "effect": "NoSchedule"}]

    async def act(scene: Scene) -> None:
        await scene.wait_until_serving()
        await until(lambda: not scene.read(f"{NODE}/n")["spec"]["taints"])

        assert scene.kubelet.allocatable == SLOTS
        assert scene.read(f"{NODE}/n")["status"]["capacity"]["volcano.sh/vgpu-cores"] == "200"

    run_agent(act, spec={"taints": taints})


def test_nothing_is_told_of_a_gpu_before_its_instances_are_known() -> None:
    """An agent that starts anew takes no GPU out of service, not even while it looks."""

    async def act(scene: Scene) -> None:
        driver = scene.parts.driver_thread.driver
        known = driver.instances

        def late(gpu: str) -> tuple[Instance, ...]:
            threading.Event().wait(2 * SETTLE_SECONDS)
            return known(gpu)

        with patch.object(driver, "instances", late):
            await scene.wait_until_serving()

        changes = scene.server.objects.since(0)
        told = [c.object["status"]["gpus"] for c in changes if "gpus" in c.object.get("status", {})]
        assert told
        assert all(gpu["healthy"] for gpus in told for gpu in gpus)

    run_agent(act)


def test_what_the_monitor_sees_without_an_entry_reaches_the_status() -> None:
    """Memory that is foreign, and where pods without a share have processes."""

    async def act(scene: Scene) -> None:
        await scene.wait_until_serving()
        monitor, informer = scene.parts.monitor, scene.parts.hardware_informer
        await until(lambda: monitor.snapshot is not None)
        assert monitor.snapshot is not None
        reached = {"stranger": frozenset({scene.uuid(1)})}
        monitor.snapshot = replace(monitor.snapshot, reached=reached, foreign={})
        monitor.on_snapshot()

        assert informer.hardware is not None
        assert informer.hardware.reached == reached

    run_agent(act)


@pytest.mark.parametrize("index", [0, 1], ids=["mig", "hami-core"])
def test_a_promise_becomes_what_its_container_receives(index: int) -> None:
    """Bound, committed, cut or seeded, held, and written for the container runtime."""

    async def act(scene: Scene) -> None:
        await scene.wait_until_serving()
        uid, gpu = scene.create_bound_pod("p"), scene.uuid(index)
        grant = mig_grant("1g.5gb", 6, gpu=gpu) if index == 0 else soft_grant(3000, 50, gpu=gpu)
        scene.change(f"{GPU_NODES}/n", spec=spec_of([entry(uid, grant)]))
        await until(lambda: uid in scene.parts.node_informer.pods)

        held = await scene.kubelet.admit(uid, "p")
        await scene.kubelet.run(held)

        (slot,) = held.slots
        document = (scene.root / "var/run/cdi" / file_name(slot)).read_text()
        assert ("MIG-" in document) is (index == 0)
        assert scene.status["held"] == [uid]
        await until(lambda: scene.event_reasons("team-a") == {"VgpuAllocated"})
        if index == 0:
            await until(lambda: scene.event_reasons("default") == {"MigReconfigured"})

    run_agent(act)


def test_records_of_a_start_reach_the_console(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """With the digest on the pod; they are lines of standard output too."""
    authority, files = Authority("ours"), SenderFiles(tmp_path / "files")
    files.write(authority)
    console = RecordsConsole()

    async def act(scene: Scene) -> None:
        await scene.wait_until_serving()
        gpu = scene.uuid(0)
        uid = scene.create_bound_pod("p", {DECISION_KEY: "k7q2m4x9tb"})
        entries = [entry(uid, mig_grant("1g.5gb", 6, gpu=gpu))]
        scene.change(f"{GPU_NODES}/n", spec=spec_of(entries))
        await until(lambda: uid in scene.parts.node_informer.pods)
        await scene.kubelet.run(await scene.kubelet.admit(uid, "p"))
        await until(lambda: len(console.lines) >= 2)

    with listening(console, authority) as port:
        audit = AuditOptions(
            url=f"https://127.0.0.1:{port}",
            certificates=files.folder,
            token=files.folder / "token",
            spool=tmp_path / "spool",
        )
        run_agent(act, audit=audit)

    records = {type(record): record for record in map(strict_record, console.lines)}
    allocated, reconfigured = records[AllocatedRecord], records[ReconfiguredRecord]
    assert isinstance(allocated, AllocatedRecord)
    assert (allocated.node, allocated.pod, allocated.digest) == ("n", "p", "k7q2m4x9tb")
    assert allocated.devices[0].instance.startswith("MIG-")
    assert isinstance(reconfigured, ReconfiguredRecord)
    assert reconfigured.done
    assert set(console.lines) <= set(capfdbinary.readouterr().out.splitlines())
    assert list((tmp_path / "spool").iterdir()) == []


def test_slots_wait_for_the_register_where_vc_scheduler_looks() -> None:
    """It crashes on a node that has slots and no register."""
    settings = (SETTINGS, "vgpu-admission-settings", {"settings.yaml": "volcanoRegister: true"})

    async def act(scene: Scene) -> None:
        await until(lambda: scene.status)
        assert scene.kubelet.registrations == 0

        metadata = scene.read(f"{NODE}/n")["metadata"]
        annotations = {
            REGISTER_ANNOTATION: "GPU-0,10,1,NVIDIA-T4,true,hami-core:",
            HANDSHAKE_ANNOTATION: "Reported x",
        }
        kept = metadata.get("annotations") or {}
        scene.change(f"{NODE}/n", metadata=metadata | {"annotations": kept | annotations})
        await scene.wait_until_serving()

    run_agent(act, settings)


def test_a_driver_that_hangs_is_said_where_readiness_is_asked_for() -> None:
    """With the call; the agent is unready for as long, and alive."""
    gate, now = threading.Event(), [0.0]

    async def act(scene: Scene) -> None:
        await scene.wait_until_serving()
        survey = scene.parts.hardware_informer
        worker = DriverThread(scene.parts.driver_thread.driver, clock=lambda: now[0])
        scene.parts.hardware_informer = HardwareInformer(
            worker, HardwareListeners(lambda: None, lambda _, __: None)
        )
        scene.parts.hardware_informer.hardware = survey.hardware
        with pytest.raises(DriverError):
            await worker.call(gate.wait, within=0.01)
        before = scene.agent.not_ready_reason()
        now[0] = 61.0

        assert (before, scene.agent.not_ready_reason()) == (
            "",
            "the driver hangs: wait has been running for 61 s",
        )
        gate.set()
        await worker.call(worker.driver.versions, within=60.0)
        assert scene.agent.not_ready_reason() == ""
        scene.parts.hardware_informer = survey

    try:
        run_agent(act)
    finally:
        gate.set()


def test_slots_wait_for_another_plugin_to_go() -> None:
    """And the status says which it is."""

    async def act(scene: Scene) -> None:
        await until(lambda: scene.status)
        assert "nvidia.com/gpu" in scene.status["gpus"][0]["reason"]
        assert "nvidia.com/gpu" in scene.agent.not_ready_reason()
        assert scene.kubelet.registrations == 0

        status = scene.read(f"{NODE}/n")["status"]
        scene.change(f"{NODE}/n", status=status | {"allocatable": {"nvidia.com/gpu": "0"}})
        await scene.wait_until_serving()
        await until(lambda: scene.status["gpus"][0]["healthy"])

    status = {"capacity": {"cpu": "2"}, "allocatable": {"nvidia.com/gpu": "2"}}
    run_agent(act, status=status)


def test_slots_under_another_name_are_the_next_agents() -> None:
    """The one that runs ends and says why; its plugin with it, and kubelet drops the old name."""
    name = "volcano-vgpu-device-config"
    devices = (DEVICES, name, {"device-config.yaml": "nvidia: {}"})
    renamed = {"device-config.yaml": "nvidia: {resourceCountName: example.com/gpu}"}

    async def act(scene: Scene) -> None:
        await scene.wait_until_serving()
        scene.change(f"{DEVICES}/{name}", data=renamed)
        async with asyncio.timeout(20):
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as ended:
        run_agent(act, devices)
    assert ended.group_contains(RuntimeError, match="the slot resource is now example.com/gpu")


def test_slots_have_the_name_and_number_that_the_site_gave_them() -> None:
    """The number for GPUs that are shared; a board that is cut takes what it takes."""
    text = "nvidia: {resourceCountName: example.com/gpu, deviceSplitCount: 3}"
    devices = (DEVICES, "volcano-vgpu-device-config", {"device-config.yaml": text})

    async def act(scene: Scene) -> None:
        await scene.wait_until_serving()

        assert scene.kubelet.allocatable == 7 + 3

    run_agent(act, devices, resource="example.com/gpu")


@pytest.mark.parametrize("selected", [True, False], ids=["replaced", "unlabelled"])
def test_sigterm_withdraws_only_where_the_label_is_gone(*, selected: bool) -> None:
    """The same signal ends an agent that is replaced, whose Node keeps everything."""

    async def play(root: Path) -> None:
        (root / BOOT_ID).parent.mkdir(parents=True)
        (root / BOOT_ID).write_text("boot-1\n")
        (root / "fleet.yaml").write_text(FLEET)
        kubelet = Kubelet(root, resource=SLOT)
        async with ApiServer() as server:
            runtime = {"nodeInfo": {"containerRuntimeVersion": "containerd://2.2.1"}}
            label = {"vgpu-admission.io/node": "enabled"}
            body = {"metadata": {"name": "n", "labels": label}, "status": runtime}
            server.objects.create(parsed(NODE), body)
            ledger = {"metadata": {"name": "n"}, "spec": {"entries": []}}
            server.objects.create(parsed(GPU_NODES), ledger)
            await kubelet.start()
            options = AgentOptions(
                access=Access(url=server.url),
                node="n",
                namespace="system",
                listen=Listen("127.0.0.1", 0),
                driver=DriverKind.SIMULATED,
                fleet=root / "fleet.yaml",
                root=root,
                kubelet=kubelet.folder,
            )
            running = asyncio.create_task(run_until_stopped(options))

            def node() -> Json:
                return server.objects.read(parsed(f"{NODE}/n"))

            def inventory() -> bool:
                stored = server.objects.read(parsed(f"{GPU_NODES}/n")).get("status") or {}
                return "inventory" in stored

            await until(lambda: "volcano.sh/vgpu-memory" in node()["status"].get("capacity", {}))
            await until(inventory)
            if not selected:
                metadata = copy.deepcopy(node()["metadata"])
                del metadata["labels"]["vgpu-admission.io/node"]
                server.objects.replace(parsed(f"{NODE}/n"), {**node(), "metadata": metadata})
            os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(20):
                await running

            assert not inventory()  # no bind until the next agent serves
            assert ("vgpu-admission.io/agent" in node()["metadata"]["labels"]) is selected
            assert ("volcano.sh/vgpu-memory" in node()["status"]["capacity"]) is selected
            await kubelet.stop()

    with tempfile.TemporaryDirectory(prefix="vgpu-") as folder:
        asyncio.run(play(Path(folder)))
