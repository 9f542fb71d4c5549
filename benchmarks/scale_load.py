"""What goes on in a large cluster at rest, and binds at an even pace."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks import scale_objects
from benchmarks.scale_cluster import Fleet, bind, other_pod, pending_pod
from tests.cluster.api import STRATEGIC, Api
from tests.cluster.installation import PODS

# kubelet's nodeStatusReportFrequency: a Node whose status says nothing new is written that often.
NODE_STATUS_SECONDS: Final = 300.0
# Of one pod. A pod at rest writes nothing; its start and end are some six changes, and 50,000 pods
# that live 17 hours each, or fail a probe as often, make 5 changes a second. Kubernetes itself is
# tested with at most 20 pods a second that come and go.
POD_STATUS_SECONDS: Final = 10_000.0
PACE: Final = 20.0  # binds per second
TICKS: Final = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def at_rest(api: Api, fleet: Fleet) -> Iterator[None]:
    """Write what kubelets write of nodes and pods that do not change, while the block runs."""
    over = threading.Event()
    types = {"MemoryPressure": "False", "DiskPressure": "False", "Ready": "True"}

    def report_node(number: int) -> None:
        moment = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        status = {"status": {"conditions": scale_objects.conditions(types, moment)}}
        path = f"/api/v1/nodes/{fleet.node(number)}/status"
        api.patch(path, status, kind=STRATEGIC)

    def report_pod(number: int) -> None:
        namespace, name, _ = other_pod(number % fleet.others)
        moment = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": moment}]
        status = {"status": {"conditions": conditions}}
        api.patch(f"{PODS.format(namespace)}/{name}/status", status, kind=STRATEGIC)

    paces = (
        (report_node, fleet.nodes / NODE_STATUS_SECONDS),
        (report_pod, fleet.pods / POD_STATUS_SECONDS),
    )
    threads = [threading.Thread(target=_repeat, args=(*pace, over)) for pace in paces]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _repeat(act: Callable[[int], None], per_second: float, over: threading.Event) -> None:
    """Call *act* with 0, 1, 2, … at an even pace until it is *over*."""
    began, number = time.monotonic(), 0
    while not over.wait(max(0.0, began + number / per_second - time.monotonic())):
        with contextlib.suppress(OSError):  # the API server is being restarted
            act(number)
        number += 1


def bind_seconds(api: Api, fleet: Fleet, *, first: int, count: int) -> list[float]:
    """Bind *count* pending pods from number *first* on, each to another node.

    Returns the seconds that each call took, its hook included. Raises the first refusal.
    """
    began = time.monotonic()

    def bind_one(number: int) -> float:
        time.sleep(max(0.0, began + (number - first) / PACE - time.monotonic()))
        namespace, name, uid = pending_pod(number)
        node = fleet.node(number * 7)
        called = time.perf_counter()
        bind(api, namespace, name, node=node, uid=uid)
        return time.perf_counter() - called

    with ThreadPoolExecutor(int(PACE)) as pool:
        return list(pool.map(bind_one, range(first, first + count)))


def cpu_percent(pid: int, seconds: float) -> float:
    """Return the processor time of a process over the next *seconds*, in percent of one core."""
    began, before = time.monotonic(), cpu_seconds(pid)
    time.sleep(seconds)
    return 100 * (cpu_seconds(pid) - before) / (time.monotonic() - began)


def cpu_seconds(pid: int) -> float:
    """Return the seconds of processor time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = fields[11:13]
    return (int(user) + int(system)) / TICKS


def memory_mb(pid: int) -> tuple[float, float]:
    """Return the resident memory of a process in MB, now and at its highest."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = {line.split()[0]: int(line.split()[1]) for line in lines if line.startswith("Vm")}
    return kib["VmRSS:"] * 1024 / 1e6, kib["VmHWM:"] * 1024 / 1e6
