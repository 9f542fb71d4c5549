"""A region as killed processes leave it, and an agent that looks at it."""

import asyncio
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from agent.monitor.inspection_thread import Inspector
from agent.node.process_files import Processes
from agent.region.layout import SEEDED
from agent.region.repair import RepairKind
from tests.fakes.hami_core import enrol
from tests.integration.agent.shares import GPU, ID, NOW, UID, regions, share, site

DEAD, LIVING = 77, 78  # pids in the container
ODD: Final = SEEDED.slots + (SEEDED.slot.lock or 0)
STARTUP, LIST = SEEDED.semaphores[1], SEEDED.semaphores[0]


class BrokenRegionNode:
    """A node whose one region is written byte by byte, and which no process uses."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 0.0
        self.walked = 0.0
        self.cache = Path(asyncio.run(regions(root).seed(share()))) / "vgpu.cache"
        self.inspector = Inspector(
            regions(root),
            Processes(root),
            now=lambda: NOW,
            ticks=lambda: self.now,
            cpu_seconds=self._cpu_seconds,
        )
        self.put(SEEDED.device_count, "<Q", 1)
        self.put(SEEDED.uuids, "96s", GPU.encode())
        self.put(SEEDED.process_count, "<i", 2)
        for index, pid in enumerate((DEAD, LIVING)):
            self.put(SEEDED.slots + index * SEEDED.slot.size, "<ii", pid, 4_000_000 + index)

    def _cpu_seconds(self) -> float:
        self.walked += 0.01  # at the beginning and at the end of each walk
        return self.walked

    def put(self, at: int, form: str, *values: object) -> None:
        with self.cache.open("r+b") as file:
            file.seek(at)
            file.write(struct.pack(form, *values))

    def word(self, at: int) -> int:
        return int(struct.unpack_from("<Q", self.cache.read_bytes(), at)[0])

    def enrol(self, *, inner: int = LIVING, uid: str = UID, container: str = ID) -> None:
        """Let this very process be one of a pod."""
        enrol(self.root / "proc", os.getpid(), uid=uid, container=container, inner=inner)

    def looks(self, pauses: Iterable[float] = (1.8, 1.8)) -> list[RepairKind]:
        """Look after each pause; return what was repaired."""
        done = []
        for pause in pauses:
            self.now += pause
            done += [r.kind for r in self.inspector.inspect([], site(share())).repairs]
        return done
