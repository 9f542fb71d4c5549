"""Checkpoint: what kubelet has on disk about the containers that hold its devices.

The file is internal to kubelet, but nothing else names the uid of a pod and its init containers. It
is up to date while kubelet waits for PreStartContainer; while kubelet waits for Allocate it names
the previous holder of a slot. Its checksum covers Go's rendering of Go types, so it cannot be
verified here.
"""

from dataclasses import dataclass
from typing import Final

import msgspec


class CheckpointError(Exception):
    """The file is not a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedContainer:
    """One container of the pod *uid*, and the complete set of *slots* it was given."""

    uid: str
    container: str
    slots: frozenset[str]


class _Entry(msgspec.Struct, frozen=True, rename="pascal"):
    container_name: str
    resource_name: str
    pod_uid: str = msgspec.field(name="PodUID")
    device_ids: dict[str, list[str] | None] | None = msgspec.field(name="DeviceIDs", default=None)


class _Data(msgspec.Struct, frozen=True, rename="pascal"):
    pod_device_entries: list[_Entry] | None = None  # Go writes an empty list as null
    registered_devices: dict[str, list[str] | None] | None = None


class _File(msgspec.Struct, frozen=True, rename="pascal"):
    data: _Data


_DECODER: Final = msgspec.json.Decoder(_File)


def recorded_containers(text: bytes, resource: str) -> tuple[RecordedContainer, ...]:
    """Return the containers that hold slots of *resource*; raises CheckpointError."""
    entries = _data(text).pod_device_entries or ()
    return tuple(
        RecordedContainer(uid=entry.pod_uid, container=entry.container_name, slots=_slots(entry))
        for entry in entries
        if entry.resource_name == resource
    )


def registered_ids(text: bytes, resource: str) -> frozenset[str]:
    """Return the ids that a plugin last registered for *resource*; raises CheckpointError."""
    devices = _data(text).registered_devices or {}
    return frozenset(devices.get(resource) or ())


def _data(text: bytes) -> _Data:
    try:
        return _DECODER.decode(text).data
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"not a checkpoint ({len(text)} bytes): {error}") from error


def _slots(entry: _Entry) -> frozenset[str]:
    """Join what kubelet keeps by NUMA node."""
    by_node = (entry.device_ids or {}).values()
    return frozenset(slot for slots in by_node for slot in slots or ())
