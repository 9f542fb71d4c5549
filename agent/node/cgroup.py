"""Control groups: which pod and container a process belongs to, from ``/proc/<pid>/cgroup``.

The first pod on a path counts, because a container can create groups only below its own.
"""

import re
from dataclasses import dataclass
from typing import Final

_UID: Final = "[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"
# kubelet's cgroupfs driver writes /kubepods/burstable/pod<uid>/<id>, its systemd driver
# /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/<runtime>-<id>.scope,
# with underscores in the uid; containerd set to systemd under a cgroupfs kubelet writes
# <slice>:cri-containerd:<id> as one part.
_POD: Final = re.compile(rf"(?:^|/)(?:[a-z.-]*-)?pod({_UID})(?:\.slice)?(?=[/:]|$)")
_CONTAINER: Final = re.compile(r"[/:](?:[a-z]+(?:-[a-z]+)*[-:])?([0-9a-f]{64})(?:\.scope)?(?=/|$)")
_START_TIME_FIELD: Final = 19  # among the fields of /proc/<pid>/stat after the name, counted from 0


@dataclass(frozen=True, slots=True)
class PodCgroup:
    """Where a process runs."""

    uid: str  # of the pod
    container: str | None  # the runtime's id; None: the path has none


def pod_cgroup_of(text: str) -> PodCgroup | None:
    """Return where a process runs whose ``/proc/<pid>/cgroup`` is *text*, ``None`` outside pods.

    Lines are ``number:controllers:path``, one per hierarchy of version 1 and ``0::path`` for
    version 2. A path may begin with ``/..`` where the reader has a cgroup namespace of its own.
    """
    for line in text.splitlines():
        path = line.partition(":")[2].partition(":")[2]
        if pod := _POD.search(path):
            container = _CONTAINER.match(path, pod.end())
            return PodCgroup(_uid(pod[1]), container[1] if container else None)
    return None


def _uid(text: str) -> str:
    return text.replace("_", "-")


def start_time_of(stat: str) -> int | None:
    """Return when a process started, in ticks since boot, from its ``/proc/<pid>/stat``.

    The name is between parentheses and may itself contain parentheses.
    """
    fields = stat.rpartition(")")[2].split()
    return (
        int(fields[_START_TIME_FIELD])
        if len(fields) > _START_TIME_FIELD and fields[_START_TIME_FIELD].isdecimal()
        else None
    )


def inner_pid_of(status: str) -> int | None:
    """Return a process's pid in its innermost namespace, from its ``/proc/<pid>/status``."""
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            numbers = line.split()[1:]
            return int(numbers[-1]) if numbers and numbers[-1].isdecimal() else None
    return None
