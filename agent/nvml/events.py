"""Critical errors of GPUs (XIDs), through an NVML event set that is polled and never waited on."""

import ctypes
from collections.abc import Iterator
from typing import Final, Protocol

import pynvml

from agent.driver.driver import DriverEvent
from agent.nvml.calls import Handle, NvmlError, call_if_supported, call_nvml

_MOST_EVENTS: Final = 256  # events in one poll; further ones are in the next
_NO_INSTANCE: Final = 0xFFFFFFFF


class _EventData(Protocol):
    """NVML's description of an event, in its spelling."""

    device: Handle
    eventData: int  # noqa: N815
    gpuInstanceId: int  # noqa: N815


class ErrorEvents:
    """The event set of one session, and the GPUs that report into it."""

    def __init__(self) -> None:
        """Watch no GPU yet."""
        self._event_set: object | None = None
        self._uuids: dict[int, str] = {}

    def watch(self, uuid: str, device: Handle) -> None:
        """Watch *device*, if it is not watched yet and supports these events."""
        if uuid in self._uuids.values():
            return
        if self._event_set is None:
            self._event_set = call_nvml(pynvml.nvmlEventSetCreate)
        supported = call_if_supported(pynvml.nvmlDeviceGetSupportedEventTypes, device) or 0
        wanted = int(supported) & pynvml.nvmlEventTypeXidCriticalError
        if wanted:
            call_nvml(pynvml.nvmlDeviceRegisterEvents, device, wanted, self._event_set)
        address = _address(device)
        if address is not None:
            self._uuids[address] = uuid

    def poll(self) -> tuple[DriverEvent, ...]:
        """Return what was reported since the last poll.

        A GPU is identified by the handle that it was watched with: the event may be that it fell
        off the bus, and then NVML cannot return its UUID any more.

        Raises
        ------
        NvmlError
            LOST if a watched GPU is lost; all GPUs must be watched anew after that.

        """
        driver_events: list[DriverEvent] = []
        while self._event_set is not None and len(driver_events) < _MOST_EVENTS:
            try:
                data = call_nvml(pynvml.nvmlEventSetWait_v2, self._event_set, 0)
            except NvmlError as error:
                if error.code == pynvml.NVML_ERROR_TIMEOUT:
                    break
                self.close()
                if driver_events:
                    break
                raise
            driver_events += self._events_of(data)
        return tuple(driver_events)

    def _events_of(self, data: _EventData) -> Iterator[DriverEvent]:
        """Yield the event, unless its GPU cannot be identified any more.

        Such a GPU is lost, which shows when it is read; its event must not count for all GPUs.
        """
        address = _address(data.device)
        gpu = None if address is None else self._uuids.get(address)
        if address is not None and gpu is None:
            try:
                gpu = str(call_nvml(pynvml.nvmlDeviceGetUUID, data.device))
            except NvmlError:
                return
        instance = int(data.gpuInstanceId)
        xid = int(data.eventData)
        yield DriverEvent(gpu=gpu, xid=xid, instance=None if instance == _NO_INSTANCE else instance)

    def close(self) -> None:
        """Free the event set; nothing is watched any more."""
        event_set, self._event_set, self._uuids = self._event_set, None, {}
        if event_set is not None:
            call_if_supported(pynvml.nvmlEventSetFree, event_set)


def _address(device: Handle) -> int | None:
    """Return the address in a handle: the pointers themselves never compare equal."""
    return ctypes.cast(device, ctypes.c_void_p).value
