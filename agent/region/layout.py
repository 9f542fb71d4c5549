"""Layouts: the shared region of each generation of the interception library, by offsets.

Offsets are bytes; integers are little endian. Only size and version words tell the generations
apart, and two of them have the same version.

HAMi-core puts no version into its library either. But the size of its region is compiled in
wherever the code maps, locks or extends the file: as an immediate in the machine code of x86-64, at
least seven times in the builds that were looked at. One text tells apart the layouts of one size.
"""

import struct
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple

MAGIC: Final = 19920718  # i32 at MAGIC_AT, written last: 0 is a region that is being created
MOST_DEVICES: Final = 16
MOST_PROCESSES: Final = 1024
UUID_SIZE: Final = 96
SEMAPHORE_SIZE: Final = 32
MAGIC_AT: Final = 0
VERSIONS_AT: Final = 4  # two u32, major and minor, where a layout has them
I32_SIZE: Final = 4
U64_SIZE: Final = 8
# Offsets in one process's slot (hami-core, multiprocess_memory_limit.h, shrreg_proc_slot_t).
OWN_PID_AT: Final = 0  # i32: the pid in the container
NODE_PID_AT: Final = 4  # i32: the pid on the node
# Offset in one device's utilization record: u64 dec_util, enc_util, sm_util (device_util_t there).
SM_UTIL_AT: Final = 16
TOTAL_AT: Final = 32  # u64 in one device's record of memory (device_memory_t there)
RUNNING: Final = 1  # status of a slot whose process is not suspended


class Tail(NamedTuple):
    """The four i32 that begin at ``Layout.process_count``."""

    process_count: int  # slots taken
    utilization_switch: int
    recent_kernel: int
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSlot:
    """The record of one process: its size, and offsets in it."""

    size: int
    used: int  # array by device: five u64 (context, module, data, offset and total size)
    stride: int  # from one device's element of ``used`` to the next
    utilization: int | None  # array by device: three u64, see SM_UTIL_AT; None: there is none
    utilization_stride: int = 48
    status: int  # i32
    lock: int | None = None  # u64, odd while ``used`` is being changed; None: there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One generation: its offsets, and the size and version that identify it."""

    name: str
    size: int  # of the file: one byte more than the region
    version: tuple[int, int] | None  # None: the generation has no version words
    owner: int  # u64: pid in the container of who holds the first semaphore
    semaphores: tuple[int, ...]  # of the list of slots, and of starting processes
    device_count: int  # u64
    uuids: int  # array of MOST_DEVICES names of UUID_SIZE bytes
    memory_limits: int  # array of MOST_DEVICES u64, bytes
    core_limits: int  # array of MOST_DEVICES u64, percent
    slots: int  # array of MOST_PROCESSES records
    slot: ProcessSlot
    process_count: int  # the four i32 of Tail
    last_kernel: int | None  # u64, Unix seconds; None: there is none

    @property
    def region_size(self) -> int:
        """Return the bytes of the region itself: the library makes the file one byte longer."""
        return self.size - 1

    @property
    def utilization_switch(self) -> int:
        """Return the offset of the switch of compute limits."""
        return self._tail_field("utilization_switch")

    @property
    def recent_kernel(self) -> int:
        """Return the offset of the word that marks launches, and blocks them."""
        return self._tail_field("recent_kernel")

    @property
    def priority(self) -> int:
        """Return the offset of the priority."""
        return self._tail_field("priority")

    def _tail_field(self, name: str) -> int:
        return self.process_count + I32_SIZE * Tail._fields.index(name)


_LAYOUT_A: Final = Layout(
    name="A",
    size=804681,
    version=None,
    owner=8,
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
# The same header, followed by larger slots.
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
    owner=16,
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
    owner=16,
    semaphores=(24, 56),
    device_count=88,
    uuids=96,
    memory_limits=1632,
    core_limits=1760,
    slots=1888,
    slot=ProcessSlot(size=1960, used=16, stride=64, utilization=1168, status=1936, lock=8),
    process_count=2008928,
    last_kernel=2008944,
)
# The fields that D inserted are in padding here, so that all offsets are those of C.
_LAYOUT_E: Final = replace(
    _LAYOUT_C,
    name="E",
    version=(1, 2),
    semaphores=(24, 2008920),
    slot=replace(_LAYOUT_C.slot, lock=1936),
)
LAYOUTS: Final = (_LAYOUT_A, _LAYOUT_B, _LAYOUT_C, _LAYOUT_D, _LAYOUT_E)
BY_NAME: Final = MappingProxyType({layout.name: layout for layout in LAYOUTS})
SEEDED: Final = _LAYOUT_E  # the layout of the library that the agent installs

# Releases of HAMi whose library this was tested with.
TESTED: Final = ("2.8.2", "2.8.3", "2.9.0")
_FEWEST_SIZES: Final = 3
_TEXT_OF_E: Final = b"postinit semaphore"  # of an error message that layout C has no use for
_OF_HAMI: Final = {
    "A": "HAMi 2.3 and older",
    "B": "HAMi 2.4.0",
    "C": "HAMi 2.4.1 to 2.8.0",
    "D": "HAMi 2.8.1",
}
# The first 20 bytes of a file: the magic number, 64-bit, little-endian; type and machine (elf(5)).
_ELF: Final = struct.Struct("<4sBB10xHH")
_ELF_MAGIC: Final = b"\x7fELF"
_BITS_64, _LITTLE_ENDIAN, _SHARED_OBJECT, _X86_64 = 2, 1, 3, 62
_MACHINES: Final = {3: "x86", 40: "arm", 62: "x86-64", 183: "aarch64"}  # EM_* of elf.h


def library_problem(content: bytes) -> str:
    """Return why the library with this *content* cannot be served; empty if it can."""
    if len(content) < _ELF.size or not content.startswith(_ELF_MAGIC):
        return "it is not a shared library"
    _, bits, order, kind, machine = _ELF.unpack_from(content)
    if (bits, order, kind) != (_BITS_64, _LITTLE_ENDIAN, _SHARED_OBJECT):
        return "it is not a shared library for a 64-bit machine"
    if machine != _X86_64:
        name = _MACHINES.get(machine, f"machine {machine}")
        return f"it is built for {name}; its layout can be told on x86-64 only"
    found = _layouts_in(content)
    if found == [SEEDED.name]:
        return ""
    served = f"that of HAMi {', '.join(TESTED[:-1])} or {TESTED[-1]} can"
    if len(found) == 1 and found[0] in _OF_HAMI:
        return f"it has the region of {_OF_HAMI[found[0]]}, which the agent cannot seed; {served}"
    return f"it has no region that is known, so that it may limit nothing; {served}"


def _layouts_in(content: bytes) -> list[str]:
    """Return the names of the layouts whose size occurs in *content* often enough."""
    found = []
    for name in ("A", "B", "D", SEEDED.name):
        size = BY_NAME[name].region_size.to_bytes(4, "little")
        if content.count(size) >= _FEWEST_SIZES:
            found.append(name if name != SEEDED.name or _TEXT_OF_E in content else "C")
    return found
