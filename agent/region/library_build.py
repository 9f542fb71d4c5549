"""Builds of the interception library: which layout of the region one has, by what is in its file.

HAMi-core puts no version into its library. But the size of its region is compiled in wherever the
code maps, locks or extends the file: as an immediate in the machine code of x86-64, at least seven
times in the builds that were looked at. One text tells layouts apart that have the same size.
"""

import struct
from typing import Final

from agent.region.layout import BY_NAME, SEEDED

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
