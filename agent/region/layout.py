"""Layouts: the shared region of each generation of the interception library, by offsets.

Offsets are bytes; integers are little endian. Only size and version words tell the generations
apart, and two of them have the same version.
"""

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple

MAGIC: Final = 19920718  # the first four bytes, written last: 0 is a region in the making
MOST_DEVICES: Final = 16
MOST_PROCESSES: Final = 1024
UUID_SIZE: Final = 96
SEMAPHORE_SIZE: Final = 32
VERSIONS_AT: Final = 4  # two u32, where a layout has them
# Offsets in one process's slot (hami-core, multiprocess_memory_limit.h, shrreg_proc_slot_t).
NODE_PID_AT: Final = 4  # i32, after the container's own number of the process
# Offset in one device's utilization record: u64 dec_util, enc_util, sm_util (device_util_t there).
SM_UTIL_AT: Final = 16
RUNNING: Final = 1  # status of a slot whose process is not suspended


class Tail(NamedTuple):
    """The four i32 that begin at ``Layout.process_count``."""

    process_count: int  # slots taken
    utilization_switch: int
    recent_kernel: int
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSlot:
    """One process's record: the offsets in it of arrays that count devices.

    The container's own number of the process is at 0, the node's at 4. Of ``used``, five u64 are
    context, module and data size, a spare and the total; ``stride`` is from one device to the
    next. ``utilization`` has three u64, of which the last is compute; ``None`` where there is none.
    """

    size: int
    used: int
    stride: int
    utilization: int | None
    utilization_stride: int = 48
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One generation: its offsets, and by what a file is known to be of it.

    ``size`` is the file's, which is the region's and one byte more. ``version`` is ``None`` where
    the generation has none. From ``process_count`` on stand four i32: how many slots are taken, the
    utilization switch, the recent kernel and the priority; then the last kernel's time as u64,
    where there is one.
    """

    name: str
    size: int
    version: tuple[int, int] | None
    semaphores: tuple[int, ...]
    device_count: int
    uuids: int
    memory_limits: int
    core_limits: int
    slots: int
    slot: ProcessSlot
    process_count: int
    last_kernel: int | None

    @property
    def region_size(self) -> int:
        """Return the bytes of the region itself: the library makes the file one byte longer."""
        return self.size - 1

    @property
    def utilization_switch(self) -> int:
        """Return where the switch of compute limits is."""
        return self.process_count + 4

    @property
    def recent_kernel(self) -> int:
        """Return where launches are marked, and blocked."""
        return self.process_count + 8

    @property
    def priority(self) -> int:
        """Return where the priority is."""
        return self.process_count + 12


_LAYOUT_A: Final = Layout(
    name="A",
    size=804681,
    version=None,
    semaphores=(16,),
    device_count=48,
    uuids=56,
    memory_limits=1592,
    core_limits=1720,
    slots=1848,
    slot=ProcessSlot(size=784, used=8, stride=40, utilization=None, status=776),
    process_count=804664,
    last_kernel=None,
)
# The same header before larger slots.
_LAYOUT_B: Final = replace(
    _LAYOUT_A,
    name="B",
    size=1197897,
    slot=ProcessSlot(
        size=1168, used=8, stride=40, utilization=776, utilization_stride=24, status=1160
    ),
    process_count=1197880,
)
_LAYOUT_C: Final = Layout(
    name="C",
    size=2008953,
    version=(1, 1),
    semaphores=(24,),
    device_count=56,
    uuids=64,
    memory_limits=1600,
    core_limits=1728,
    slots=1856,
    slot=ProcessSlot(size=1960, used=8, stride=64, utilization=1160, status=1928),
    process_count=2008896,
    last_kernel=2008912,
)
_LAYOUT_D: Final = Layout(
    name="D",
    size=2008985,
    version=(1, 1),
    semaphores=(24, 56),
    device_count=88,
    uuids=96,
    memory_limits=1632,
    core_limits=1760,
    slots=1888,
    slot=ProcessSlot(size=1960, used=16, stride=64, utilization=1168, status=1936),
    process_count=2008928,
    last_kernel=2008944,
)
# What D put between others stands in spare room here, so that all is where C has it.
_LAYOUT_E: Final = replace(_LAYOUT_C, name="E", version=(1, 2), semaphores=(24, 2008920))
LAYOUTS: Final = (_LAYOUT_A, _LAYOUT_B, _LAYOUT_C, _LAYOUT_D, _LAYOUT_E)
BY_NAME: Final = MappingProxyType({layout.name: layout for layout in LAYOUTS})
SEEDED: Final = _LAYOUT_E  # what the library that the agent installs works with
