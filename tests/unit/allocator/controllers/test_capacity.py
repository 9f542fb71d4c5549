"""What the lease holder measures of the cluster, and when it keeps silent."""

import asyncio
from dataclasses import replace

from allocator.config.device_config import DeviceConfig
from allocator.controllers.capacity import FreeCapacityController
from allocator.model.request import Mode
from allocator.scheduling.capacity import FreeCapacity
from tests.builders.model import T4, gpu, node
from tests.unit.allocator.attendance import index_of


def test_nothing_is_reported_while_nodes_are_missing() -> None:
    """A part of the cluster would look like a full one."""
    reports: list[FreeCapacity] = []
    index = index_of(node("n0", gpu(T4)))

    for known in (False, True):
        controller = FreeCapacityController(
            index=lambda known=known: replace(index, all_nodes_known=known),  # type: ignore[misc]
            device_config=DeviceConfig,
            report=reports.append,
        )
        asyncio.run(controller.sweep())

    (report,) = reports
    assert report.largest == {(Mode.HAMI_CORE, gpu(T4).model): gpu(T4).memory}
