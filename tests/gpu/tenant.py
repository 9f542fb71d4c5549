"""A CUDA program that does what it is told: run as a script, with Python's own library only.

It speaks to the driver as any program does: by the names in ``libcuda.so.1`` and
``libnvidia-ml.so.1``, so that an interception library before it sees every call. Each line of
its input is a JSON order, each answer is a line of JSON; :data:`_ORDERS` lists the orders. An
answer has ``code`` (0, or the driver's code that ended the order) and ``call`` (of that code).
"""

import ctypes
import json
import os
import signal
import sys
import time
from ctypes import (
    byref,
    c_char_p,
    c_int,
    c_size_t,
    c_uint,
    c_uint64,
    c_void_p,
    create_string_buffer,
)
from typing import Any

Answer = dict[str, Any]

# Each thread waits for a number of clock cycles. The driver compiles it for any GPU since Maxwell.
SPIN = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 cycles)
{
    .reg .pred %p<2>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [cycles];
    mov.u64 %rd2, %clock64;
again:
    mov.u64 %rd3, %clock64;
    sub.s64 %rd4, %rd3, %rd2;
    setp.lt.s64 %p1, %rd4, %rd1;
    @%p1 bra again;
    ret;
}
"""
MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
# The library's limiter pays one token for each block, of a pool that grows with the number of
# multiprocessors. Blocks of this length are well within what it can regulate.
CYCLES = 250_000  # of one block, about 0.15 ms
THREADS = 64  # of one block: 32 such blocks fill a multiprocessor
BLOCKS_PER_MULTIPROCESSOR = 320  # of one launch, about 1.5 ms
NO_LIBRARY = -1  # code: libcuda.so.1 or libnvidia-ml.so.1 is not there


class DriverCallError(Exception):
    """The driver refused a call with a code."""

    def __init__(self, call: str, code: int) -> None:
        """Say which *call* returned *code*."""
        super().__init__(f"{call}: {code}")
        self.call = call
        self.code = code


class Tenant:
    """The program: one context on one device, and what it has allocated."""

    def __init__(self) -> None:
        """Load no library yet."""
        self._cuda: ctypes.CDLL | None = None
        self._device = c_int()
        self._pointers: list[tuple[c_uint64, int]] = []
        self._kernel: c_void_p | None = None

    def open(self, order: Answer) -> Answer:
        """Begin with CUDA: a context on device ``device`` of those that are visible."""
        self._cuda = _library("libcuda.so.1")
        began = time.monotonic()
        self._call("cuInit", c_uint(0))
        seconds = time.monotonic() - began
        count, name, context = c_int(), create_string_buffer(256), c_void_p()
        self._call("cuDeviceGetCount", byref(count))
        self._call("cuDeviceGet", byref(self._device), c_int(order.get("device", 0)))
        self._call("cuDeviceGetName", name, c_int(len(name)), self._device)
        self._call("cuDevicePrimaryCtxRetain", byref(context), self._device)
        self._call("cuCtxSetCurrent", context)
        return {"devices": count.value, "name": name.value.decode(), "init_seconds": seconds}

    def alloc(self, order: Answer) -> Answer:
        """Allocate ``bytes`` in one piece."""
        pointer = c_uint64()
        self._call("cuMemAlloc_v2", byref(pointer), c_size_t(order["bytes"]))
        self._pointers.append((pointer, order["bytes"]))
        return {"held": sum(size for _, size in self._pointers)}

    def free(self, _: Answer) -> Answer:
        """Free what was allocated last."""
        pointer, _size = self._pointers.pop()
        self._call("cuMemFree_v2", pointer)
        return {"held": sum(size for _, size in self._pointers)}

    def info(self, _: Answer) -> Answer:
        """Return what CUDA says of the device's memory."""
        free, total, whole = c_size_t(), c_size_t(), c_size_t()
        self._call("cuMemGetInfo_v2", byref(free), byref(total))
        self._call("cuDeviceTotalMem_v2", byref(whole), self._device)
        return {"free": free.value, "total": total.value, "device_total": whole.value}

    def nvml(self, order: Answer) -> Answer:
        """Return what NVML says of the memory of the device with index ``device``."""
        library = _library("libnvidia-ml.so.1")
        device, memory = c_void_p(), (ctypes.c_ulonglong * 3)()
        for name, arguments in (
            ("nvmlInit_v2", ()),
            ("nvmlDeviceGetHandleByIndex_v2", (c_uint(order.get("device", 0)), byref(device))),
            ("nvmlDeviceGetMemoryInfo", (device, memory)),
        ):
            code = getattr(library, name)(*arguments)
            if code:
                raise DriverCallError(name, code)
        return {"total": memory[0], "free": memory[1], "used": memory[2]}

    def spin(self, order: Answer) -> Answer:
        """Compute without a pause for ``seconds``, and return how many kernels that were.

        The grid has so many blocks, by the multiprocessors that are visible: MPS hides some.
        """
        kernel = self._spin_kernel()
        multiprocessors, cycles = c_int(), c_uint64(order.get("cycles", CYCLES))
        self._call(
            "cuDeviceGetAttribute", byref(multiprocessors), c_int(MULTIPROCESSORS), self._device
        )
        grid = c_uint(multiprocessors.value * BLOCKS_PER_MULTIPROCESSOR)
        one, none = c_uint(1), c_void_p()
        arguments = (c_void_p * 1)(ctypes.addressof(cycles))
        launches, began = 0, time.monotonic()
        while time.monotonic() - began < order["seconds"]:
            self._call(
                "cuLaunchKernel", kernel, grid, one, one, c_uint(THREADS), one, one, c_uint(0),
                none, arguments, none,
            )  # fmt: skip
            self._call("cuCtxSynchronize")
            launches += 1
        return {
            "launches": launches,
            "blocks": grid.value,
            "seconds": time.monotonic() - began,
        }

    def _spin_kernel(self) -> c_void_p:
        if self._kernel is None:
            module, self._kernel = c_void_p(), c_void_p()
            self._call("cuModuleLoadData", byref(module), c_char_p(SPIN))
            self._call("cuModuleGetFunction", byref(self._kernel), module, c_char_p(b"spin"))
        return self._kernel

    def _call(self, name: str, *arguments: object) -> None:
        if self._cuda is None:
            raise DriverCallError("open", NO_LIBRARY)
        code = getattr(self._cuda, name)(*arguments)
        if code:
            raise DriverCallError(name, code)


_ORDERS = {
    "open": Tenant.open,
    "alloc": Tenant.alloc,
    "free": Tenant.free,
    "info": Tenant.info,
    "nvml": Tenant.nvml,
    "spin": Tenant.spin,
}


def _library(name: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise DriverCallError(f"dlopen {error}", NO_LIBRARY) from error


def main() -> None:
    """Obey until the input ends; a parent that dies takes this process along."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    tenant = Tenant()
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = {"code": 0, **_ORDERS[order["order"]](tenant, order)}
        except DriverCallError as error:
            answer = {"code": error.code, "call": error.call}
        except AttributeError as error:  # the driver's library lacks the function
            answer = {"code": NO_LIBRARY, "call": str(error)}
        print(json.dumps({**answer, "pid": os.getpid()}), flush=True)


if __name__ == "__main__":
    main()
