"""Headroom: of a GPU as it is, and once something more is promised on it."""

from typing import Final

from allocator.model.gpu import Gpu, Grant
from allocator.model.headroom import Headroom
from allocator.model.units import CorePercent, MiB

MOST_KNOWN: Final = 8192  # GPUs, some 300 bytes each

_known: Final[dict[int, Headroom]] = {}  # by the id of its GPU, which is held as long as it is here


def headroom(gpu: Gpu) -> Headroom:
    """Return what the grants on *gpu*, and processes outside our ledger, leave.

    Kept for the next decision: a promise changes one GPU of many.
    """
    found = _known.get(id(gpu))
    if found is None:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        found = _known[id(gpu)] = _headroom(gpu)
    return found


def _headroom(gpu: Gpu) -> Headroom:
    return Headroom(
        gpu=gpu,
        memory=MiB(gpu.memory - gpu.memory_promised - gpu.foreign),
        cores=gpu.cores_promised,
        tenants=len(gpu.grants),
        taken=gpu.taken_slots,
        profiles=tuple(g.placed.profile for g in gpu.grants if g.placed is not None),
        positions=tuple(g.position for g in gpu.grants if g.position is not None),
    )


def with_grant(room: Headroom, grant: Grant) -> Headroom:
    """Return *room* once *grant* is promised too."""
    placed, position = grant.placed, grant.position
    return Headroom(
        gpu=room.gpu,
        memory=MiB(room.memory - grant.memory),
        cores=CorePercent(room.cores + grant.cores),
        tenants=room.tenants + 1,
        taken=room.taken if placed is None else room.taken | placed.mask,
        profiles=room.profiles if placed is None else (*room.profiles, placed.profile),
        positions=room.positions if position is None else (*room.positions, position),
    )
