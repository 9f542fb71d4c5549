"""Shares and nodes of which a test names only what matters."""

from pathlib import Path
from typing import Final

from agent.core.driver import Device
from agent.core.promise import Owner, Share
from agent.shell.inspection import Inspector, Site
from agent.shell.library import Installed
from agent.shell.processes import Processes
from agent.shell.regions import Regions
from allocator.model.gpu import Grant
from allocator.model.units import MiB
from tests.builders import soft_grant

GIB: Final = 1024**3
GPU: Final = "GPU-6b1f0000-0000-4000-8000-000000000000"
OTHER: Final = "GPU-6b1f0000-0000-4000-8000-000000000001"
UID: Final = "6a7d1c58-02c5-4b55-9b5e-7a3c2f1e0d9b"
NEIGHBOUR: Final = "7b7d1c58-02c5-4b55-9b5e-7a3c2f1e0d9b"
ID: Final = "0123456789abcdef" * 4
NOW: Final = 1_790_000_000.0


def share(*grants: Grant, uid: str = UID, pod: str = "train-0", container: str = "main") -> Share:
    """Return a share, of 8 GiB and 30 % of one GPU unless told otherwise."""
    owner = Owner(uid=uid, namespace="team-a", pod=pod, containers=(container,))
    return Share(owner=owner, grants=grants or (soft_grant(8192, 30, gpu=GPU),), key="c0")


def device(uuid: str = GPU, *, index: int = 0) -> Device:
    return Device(
        uuid=uuid,
        index=index,
        minor=index,
        pci=f"0000:{index:02x}:00.0",
        model="Tesla T4",
        memory=MiB(16384),
        ampere_or_older=True,
    )


def regions(root: Path, *, now: float = NOW) -> Regions:
    """Return the regions of a node whose ``/proc`` is below *root* too."""
    (root / "proc").mkdir(exist_ok=True)
    return Regions(root, Processes(root), library=Installed("libvgpu.so"), now=lambda: now)


def inspector(root: Path, *, now: float = NOW, following: bool = False) -> Inspector:
    return Inspector(
        regions(root, now=now), Processes(root), now=lambda: now, ticks=lambda: 0.0,
        following=following,
    )  # fmt: skip


def site(*shares: Share) -> Site:
    return Site(devices=(device(), device(OTHER, index=1)), shares=shares, pods={})
