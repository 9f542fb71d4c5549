"""The little of PyTorch that the checks of a GPU call, over this machine's CUDA driver."""

import ctypes
import time
from contextlib import nullcontext
from types import SimpleNamespace

__version__ = "2.0.0+played"
dtype = int  # bytes of each number
uint8, float16, bfloat16, float32 = 1, 2, 2, 4
_OPERATION = 0.0005  # seconds
_driver: list[ctypes.CDLL] = []


class OutOfMemoryError(RuntimeError):
    """As PyTorch calls it."""


class Tensor:
    """Memory of the device."""

    def __init__(self, count: int, dtype: int) -> None:
        self._address = ctypes.c_uint64()
        code = _cuda().cuMemAlloc_v2(ctypes.byref(self._address), ctypes.c_size_t(count * dtype))
        if code:
            raise OutOfMemoryError(f"CUDA out of memory: {code}")

    def __del__(self) -> None:
        _cuda().cuMemFree_v2(self._address)

    def __matmul__(self, other: "Tensor") -> None:
        time.sleep(_OPERATION)

    def mul_(self, _: float) -> None:
        time.sleep(_OPERATION)


class Graph:
    """What was recorded, of which nothing is played."""

    def replay(self) -> None:
        time.sleep(_OPERATION)


def empty(count: int, *, dtype: int, device: str) -> Tensor:
    assert device == "cuda"
    return Tensor(count, dtype)


def randn(rows: int, columns: int, *, dtype: int, device: str) -> Tensor:
    return empty(rows * columns, dtype=dtype, device=device)


ones = empty


def _cuda() -> ctypes.CDLL:
    """Return the driver, with a context on its first device."""
    if not _driver:
        library = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        for code in (
            library.cuInit(ctypes.c_uint(0)),
            library.cuDeviceGet(ctypes.byref(device), ctypes.c_int(0)),
            library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
            library.cuCtxSetCurrent(context),
        ):
            if code:
                raise RuntimeError(f"no CUDA: {code}")
        _driver.append(library)
    return _driver[0]


def _mem_get_info() -> tuple[int, int]:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _cuda().cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def _properties(_: int) -> SimpleNamespace:
    total = ctypes.c_size_t()
    _cuda().cuDeviceTotalMem_v2(ctypes.byref(total), ctypes.c_int(0))
    return SimpleNamespace(total_memory=total.value)


def _is_available() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


cuda = SimpleNamespace(
    is_available=_is_available,
    mem_get_info=_mem_get_info,
    get_device_properties=_properties,
    OutOfMemoryError=OutOfMemoryError,
    empty_cache=lambda: None,
    synchronize=lambda: None,
    Stream=object,
    stream=nullcontext,
    CUDAGraph=Graph,
    graph=nullcontext,
)
