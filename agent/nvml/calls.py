"""NVML calls: how one is made, and what an error code means to the agent.

pynvml's functions return what ctypes holds, untyped; each caller says what it takes from that.
"""

import ctypes
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

import pynvml

from agent.driver.driver import DriverError, Fault

T = TypeVar("T")
# Opaque, of a GPU or an instance. The name of the type is private to ctypes, the type is not.
Handle: TypeAlias = "ctypes._Pointer[ctypes.Structure]"  # noqa: SLF001
_FAULTS: Final = MappingProxyType(
    {
        pynvml.NVML_ERROR_UNINITIALIZED: Fault.UNAVAILABLE,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED: Fault.UNAVAILABLE,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: Fault.UNAVAILABLE,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Fault.UNAVAILABLE,
        pynvml.NVML_ERROR_NOT_SUPPORTED: Fault.NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Fault.NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION: Fault.NO_PERMISSION,
        pynvml.NVML_ERROR_OPERATING_SYSTEM: Fault.NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_FOUND: Fault.ABSENT,
        pynvml.NVML_ERROR_GPU_NOT_FOUND: Fault.ABSENT,
        pynvml.NVML_ERROR_GPU_IS_LOST: Fault.LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED: Fault.LOST,
        pynvml.NVML_ERROR_IN_USE: Fault.IN_USE,
        pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: Fault.NO_ROOM,
    }
)
# What would help, where the code alone leaves a person guessing.
_REMEDIES: Final = MappingProxyType(
    {
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
            "libnvidia-ml.so.1 is not on the library path: install the NVIDIA driver on the node,"
            " and run the agent under the nvidia runtime class or mount the driver's libraries"
        ),
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
            "the kernel module nvidia is not loaded: check dmesg on the node, then load it"
        ),
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
            "the driver's library and its kernel module differ in version: after a driver upgrade"
            " reboot the node, or reload the module and restart the agent's pod"
        ),
        pynvml.NVML_ERROR_UNKNOWN: (
            "in a container this may mean that systemctl daemon-reload took the device cgroup away:"
            " restart the agent's pod"
        ),
        pynvml.NVML_ERROR_NO_PERMISSION: (
            "run the agent as root and privileged, with NVIDIA_MIG_CONFIG_DEVICES=all"
        ),
    }
)
_SESSION_LOST_CODES: Final = frozenset(
    (pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
)
_NOT_FOUND_CODES: Final = frozenset(
    (
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_FOUND,
    )
)


class NvmlError(DriverError):
    """NVML refused; ``code`` is its return value, finer than the fault."""

    def __init__(self, code: int, call: str, text: str) -> None:
        """Say that *call* returned *code*."""
        super().__init__(_FAULTS.get(code, Fault.OTHER), call, text)
        self.code = code


def call_nvml(function: Callable[..., T], *args: object) -> T:
    """Return what a pynvml function answers, or raise NvmlError.

    pynvml's own exception compares by code and fails on any other object: it stays in here.
    """
    named = function.func if isinstance(function, partial) else function
    name = getattr(named, "__name__", "nvml")
    try:
        return function(*args)
    except pynvml.NVMLError as error:
        text = f"{error} ({error.value})"
        remedy = _REMEDIES.get(error.value)
        raise NvmlError(error.value, name, f"{text}; {remedy}" if remedy else text) from error
    except UnicodeDecodeError as error:
        raise NvmlError(pynvml.NVML_ERROR_UNKNOWN, name, "the answer is not text") from error


def call_if_supported(function: Callable[..., T], *args: object) -> T | None:
    """Return the answer, or ``None`` where this GPU, driver or mode has none to give.

    A lost GPU or session is never taken for that.
    """
    try:
        return call_nvml(function, *args)
    except NvmlError as error:
        if error.fault in {Fault.LOST, Fault.UNAVAILABLE}:
            raise
        return None


def look_up(target: str, function: Callable[..., T], *args: object) -> T:
    """Return what a name or number leads to, or raise ABSENT, however the driver says that."""
    try:
        return call_nvml(function, *args)
    except NvmlError as error:
        if is_not_found(error):
            raise DriverError(Fault.ABSENT, error.call, f"no {target}") from error
        raise


def is_not_found(error: DriverError) -> bool:
    """Say whether this is how a driver says that it has no such profile, placement or instance.

    Its versions differ in which of these codes they use.
    """
    return error.fault is Fault.ABSENT or (
        isinstance(error, NvmlError) and error.code in _NOT_FOUND_CODES
    )


def ends_session(error: Exception) -> bool:
    """Say whether the session itself is gone: the driver was reloaded."""
    return isinstance(error, NvmlError) and error.code in _SESSION_LOST_CODES
