"""The owner of slots, by kubelet's checkpoint, podresources and the live pod, which must agree.

Also the codec of kubelet's device checkpoint: recorded containers and registered ids.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from agent.share import NotYetError, Owner


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
    entries = _checkpoint_data(text).pod_device_entries or ()
    return tuple(
        RecordedContainer(uid=entry.pod_uid, container=entry.container_name, slots=_slots(entry))
        for entry in entries
        if entry.resource_name == resource
    )


def registered_ids(text: bytes, resource: str) -> frozenset[str]:
    """Return the ids that a plugin last registered for *resource*; raises CheckpointError."""
    devices = _checkpoint_data(text).registered_devices or {}
    return frozenset(devices.get(resource) or ())


def registered_names(text: bytes) -> frozenset[str]:
    """Return the resources for which plugins have registered devices; raises CheckpointError.

    Kubelet forgets a plugin five minutes after its end.
    """
    devices = _checkpoint_data(text).registered_devices or {}
    return frozenset(name for name, ids in devices.items() if ids)


def _checkpoint_data(text: bytes) -> _Data:
    try:
        return _DECODER.decode(text).data
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"not a checkpoint ({len(text)} bytes): {error}") from error


def _slots(entry: _Entry) -> frozenset[str]:
    """Return the slots of an entry, which kubelet keeps by NUMA node."""
    by_node = (entry.device_ids or {}).values()
    return frozenset(slot for slots in by_node for slot in slots or ())


@dataclass(frozen=True, slots=True)
class PodName:
    """The name of a pod, which is all that podresources has of it."""

    namespace: str
    pod: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedContainer:
    """A container that podresources lists, app container or sidecar, with all its *slots*."""

    name: PodName
    container: str
    slots: frozenset[str]


def owner_of(
    slots: Collection[str],
    *,
    listed: Sequence[ListedContainer],
    recorded: Sequence[RecordedContainer],
    pods: Mapping[str, PodName],
) -> Owner:
    """Return the container that holds exactly *slots*; raises NotYetError if the sources disagree.

    *pods* are the live pods of this node by uid. Several containers of one pod are candidates
    where an app container reuses an init container's slots; those that podresources does not
    list, init containers, come first, as they start first.
    """
    slot_set = frozenset(slots)
    exact_records = [entry for entry in recorded if entry.slots == slot_set]
    uid = _single_uid({entry.uid for entry in exact_records}, slot_set, "kubelet's checkpoint")
    name = pods.get(uid)
    if name is None:
        raise NotYetError(
            f"pod {uid} holds {_slots_text(slot_set)}, "
            "but the API server has not sent it to this node yet"
        )
    holders = [entry for entry in listed if entry.slots & slot_set]
    others = {entry.name for entry in holders} - {name}
    if others:
        names = ", ".join(sorted(map(str, others)))
        raise NotYetError(
            f"kubelet contradicts itself about {_slots_text(slot_set)}: "
            f"podresources names {names}, the checkpoint {name}"
        )
    listed_names = {entry.container for entry in holders if entry.slots == slot_set}
    candidates = {entry.container for entry in exact_records}
    if not listed_names <= candidates:
        raise NotYetError(
            f"{name}: kubelet's podresources and checkpoint name different containers for "
            f"{_slots_text(slot_set)}: {_names(listed_names)} and {_names(candidates)}"
        )
    containers = (*sorted(candidates - listed_names), *sorted(listed_names))
    return Owner(uid=uid, namespace=name.namespace, pod=name.pod, containers=containers)


def _single_uid(uids: set[str], slots: frozenset[str], source: str) -> str:
    """Return the one uid; none and several are refused."""
    match sorted(uids):
        case [uid]:
            return uid
        case []:
            raise NotYetError(f"{source} has no container with exactly {_slots_text(slots)}")
        case several:
            raise NotYetError(
                f"{source} assigns {_slots_text(slots)} to {len(several)} pods at once"
            )


def _slots_text(slots: frozenset[str]) -> str:
    return f"slot {_names(slots)}" if len(slots) == 1 else f"slots {_names(slots)}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
