"""The part of an agent that cuts GPUs, as a process of its own that is killed in the middle.

``python -m tests.fakes.mig_agent DRIVER FOLDER MOMENT PLACE...`` promises the places one after the
other, each alone, as ``1g.5gb@0``, on the first GPU, an A100, and tells what there is then as JSON.
Having forced the journal to disk for the MOMENT-th time, from 0, it kills itself; -1 is never.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from agent.driver.driver import Driver
from agent.driver.driver_thread import DriverThread
from agent.driver.simulated_files import SimulatedDriver
from agent.mig.device_files import NoFiles
from agent.mig.gpu_controller import MigServices
from agent.mig.instances_controller import InstancesController
from agent.mig.journal_files import Journal
from agent.mig.open_files import OpenFiles
from agent.nvml.driver import NvmlDriver
from allocator.model.board import Placement
from kube.clock import SYSTEM
from tests.builders.model import placed
from tests.fakes.driver import A100, machine

SURVIVES = -1


class Killing:
    """Forces files to disk, and this process to its end."""

    def __init__(self, moment: int) -> None:
        self._left = moment

    def sync(self, file: int) -> None:
        os.fsync(file)
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


def opened(kind: str, folder: Path) -> Driver:
    if kind == "nvml":
        return NvmlDriver(sysfs=folder / "sys")
    return SimulatedDriver(machine(A100), file=folder / "boards.json")


def place(text: str) -> Placement:
    name, _, start = text.partition("@")
    return placed(name, int(start))


async def live(driver: Driver, journal: Journal, places: list[Placement]) -> dict[str, object]:
    tools = MigServices(
        worker=DriverThread(driver),
        journal=journal,
        device_files=NoFiles(),
        open_files=OpenFiles(Path("/nowhere")),
        clock=SYSTEM,
    )
    instances = InstancesController(tools, patience=0)
    gpu = driver.devices()[0].uuid
    ready = ""
    for one in places:
        await instances.set_desired({gpu: [one]})
        await instances.settle()
        ready = (await instances.ensure(gpu, one)).uuid
    return {
        "ready": ready,
        "there": [[i.instance.start, i.instance.uuid, i.ours] for i in instances.live_instances()],
    }


def main(kind: str, folder: Path, moment: int, *places: str) -> None:
    journal = Journal(folder / "mig.journal", boot="boot-1", sync=Killing(moment).sync)
    told = asyncio.run(live(opened(kind, folder), journal, list(map(place, places))))
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
