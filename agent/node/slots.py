"""Slots: the device plugin's device ids, how many there may be, and which of them are healthy.

A slot names no GPU: the ledger decides at the Binding which one a container gets. An unhealthy GPU
removes as many slots as it would have had, free ones first, because a slot in use may belong to a
container on another GPU.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from agent.driver.static_partitioning import cuda_version

# Bytes of the longest id with both fields and their tags; kubelet accepts messages of 4 MiB.
_DEVICE_BYTES: Final = 27
MOST_SLOTS: Final = 4 * 1024 * 1024 // _DEVICE_BYTES
_NAME: Final = re.compile(r"slot-[0-9]{4,6}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOffer:
    """How many slots a node offers."""

    total: int
    healthy: int  # those of healthy GPUs
    soft: bool = True  # whether any may serve a share that needs the interception library


NO_SLOTS: Final = SlotOffer(total=0, healthy=0)


def slot_name(number: int) -> str:
    """Return the id of one slot, which is also the name of its folder and its CDI device."""
    return f"slot-{number:04d}"


def is_slot(name: str) -> bool:
    """Say whether *name* is an id of ours, and so fit to be a file's name."""
    return _NAME.fullmatch(name) is not None


def list_slots(offer: SlotOffer, used: Collection[str]) -> tuple[tuple[str, bool], ...]:
    """Return every slot and whether it is healthy, given the ids in use, *used*.

    A used slot beyond the offer stays, unhealthy, until it is free: its container could not restart
    under an id that kubelet does not know.
    """
    names = [slot_name(number) for number in range(min(max(offer.total, 0), MOST_SLOTS))]
    beyond = sorted(set(used).difference(names))[: MOST_SLOTS - len(names)]
    taken = [name for name in names if name in used]
    free = [name for name in names if name not in used]
    healthy = frozenset((*taken, *free)[: max(offer.healthy, 0)])
    return (*((name, name in healthy) for name in names), *((name, False) for name in beyond))


_CLIENTS_UP_TO_CUDA_13_0: Final = 48
_CLIENTS: Final = 60
_NEWER: Final = (13, 1)


def most_clients(cuda: str, *, seen: int = 0) -> int:
    """Return how many clients of MPS a GPU takes at once with the driver that supports *cuda*.

    *cuda* is as ``13.1``; a version that cannot be read counts as an old one. *seen* is the largest
    number of clients that a server of this driver was seen with: what worked is possible. Clients
    count as contexts: one is what a program makes by default.
    """
    version = cuda_version(cuda)
    new = version is not None and version >= _NEWER
    return max(_CLIENTS if new else _CLIENTS_UP_TO_CUDA_13_0, seen)
