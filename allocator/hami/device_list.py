"""HAMi's lists of devices on a pod: ``;`` ends a container, ``:`` a device.

Its plugin serves the first part that is not empty, in the order in which kubelet asks. So a list
has a part for each container of the spec, init containers first, empty where one has no GPU.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from allocator.catalog.hami_keys import ALLOCATED_KEY, NODE_KEY
from allocator.volcano.device_list import ListedDevice

_MOST_CHARACTERS: Final = 32 * 1024  # of a list
_MOST_CONTAINERS: Final = 512  # of a pod
_MOST_DEVICES: Final = 1024  # of a pod
_DEVICE: Final = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]{0,95}),NVIDIA,(\d{1,10}),(\d{1,3})(?:,[^,:;]*)?", re.ASCII
)


def encode_hami_list(containers: Iterable[Sequence[ListedDevice]]) -> str:
    """Return the list of *containers*, of which each asks for NVIDIA's GPUs or for none."""
    return "".join("".join(map(str, devices)) + ";" for devices in containers)


def parse_hami_list(text: str) -> tuple[tuple[ListedDevice, ...], ...] | None:
    """Return the devices of each container, ``None`` where the list is malformed or too long.

    Empty parts keep their place. The last ``;`` ends a container, so it begins no further one.
    """
    if not text or len(text) > _MOST_CHARACTERS:
        return None
    parts = text.removesuffix(";").split(";")
    written = [[device for device in part.split(":") if device] for part in parts]
    if len(written) > _MOST_CONTAINERS or sum(map(len, written)) > _MOST_DEVICES:
        return None
    containers = []
    for devices in written:
        matches = [_DEVICE.fullmatch(device) for device in devices]
        listed = [ListedDevice(m[1], int(m[2]), int(m[3])) for m in matches if m is not None]
        if len(listed) < len(devices):
            return None
        containers.append(tuple(listed))
    return tuple(containers)


def wished_gpus(annotations: Mapping[str, str], node: str) -> tuple[str, ...]:
    """Return the UUIDs that HAMi's scheduler picked for a pod on *node*, each once.

    A list that it made for another node counts for nothing, and so does a malformed one.
    """
    if annotations.get(NODE_KEY) != node:
        return ()
    containers = parse_hami_list(annotations.get(ALLOCATED_KEY, "")) or ()
    return tuple(dict.fromkeys(device.uuid for devices in containers for device in devices))
