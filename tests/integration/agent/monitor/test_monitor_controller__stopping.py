"""An agent that goes away, for a while or for good, leaves nobody waiting for its word."""

import struct
from pathlib import Path
from typing import BinaryIO

from agent.region.feedback import BLOCKED, RELEASED
from agent.region.layout import SEEDED
from allocator.ledger.schema import spec_of
from tests.builders.gpunodes import entry
from tests.builders.model import soft_grant
from tests.integration.agent.serve.test_agent import GPU_NODES, Scene, run_agent
from tests.integration.agent.shares import share
from tests.integration.waiting import until


def recent_kernel(region: BinaryIO) -> int:
    """Return what a region says of launches."""
    region.seek(SEEDED.recent_kernel)
    found: int = struct.unpack("<i", region.read(4))[0]
    return found


def block(region: BinaryIO) -> None:
    """Hold back whoever has a region, as an agent did that was killed then."""
    region.seek(SEEDED.recent_kernel)
    region.write(struct.pack("<i", BLOCKED))


def test_whom_a_killed_agent_held_back_one_that_leaves_lets_go() -> None:
    """Soon, and again when it is told to stop: who waited for another goes on."""
    opened: list[BinaryIO] = []

    async def act(scene: Scene) -> None:
        await until(
            lambda: scene.parts.node_informer.synced and scene.parts.hardware_informer.hardware
        )
        uid, gpu = scene.create_bound_pod("p"), scene.parts.devices()[1].uuid
        scene.change(f"{GPU_NODES}/n", spec=spec_of([entry(uid, soft_grant(1000, 30, gpu=gpu))]))
        folder = await scene.parts.regions.seed(share(soft_grant(1000, 30, gpu=gpu), uid=uid))
        region = (Path(folder) / "vgpu.cache").open("r+b", buffering=0)
        opened.append(region)
        block(region)
        await until(lambda: recent_kernel(region) == RELEASED)
        block(region)

    run_agent(act, withdraw=True)

    (region,) = opened
    with region:
        assert recent_kernel(region) == RELEASED
