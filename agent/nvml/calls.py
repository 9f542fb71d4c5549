"""NVML calls: how one is made, and what an error code means to the agent.

pynvml's functions return untyped ctypes values; each caller converts the fields that it uses.
"""

import ctypes
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

import pynvml

from agent.driver.driver import DriverError, Fault

T = TypeVar("T")
# An opaque handle of a GPU or an instance. Only the name of its type is private to ctypes.
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
# Advice for codes whose own text does not help a person.
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
    """NVML returned an error; ``code`` is its return value, finer than the fault."""

    def __init__(self, code: int, call: str, text: str) -> None:
        """Describe a *call* that returned *code*."""
        super().__init__(_FAULTS.get(code, Fault.OTHER), call, text)
        self.code = code


def call_nvml(function: Callable[..., T], *args: object) -> T:
    """Return the result of a pynvml function, or raise NvmlError.

    pynvml's own exception must not leave this function: comparing it to another object raises.
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
    """Return the result, or ``None`` if this GPU, driver or mode does not support the call.

    Raises NvmlError for a lost GPU or session.
    """
    try:
        return call_nvml(function, *args)
    except NvmlError as error:
        if error.fault in {Fault.LOST, Fault.UNAVAILABLE}:
            raise
        return None


def look_up(target: str, function: Callable[..., T], *args: object) -> T:
    """Return the object with a name or number, or raise DriverError with the fault ABSENT."""
    try:
        return call_nvml(function, *args)
    except NvmlError as error:
        if is_not_found(error):
            raise DriverError(Fault.ABSENT, error.call, f"no {target}") from error
        raise


def is_not_found(error: DriverError) -> bool:
    """Say whether *error* means that there is no such profile, placement or instance.

    Versions of the driver use different codes for that.
    """
    return error.fault is Fault.ABSENT or (
        isinstance(error, NvmlError) and error.code in _NOT_FOUND_CODES
    )


def ends_session(error: Exception) -> bool:
    """Say whether the session itself is gone, because the driver was reloaded."""
    return isinstance(error, NvmlError) and error.code in _SESSION_LOST_CODES
