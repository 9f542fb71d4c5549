"""Measurement: what each container uses, from its own library's count and from the driver's."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agent.driver.driver import Process
from agent.monitor.samples import MeasuredUse, ShareKey
from agent.monitor.violation import LocalPod, ObservedUse, Shares, by_pod
from agent.node.cgroup import PodCgroup
from agent.region.decode import GpuTotals
from allocator.model.request import Mode

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionCount:
    """What one region of a container says."""

    uid: str  # of the pod
    container: str
    totals: Mapping[str, GpuTotals]  # by GPU
    last_kernel: int | None  # Unix seconds; None: unknown


def container_of(
    cgroup: PodCgroup, pods: Mapping[str, LocalPod], shares: Mapping[str, Shares]
) -> str | None:
    """Return the name of the container that runs in *cgroup*, ``None`` if it is unknown.

    The API server reports container ids a moment after the containers start. Until it reports any,
    a pod whose *shares* (by uid) are all of one container runs that container.
    """
    pod = pods.get(cgroup.uid)
    if pod is not None and pod.containers:
        return pod.containers.get(cgroup.container or "")
    names = {share.owner.container for share in shares.get(cgroup.uid, ())}
    return names.pop() if len(names) == 1 else None


def measure_shares(
    observed: ObservedUse, counts: Iterable[RegionCount], *, answered: Collection[str]
) -> dict[ShareKey, MeasuredUse]:
    """Return the measured use of each share; *answered* are the GPUs whose processes are known."""
    processes: dict[ShareKey, list[Process]] = defaultdict(list)
    unclear: set[tuple[str, str]] = set()  # pods and GPUs with a process of an unknown container
    shares = by_pod(observed.shares)
    for located in observed.processes:
        if located.cgroup is None:
            continue
        name = container_of(located.cgroup, observed.pods, shares)
        if name is not None:
            processes[located.cgroup.uid, name, located.process.gpu].append(located.process)
        else:
            unclear.add((located.cgroup.uid, located.process.gpu))
    counted: dict[ShareKey, list[tuple[GpuTotals, int | None]]] = defaultdict(list)
    for count in counts:
        for gpu, total in count.totals.items():
            counted[count.uid, count.container, gpu].append((total, count.last_kernel))
    return {
        key: _measure_share(
            grant.mode,
            tuple(processes.get(key, ()))
            if grant.gpu in answered and (share.owner.uid, grant.gpu) not in unclear
            else None,
            counted[key],
        )
        for share in observed.shares
        for grant in share.grants
        for key in [(share.owner.uid, share.owner.container, grant.gpu)]
    }


def _measure_share(
    mode: Mode,
    processes: tuple[Process, ...] | None,
    counted: Sequence[tuple[GpuTotals, int | None]],
) -> MeasuredUse:
    driver_memory = None if processes is None else _memory_bytes(processes)
    library_memory = sum(total.total for total, _ in counted) if counted else None
    kernels = [last for _, last in counted if last is not None]
    return MeasuredUse(
        memory=library_memory if mode is Mode.HAMI_CORE else driver_memory,
        host=driver_memory,
        cores=None
        if mode is Mode.MIG
        else _compute_percent(processes, [total for total, _ in counted]),
        last_kernel=max(kernels, default=None),
    )


def _memory_bytes(processes: Iterable[Process]) -> int | None:
    """Return the sum of the memory of *processes*, ``None`` if the driver omits one of them."""
    amounts = [process.memory for process in processes]
    known = [amount for amount in amounts if amount is not None]
    return sum(known) * _MIB if len(known) == len(amounts) else None


def _compute_percent(host: tuple[Process, ...] | None, counted: Sequence[GpuTotals]) -> int | None:
    """Return the percent of compute, from the driver if it reports it, else from the library."""
    known = [p.utilization for p in host or () if p.utilization is not None]
    if known or host == ():
        return min(100, sum(known))
    shares = [total.utilization for total in counted if total.utilization is not None]
    return min(100, sum(shares)) if shares else None
