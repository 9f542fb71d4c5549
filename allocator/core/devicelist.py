"""Volcano's list of devices, ``volcano.sh/vgpu-ids-new``: what a scheduler picked for a pod.

``;`` parts containers, ``:`` ends a device, which is ``uuid,NVIDIA,memory,cores``; a MIG slot may
be named behind the uuid as ``[group-position]``. Upstream's readers believe all of it; ours reads
wishes, so a list with any defect is none.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

IDS: Final = "volcano.sh/vgpu-ids-new"

_LONGEST: Final = 16 * 1024  # characters; 64 containers of 16 devices are half of it
_MOST: Final = 1024  # devices
_DEVICE: Final = re.compile(
    r"([A-Za-z0-9-]{1,64})(?:\[[^\[\],:;-]{1,63}-\d{1,3}\])?,NVIDIA,\d{1,10},\d{1,3}(?:,[^,:;]*)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Device:
    """One share: ``memory`` in units of the site's gpuMemoryFactor, ``cores`` in percent."""

    uuid: str
    memory: int
    cores: int


def wished(text: str) -> tuple[str, ...]:
    """Return the uuids of the GPUs in a list that somebody wrote, each once; else nothing."""
    if not text or len(text) > _LONGEST:
        return ()
    parts = [part for container in text.split(";") for part in container.split(":") if part]
    found = [_DEVICE.fullmatch(part) for part in parts[: _MOST + 1]]
    if len(found) > _MOST or not all(found):
        return ()
    return tuple(dict.fromkeys(match[1] for match in found if match is not None))


def encoded(containers: Iterable[Sequence[Device]]) -> str:
    """Return the list, one part for each container of a pod's spec, empty for one without GPU.

    Upstream's plugin takes the i-th part for the i-th container, its scheduler leaves out those
    that ask for nothing; only with a part for each can both be right.
    """
    return ";".join(
        "".join(f"{d.uuid},NVIDIA,{d.memory},{d.cores}:" for d in devices) for devices in containers
    )
