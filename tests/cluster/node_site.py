"""An installation with one real node: kube-scheduler, containerd and kubelet around our webhook."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.cluster.containerd import containerd, forget
from tests.cluster.host import Host, groups_of
from tests.cluster.installation import Installation, installation
from tests.cluster.kubelet import Node, kubelet
from tests.cluster.scheduler import kube_scheduler

# What the pods of guides run; there is no registry to fetch it from.
IMAGES = (
    "docker.io/nvidia/cuda:9.0-devel",
    "swr.cn-east-3.myhuaweicloud.com/lomtom-common/alpine:3.20",
)
# What kubelet sets to its liking, unless it finds it so.
SYSCTLS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")


@contextlib.contextmanager
def node_site(
    programs: Mapping[str, Path],
    folder: Path,
    *,
    images: Iterable[str] = (),
    more: Mapping[str, Path] | None = None,
) -> Iterator[Node]:
    """Yield the node of an installation that kube-scheduler serves."""
    (folder / "plane").mkdir()
    with installation(programs, folder / "plane") as site, contextlib.ExitStack() as stack:
        scheduler = kube_scheduler(programs["kube-scheduler"], site.plane)
        stack.callback(scheduler.stop)
        node = node_of(site, programs, folder / "gpu-1", images=images, more=more)
        yield stack.enter_context(node)


@contextlib.contextmanager
def node_of(
    site: Installation,
    programs: Mapping[str, Path],
    folder: Path,
    *,
    images: Iterable[str] = (),
    more: Mapping[str, Path] | None = None,
) -> Iterator[Node]:
    """Yield a node named as its folder; nothing of it is left on this machine.

    Its containers' image goes by the names of *images* too, and has *more* files in it.
    """
    folder.mkdir()
    before = traces()
    with Host(folder) as host:
        runtime = containerd(host, programs, images=images, more=more)
        yield kubelet(site, runtime, programs)
    forget(host)
    assert traces() == before


def traces() -> dict[str, list[str]]:
    """Return all that a node could leave behind on this machine, to be compared."""
    return {
        "mounts": sorted(Path("/proc/self/mounts").read_text().splitlines()),
        "sysctls": [Path("/proc/sys", name).read_text() for name in SYSCTLS],
        "groups": sorted(map(str, groups_of(os.getpid()))),
        "devices": sorted(path.name for path in Path("/dev").iterdir()),
        "places": [
            place
            for place in ("/var/lib/kubelet", "/run/containerd", "/etc/cdi", "/usr/local/vgpu")
            if Path(place).exists()
        ],
    }
