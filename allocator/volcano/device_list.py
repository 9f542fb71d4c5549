"""Volcano's list of devices, ``volcano.sh/vgpu-ids-new``: what a scheduler picked for a pod.

``;`` separates containers, ``:`` ends a device, which is ``uuid,NVIDIA,memory,cores``; a MIG slot
may follow the uuid as ``[group-position]``. To us the list is a preference, so one with any defect
counts as none. It binds us only where a hard policy of the scheduler made it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from allocator.catalog.keys import GROUP_POLICY_KEY, POD_GROUP_KEYS

LIST_ANNOTATION: Final = "volcano.sh/vgpu-ids-new"
LIST_NODE_ANNOTATION: Final = "volcano.sh/vgpu-node"  # the node that the list was made for
# HAMi's names for the same; its list has a part for each init container too.
HAMI_LIST_ANNOTATION: Final = "hami.io/vgpu-devices-allocated"
HAMI_LIST_NODE_ANNOTATION: Final = "hami.io/vgpu-node"
_SPREAD: Final = "spread"
_EXCLUSIVE_RULES: Final = "deviceshare.GPUExclusiveRules"
_MOST_CHARACTERS: Final = 16 * 1024  # characters; 64 containers of 16 devices are half of it
_MOST_DEVICES: Final = 1024  # devices
_DEVICE: Final = re.compile(
    r"([A-Za-z0-9-]{1,64})(?:\[([^\[\],:;-]{1,63}-\d{1,3})\])?,NVIDIA,(\d{1,10}),(\d{1,3})(?:,[^,:;]*)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class ListedDevice:
    """One device of the list."""

    uuid: str
    memory: int  # in units of the site's gpuMemoryFactor
    cores: int  # percent
    position: str | None = None  # of a MIG instance, as group-position

    def __str__(self) -> str:
        place = "" if self.position is None else f"[{self.position}]"
        return f"{self.uuid}{place},NVIDIA,{self.memory},{self.cores}:"


def listed_uuids(text: str) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs in a list, each once; none where it is malformed."""
    return tuple(dict.fromkeys(device.uuid for part in parse_device_list(text) for device in part))


def listed_positions(text: str) -> tuple[tuple[str, str], ...]:
    """Return GPU and position of each device in a list that names a MIG position."""
    devices = (device for part in parse_device_list(text) for device in part)
    return tuple((device.uuid, device.position) for device in devices if device.position)


def hard_policy(
    annotations: Mapping[str, str],
    labels: Mapping[str, str],
    exclusive_rules: Sequence[Mapping[str, str]],
) -> str:
    """Name the policy by which a pod may have no GPU but those that Volcano listed; often none.

    By its policy ``spread`` no two pods of a PodGroup share a GPU. Volcano reads that value
    exactly, and only on pods of a PodGroup. By *exclusive_rules*, its ``GPUExclusiveRules``, no two
    pods that have all labels of one rule share a GPU. It knows where the other pods are; we do not.
    """
    if any(rule.items() <= labels.items() for rule in exclusive_rules):
        return _EXCLUSIVE_RULES
    grouped = any(annotations.get(key) for key in POD_GROUP_KEYS)
    spread = grouped and annotations.get(GROUP_POLICY_KEY) == _SPREAD
    return f"{GROUP_POLICY_KEY}={_SPREAD}" if spread else ""


def parse_device_list(text: str) -> tuple[tuple[ListedDevice, ...], ...]:
    """Return the devices of each container that has any; nothing where the list is malformed.

    Writers differ in whether they leave out containers without GPUs, never in the order.
    """
    if not text or len(text) > _MOST_CHARACTERS:
        return ()
    written = [[d for d in container.split(":") if d] for container in text.split(";")]
    if sum(map(len, written)) > _MOST_DEVICES:
        return ()
    matches = [[_DEVICE.fullmatch(device) for device in container] for container in written]
    if not all(all(container) for container in matches):
        return ()
    return tuple(
        tuple(
            ListedDevice(match[1], int(match[3]), int(match[4]), match[2])
            for match in container
            if match is not None
        )
        for container in matches
        if container
    )


def encode_list(containers: Iterable[Sequence[ListedDevice]]) -> str:
    """Return the list, one part for each container of a pod's spec, empty for one without GPU.

    Upstream's plugin takes the i-th part for the i-th container, its scheduler leaves out those
    that ask for nothing; only with a part for each can both be right.
    """
    return ";".join("".join(map(str, devices)) for devices in containers)
