"""Measures how much more the cluster can take, for the metrics of the lease holder."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from allocator.config.device_config import DeviceConfig
from allocator.extender.index import Index
from allocator.placement.mig import MigOptions
from allocator.scheduling.capacity import FreeCapacity, free_capacity

SWEEP_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeCapacityController:
    """Reports what is free; nothing while not every node is known."""

    index: Callable[[], Index]
    device_config: Callable[[], DeviceConfig]
    report: Callable[[FreeCapacity], None]

    async def sweep(self) -> None:
        """Measure and report once."""
        index = self.index()
        if index.all_nodes_known:
            options = MigOptions(
                demand=index.snapshot.demand,
                geometries=self.device_config().geometries,
                named=None,
            )
            self.report(free_capacity(index, options))
