"""Shares and nodes of which a test names only what matters."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from agent.driver.driver import Device
from agent.monitor.inspection_thread import InspectedNode, Inspector
from agent.node.process_files import Processes
from agent.region.library_files import install_simulated
from agent.region.region_files import RegionFiles
from agent.share import Owner, Share
from allocator.model.allocation import Grant
from allocator.model.request import Priority
from tests.builders import model
from tests.builders.model import soft_grant

GIB: Final = 1024**3
GPU: Final = "GPU-6b1f0000-0000-4000-8000-000000000000"
OTHER: Final = "GPU-6b1f0000-0000-4000-8000-000000000001"
UID: Final = "6a7d1c58-02c5-4b55-9b5e-7a3c2f1e0d9b"
NEIGHBOUR: Final = "7b7d1c58-02c5-4b55-9b5e-7a3c2f1e0d9b"
ID: Final = "0123456789abcdef" * 4
NOW: Final = 1_790_000_000.0


def share(
    *grants: Grant,
    uid: str = UID,
    pod: str = "train-0",
    container: str = "main",
    priority: Priority = Priority.LOW,
) -> Share:
    """Return a share, of 8 GiB and 30 % of one GPU unless told otherwise."""
    owner = Owner(uid=uid, namespace="team-a", pod=pod, containers=(container,))
    given = grants or (soft_grant(8192, 30, gpu=GPU),)
    return Share(owner=owner, grants=given, key="c0", priority=priority)


def device(uuid: str = GPU, *, index: int = 0) -> Device:
    return replace(model.device(index=index), uuid=uuid)


def regions(root: Path, *, now: float = NOW) -> RegionFiles:
    """Return the regions of a node whose ``/proc`` is below *root* too."""
    (root / "proc").mkdir(exist_ok=True)
    folder = root / "usr/local/vgpu"
    library = install_simulated(folder)
    return RegionFiles(folder, Processes(root), library=library, now=lambda: now)


def inspector(root: Path, *, now: float = NOW) -> Inspector:
    kept, found = regions(root, now=now), Processes(root)
    return Inspector(kept, found, now=lambda: now, ticks=lambda: 0.0)


def site(*shares: Share) -> InspectedNode:
    return InspectedNode(devices=(device(), device(OTHER, index=1)), shares=shares, pods={})
