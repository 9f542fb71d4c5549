"""Pod annotations by which MetaX's device plugin, and HAMi, know which GPUs a pod has.

The plugin reads a JSON array with one array for each container of the spec, init containers first.
A container without GPUs has an empty one, because the plugin may count containers. HAMi's text says
the same as ``uuid,type,memory,cores:``, with ``;`` behind each container.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from allocator.catalog.hami_keys import ALLOCATING, BIND_TIME_KEY, NODE_KEY, PHASE_KEY, TIME_KEY
from allocator.metax.names import (
    ALLOCATED_KEY,
    GPU_ALLOCATED_KEY,
    GPU_TO_ALLOCATE_KEY,
    PREDICATE_TIME_KEY,
    SGPU_ALLOCATED_KEY,
    SGPU_TO_ALLOCATE_KEY,
)
from allocator.model.allocation import Grant
from allocator.model.untrusted import parse_untrusted_json

SHARED_TYPE: Final = "Metax-SGPU"
WHOLE_TYPE: Final = "Metax-GPU"
_NANOSECONDS: Final = 1_000_000_000


class _DeviceWire(msgspec.Struct, omit_defaults=True, rename={"vram": "vRam"}):
    uuid: str
    compute: int = 0  # percent
    vram: int = 0  # MiB


def shared_annotations(
    containers: Sequence[Sequence[Grant]], *, node: str, now: datetime
) -> dict[str, str]:
    """Return the annotations of a pod with shares of GPUs on *node*.

    *containers* are the grants of every container of the spec, init containers first. *now* is
    aware of its zone.
    """
    text = _hami_text(containers, SHARED_TYPE)
    return {
        ALLOCATED_KEY: allocated_text(containers),
        PREDICATE_TIME_KEY: str(_unix_nanoseconds(now)),
        SGPU_TO_ALLOCATE_KEY: text,
        SGPU_ALLOCATED_KEY: text,
        **_node_annotations(node, now),
    }


def whole_annotations(
    containers: Sequence[Sequence[Grant]], *, node: str, now: datetime
) -> dict[str, str]:
    """Return the annotations of a pod with whole GPUs on *node*.

    MetaX's plugin chooses the GPUs by itself, so nothing tells it which. HAMi counts by its text.
    """
    text = _hami_text(containers, WHOLE_TYPE)
    return {
        GPU_TO_ALLOCATE_KEY: text,
        GPU_ALLOCATED_KEY: text,
        **_node_annotations(node, now),
    }


def _node_annotations(node: str, now: datetime) -> dict[str, str]:
    """Return what HAMi's scheduler writes of each bind, whatever the make of the GPUs."""
    seconds = str(int(now.timestamp()))
    return {NODE_KEY: node, TIME_KEY: seconds, BIND_TIME_KEY: seconds, PHASE_KEY: ALLOCATING}


def allocated_text(containers: Iterable[Iterable[Grant]]) -> str:
    """Return the JSON that MetaX's plugin reads; a share or memory of zero is left out."""
    devices = [
        [_DeviceWire(grant.gpu, grant.cores, grant.memory) for grant in grants]
        for grants in containers
    ]
    return msgspec.json.encode(devices).decode()


def allocated_uuids(annotations: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Return the UUIDs that :data:`ALLOCATED_KEY` names for each container.

    Nothing where it is malformed. A device plugin that stands in for MetaX's reads it.
    """
    value = parse_untrusted_json(annotations.get(ALLOCATED_KEY, ""))
    try:
        containers = msgspec.convert(value, tuple[tuple[_DeviceWire, ...], ...])
    except msgspec.ValidationError:
        return ()
    return tuple(tuple(device.uuid for device in devices) for devices in containers)


def _hami_text(containers: Iterable[Iterable[Grant]], kind: str) -> str:
    return "".join(
        "".join(f"{grant.gpu},{kind},{grant.memory},{grant.cores}:" for grant in grants) + ";"
        for grants in containers
    )


def _unix_nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp()) * _NANOSECONDS + moment.microsecond * 1000
