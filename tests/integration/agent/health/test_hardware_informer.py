"""The hardware as one value, over a driver that works, fails, and comes back."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from agent.driver.driver import Device, Driver, DriverError, DriverEvent, Fault, Usage, Versions
from agent.driver.driver_thread import DriverThread, HungCall
from agent.health.hardware_informer import LIST_TIMEOUT, HardwareInformer, HardwareListeners
from agent.mig.instance_state import LiveInstance
from agent.node.status import Hardware
from allocator.model.units import MiB
from tests.fakes.kube_clock import FakeClock
from tests.integration.agent.clusterside import gpu


class ScriptedDriver:
    """A driver of as many GPUs as a test says, which it may refuse to tell of."""

    def __init__(self) -> None:
        self.gpus = [gpu(0), gpu(1)]
        self.broken = False
        self.happened: list[DriverEvent] = []

    def devices(self) -> tuple[Device, ...]:
        self._answer("devices")
        return tuple(self.gpus)

    def versions(self) -> Versions:
        return Versions(driver="580.1", nvml="1", cuda="13.0")

    def usage(self, uuid: str) -> Usage:
        self._answer(uuid)
        return Usage(memory=MiB(0), utilization=0)

    def events(self) -> tuple[DriverEvent, ...]:
        events, self.happened = tuple(self.happened), []
        return events

    def close(self) -> None: ...

    def _answer(self, call: str) -> None:
        if self.broken:
            raise DriverError(Fault.UNAVAILABLE, call, "gone")


class Scene:
    def __init__(self, board: ScriptedDriver, worker: DriverThread) -> None:
        self.board = board
        self.time = FakeClock()
        self.changes: list[Hardware | None] = []
        self.health: list[tuple[str, str]] = []
        listeners = HardwareListeners(
            lambda: self.changes.append(self.informer.hardware), self._health
        )
        self.informer = HardwareInformer(worker, listeners, clock=self.time.clock())

    def _health(self, uuid: str, why: str) -> None:
        self.health.append((uuid, why))

    def unhealthy_gpus(self) -> set[str]:
        hardware = self.informer.hardware
        return set() if hardware is None else set(hardware.unhealthy)


@contextmanager
def driver_thread(board: Driver) -> Iterator[DriverThread]:
    worker = DriverThread(board)
    try:
        yield worker
    finally:
        asyncio.run(worker.close())


def run_scene(act: Callable[[Scene], Awaitable[None]]) -> None:
    board = ScriptedDriver()
    with driver_thread(board) as worker:  # type: ignore[arg-type]
        asyncio.run(_run(act, Scene(board, worker)))


async def _run(act: Callable[[Scene], Awaitable[None]], scene: Scene) -> None:
    await act(scene)


def test_unchanged_hardware_is_reported_once() -> None:
    """Whoever is woken has something to do."""

    async def act(scene: Scene) -> None:
        for _ in range(3):
            await scene.informer.poll()

        assert len(scene.changes) == 1
        assert scene.informer.hardware is not None
        assert scene.informer.hardware.driver == "580.1"
        assert scene.unhealthy_gpus() == set()

    run_scene(act)


def test_a_driver_that_is_not_there_yet_says_nothing() -> None:
    """No GPUs known is not the same as no GPUs."""

    async def act(scene: Scene) -> None:
        scene.board.broken = True
        await scene.informer.poll()
        assert scene.informer.hardware is None

        scene.board.broken = False
        await scene.informer.poll()
        assert scene.informer.hardware is not None

    run_scene(act)


def test_a_driver_that_fails_takes_no_gpu_away() -> None:
    """Its promises are still there; after some failures in a row nothing more is promised."""

    async def act(scene: Scene) -> None:
        await scene.informer.poll()
        scene.board.broken = True
        for _ in range(5):
            await scene.informer.poll()

        assert scene.informer.hardware is not None
        assert len(scene.informer.hardware.devices) == 2
        assert scene.unhealthy_gpus() == {"GPU-0", "GPU-1"}

    run_scene(act)


def test_behind_a_call_that_hangs_nobody_waits() -> None:
    """All GPUs are sick after three looks; which call it is can be told until it comes back."""
    board, gate, now = ScriptedDriver(), threading.Event(), [0.0]

    async def story(worker: DriverThread) -> None:
        scene = Scene(board, worker)
        await scene.informer.poll()
        with pytest.raises(DriverError):
            await worker.call(gate.wait, within=0.01)
        early = scene.informer.hung_call
        now[0] = LIST_TIMEOUT
        with capture_logs() as logs:
            async with asyncio.timeout(LIST_TIMEOUT):  # one look that waited would take as long
                for _ in range(3):
                    await scene.informer.poll()

        assert [(e["event"], e.get("call")) for e in logs][:1] == [("driver hangs", "wait")]
        assert [e["event"] for e in logs].count("driver hangs") == 1
        assert (early, scene.informer.hung_call) == (
            None,
            HungCall(call="wait", seconds=LIST_TIMEOUT),
        )
        assert scene.unhealthy_gpus() == {"GPU-0", "GPU-1"}
        gate.set()
        assert await worker.call(board.devices, within=LIST_TIMEOUT)
        assert scene.informer.hung_call is None

    worker = DriverThread(board, clock=lambda: now[0])  # type: ignore[arg-type]
    try:
        asyncio.run(story(worker))
    finally:
        gate.set()
        asyncio.run(worker.close())


def test_a_gpu_that_fell_off_the_bus_stays_as_a_sick_one() -> None:
    """Containers may have it; and its Node is told, once."""

    async def act(scene: Scene) -> None:
        await scene.informer.poll()
        del scene.board.gpus[1]
        for _ in range(5):
            await scene.informer.poll()

        assert scene.unhealthy_gpus() == {"GPU-1"}
        assert [uuid for uuid, why in scene.health if why] == ["GPU-1"]

    run_scene(act)


def test_a_critical_error_makes_one_gpu_sick_at_once() -> None:
    """Of the others nothing is said."""

    async def act(scene: Scene) -> None:
        await scene.informer.poll()
        scene.board.happened = [DriverEvent(gpu="GPU-0", xid=79)]
        await scene.informer.poll()

        assert scene.unhealthy_gpus() == {"GPU-0"}

    run_scene(act)


def test_what_is_learned_elsewhere_is_taken_over() -> None:
    """Memory of others, which the monitor measures."""

    async def act(scene: Scene) -> None:
        await scene.informer.poll()
        scene.informer.foreign_memory = {"GPU-0": MiB(512)}
        scene.informer.refresh()

        assert scene.informer.hardware is not None
        assert scene.informer.hardware.foreign_memory == {"GPU-0": 512}
        assert len(scene.changes) == 2

    run_scene(act)


class RecordingInstanceSource:
    """Instances, of which there are none yet on GPUs that came into view."""

    def __init__(self) -> None:
        self.gpus: list[str] = []

    def live_instances(self) -> tuple[LiveInstance, ...]:
        return ()

    def watch_mig_gpus(self, devices: Iterable[Device]) -> None:
        self.gpus += [device.uuid for device in devices]


def test_each_look_shows_the_gpus_to_who_cuts_them() -> None:
    """One that comes late, or is put into MIG mode while the agent runs, is looked at too."""

    async def act(scene: Scene) -> None:
        scene.informer.instances = noticed = RecordingInstanceSource()
        scene.board.gpus = [gpu(0)]
        await scene.informer.poll()
        scene.board.gpus = [gpu(0), gpu(1)]
        await scene.informer.poll()

        assert noticed.gpus == ["GPU-0", "GPU-0", "GPU-1"]

    run_scene(act)
