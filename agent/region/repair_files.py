"""Repairing regions in their files, while processes of tenants have them in memory.

A lock's word is changed by the kernel in one step, by the futex call that also wakes whom the lock
kept waiting. Unlike an access of our own it ends in an error, not in a signal, where a tenant has
truncated the file meanwhile.
"""

import ctypes
import errno
import mmap
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from agent.region import safe_files
from agent.region.decode import IDENTIFYING_BYTES, layout_of
from agent.region.layout import Layout
from agent.region.repair import BitChange, Repair

# The number of the system call by machine, and its operation (linux/futex.h): change a second word
# by an encoded rule, then wake those who wait for the first.
_FUTEX: Final = MappingProxyType({"x86_64": 202, "aarch64": 98})
_WAKE_OP: Final = 5
_RULES: Final = MappingProxyType({BitChange.SET: 2, BitChange.CLEAR: 3})  # OR, AND NOT
_RULE_AT, _OPERAND_AT, _LOWEST_BIT = 28, 12, 1  # positions in an encoded rule, and its operand
_WORD: Final = 4  # bytes
_libc: Final = ctypes.CDLL(None, use_errno=True)


def mend(name: str, at: int, *, layout: Layout, repairs: Sequence[Repair]) -> tuple[Repair, ...]:
    """Repair the region called *name* in directory *at*; return what was written.

    Nothing is written into a file that is not a region of *layout* any more, nor where the bytes
    that a repair expects have changed.
    """
    done = []
    with suppress(OSError), safe_files.amendable_file(name, at) as fd:
        if layout_of(os.fstat(fd).st_size, os.pread(fd, IDENTIFYING_BYTES, 0)) is layout:
            for repair in repairs:
                if all(os.pread(fd, len(data), at_) == data for at_, data in repair.expected):
                    _write(fd, repair)
                    done.append(repair)
    return tuple(done)


def _write(fd: int, repair: Repair) -> None:
    """Write one repair; raises ``OSError``."""
    if isinstance(repair.change, bytes):
        os.pwrite(fd, repair.change, repair.at)
        return
    start = repair.at - repair.at % mmap.ALLOCATIONGRANULARITY
    try:
        with mmap.mmap(fd, repair.at - start + _WORD, offset=start) as page:
            # Nothing here reads or writes the mapping: its address is only told to the kernel.
            word = ctypes.c_char.from_buffer(page, repair.at - start)
            try:
                _change_and_wake(ctypes.addressof(word), repair.change)
            finally:
                del word
    except ValueError as error:  # the file has become shorter
        raise OSError(errno.EFAULT, str(error)) from error


def _change_and_wake(address: int, change: BitChange) -> None:
    """Change the word at *address* and wake one thread that waits for it; raises ``OSError``."""
    rule = _RULES[change] << _RULE_AT | _LOWEST_BIT << _OPERAND_AT
    word = ctypes.c_void_p(address)
    number = _FUTEX.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"no futex number for {platform.machine()}")
    woken = _libc.syscall(
        ctypes.c_long(number), word, ctypes.c_int(_WAKE_OP), ctypes.c_int(1), None, word, rule
    )
    if woken < 0:
        failure = ctypes.get_errno()
        raise OSError(failure, os.strerror(failure))
