"""The files of instances: none is told before it can be reached, and only some can draw."""

import asyncio
from pathlib import Path

from tests.builders.model import PRO_6000, placed
from tests.fakes.driver import machine
from tests.harness.mig_agent import Desk
from tests.harness.simulated_boards import GPU

SMALL = placed("1g.5gb", 0)


def test_an_instance_without_its_files_is_not_ready(tmp_path: Path) -> None:
    """A container is not let start with an instance that it could not reach."""
    desk = Desk(tmp_path)

    async def story() -> None:
        desk.files.missing = "/dev/nvidia-uvm is missing"
        await desk.settle(SMALL)
        assert (await desk.why(SMALL)).endswith("is not ready yet: /dev/nvidia-uvm is missing")
        desk.files.missing = ""
        await desk.again()
        assert (await desk.instances.ensure(GPU, SMALL)).nodes

    asyncio.run(story())


def test_only_what_does_graphics_reaches_the_files_of_graphics(tmp_path: Path) -> None:
    """Beside one another on one GPU, which is found by its PCI address."""
    desk = Desk(tmp_path, machine(PRO_6000))
    draws, computes = placed("1g.24gb+gfx", 0, PRO_6000), placed("1g.24gb", 3, PRO_6000)
    pci = desk.driver.devices()[0].pci

    async def story() -> None:
        await desk.settle(draws, computes)
        paths = {
            place: [node.path for node in (await desk.instances.ensure(GPU, place)).nodes]
            for place in (draws, computes)
        }
        assert [f"/dev/dri/of-{pci}" in paths[place] for place in (draws, computes)] == [
            True,
            False,
        ]
        assert [len(paths[place]) for place in (draws, computes)] == [2, 1]

    asyncio.run(story())
