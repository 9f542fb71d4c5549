"""What the monitor is told of the node, and the evictions that it asks for."""

import asyncio
import json
from pathlib import Path

import pytest

from agent.driver.driver_thread import DriverThread
from agent.health.hardware_informer import HardwareInformer, HardwareListeners
from agent.monitor.violation import LocalPod
from agent.mps.gpu_controller import MpsServices
from agent.mps.journal_files import MpsJournal
from agent.mps.mps_controller import MpsController
from agent.mps.partitions.book_files import PartitionBook
from agent.mps.simulated.simulated_files import SimulatedDaemons
from agent.serve.monitor_view import Evictor, MonitorView
from allocator.ledger.schema import spec_of
from kube.client import Client
from kube.config import Access
from tests.builders.gpunodes import entry
from tests.builders.model import soft_grant
from tests.fakes.api_server import ApiServer
from tests.harness.mig_agent import Desk
from tests.integration.agent.clusterside import GPU_NODES, Scene, play, promised

POD = LocalPod(uid="uid-1", namespace="team-a", name="p")


def test_exactly_that_pod_is_evicted() -> None:
    """One of the same name made since is nobody's fault."""

    async def act() -> None:
        async with ApiServer() as server, Client(Access(url=server.url)) as client:
            await Evictor(client, lambda *what: reported.append(what)).evict(POD, "why")

        (request,) = server.requests
        assert request.path == "/api/v1/namespaces/team-a/pods/p/eviction"
        body = json.loads(request.body)
        assert body["deleteOptions"] == {"preconditions": {"uid": "uid-1"}}

    reported: list[tuple[LocalPod, str]] = []
    asyncio.run(act())
    assert reported == [(POD, "why")]


@pytest.mark.parametrize("status", [403, 404, 409, 429, 500])
def test_an_eviction_that_is_refused_stops_nothing(status: int) -> None:
    """A disruption budget, a missing right, a pod that is gone: it is asked for again later."""

    async def act() -> None:
        async with ApiServer() as server, Client(Access(url=server.url)) as client:
            server.answer_next(status, times=20)
            await Evictor(client, lambda *what: reported.append(what)).evict(POD, "why")

    reported: list[tuple[LocalPod, str]] = []
    asyncio.run(act())
    assert reported == []


def view_of(scene: Scene, folder: Path) -> MonitorView:
    """Return what a monitor of the scene's node is told, beside simulated boards."""
    desk = Desk(folder)
    survey_worker = DriverThread(desk.driver)
    survey = HardwareInformer(survey_worker, HardwareListeners(lambda: None, lambda _, __: None))
    services = MpsServices(
        worker=survey_worker,
        daemons=SimulatedDaemons(folder),
        journal=MpsJournal(folder / "mps.json", boot="boot-1"),
        book=PartitionBook(folder / "mps-partitions.json", boot="boot-1"),
    )
    mps = MpsController(services, host_root="/usr/local/vgpu")
    return MonitorView(scene.informer, survey, desk.instances, mps)


def test_a_pod_that_is_older_than_the_ledger_is_not_evicted(tmp_path: Path) -> None:
    """Nothing starts without an entry, so who runs without one came before; others are as told."""
    running = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}

    async def act(scene: Scene) -> None:
        older, newer = scene.bind("older", **running), scene.bind("newer", **running)
        waiting = scene.bind("waiting")
        scene.promise(promised(newer))
        await scene.caught_up()

        pods = view_of(scene, tmp_path).pods()

        assert {uid for uid, pod in pods.items() if pod.exempt} == {older}
        assert pods.keys() == {older, newer, waiting}

    play(act)


def test_what_the_status_tells_as_unpromised_is_known_by_pod_and_gpu(tmp_path: Path) -> None:
    """The monitor must not count it a second time."""

    async def act(scene: Scene) -> None:
        view = view_of(scene, tmp_path)
        await scene.status_controller.flush()
        assert view.unpromised_memory() == {}
        two = entry("older", soft_grant(1000, gpu="GPU-0"), soft_grant(500, gpu="GPU-0"))
        older = spec_of((two,))["entries"]
        scene.change(f"{GPU_NODES}/n", status=scene.status | {"unpromised": older})
        await scene.caught_up()

        assert view.unpromised_memory() == {("older", "GPU-0"): 1500}

    play(act)


def test_instances_are_not_known_before_all_gpus_were_looked_at(tmp_path: Path) -> None:
    """Nobody uses what was not promised to it only because an agent has just started."""

    async def act(scene: Scene) -> None:
        view = view_of(scene, tmp_path)
        before = view.instances()
        view.hardware_informer.instances_known = True

        assert (before, view.instances()) == (None, ())

    play(act)
