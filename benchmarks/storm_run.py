"""One storm: many pods created at once, and how long the scheduler takes to bind them."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from benchmarks.storm_cluster import StormCluster
from tests.cluster.api import Api, ApiError, Json, wait_for
from tests.cluster.installation import PODS

PATIENCE: Final = 90.0  # seconds for a storm
SETTLED: Final = 1.0  # seconds after the last pod was created, for caches to hear of it
MEMORY: Final = (2000, 3000, 4000, 5000)  # MiB that pods ask for, one after another


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """What one storm was like: ``bound`` of ``pods``, the last of them after ``seconds``.

    ``cpu`` has milliseconds of each process's time per pod.
    """

    namespace: str
    pods: int
    bound: int
    seconds: float
    cpu: Mapping[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Return the pods bound per second."""
        return self.bound / self.seconds


def pods(count: int) -> list[Json]:
    """Write *count* pods that ask for a share of a GPU, of sizes that differ."""
    return [_pod(f"p-{i:04}", MEMORY[i % len(MEMORY)]) for i in range(count)]


def _pod(name: str, memory: int) -> Json:
    limits = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": memory}
    container = {"name": "main", "image": "example.com/a:1", "resources": {"limits": limits}}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def storm(
    cluster: StormCluster,
    count: int,
    meanwhile: Callable[[Mapping[str, float]], object] | None = None,
) -> Storm:
    """Let *count* pods gather while the scheduler stands still, then let it go.

    *meanwhile* is called once, with the pods bound so far, as soon as the scheduler goes again.
    """
    namespace = cluster.namespace()
    with Watch(cluster.api, namespace) as watch:
        cluster.scheduler.pause()
        cluster.create(namespace, pods(count))
        time.sleep(SETTLED)
        before, began = _cpu(cluster), time.monotonic()
        cluster.scheduler.resume()
        if meanwhile is not None:
            meanwhile(watch.bound)
        with contextlib.suppress(TimeoutError):  # who is not bound by then is counted as lost
            wait_for(lambda: len(watch.bound) == count, within=PATIENCE)
        spent = {name: (now - before[name]) * 1000 / count for name, now in _cpu(cluster).items()}
        return Storm(
            namespace=namespace,
            pods=count,
            bound=len(watch.bound),
            seconds=max(watch.bound.values(), default=time.monotonic()) - began,
            cpu={name: round(each, 2) for name, each in spent.items()},
        )


class Watch:
    """Notes when each pod of a namespace was seen to be bound, in monotonic seconds."""

    def __init__(self, api: Api, namespace: str) -> None:
        """Begin with what is there now, when the block is entered."""
        self._api, self._path = api, PODS.format(namespace)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self.bound: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _run(self) -> None:
        """Follow until the block is over; a stream that the server ends is begun anew."""
        while not self._over.is_set():
            try:
                self._follow()
            except (ApiError, OSError):
                self._over.wait(0.2)

    def _follow(self) -> None:
        listed = self._api.get(self._path)
        for pod in listed["items"]:
            self._note(pod)
        since = listed["metadata"]["resourceVersion"]
        for event in self._api.watch(self._path, within=PATIENCE, resourceVersion=since):
            if event["type"] == "ERROR" or self._over.is_set():
                return
            self._note(event["object"])

    def _note(self, pod: Json) -> None:
        if pod["spec"].get("nodeName"):
            self.bound.setdefault(pod["metadata"]["name"], time.monotonic())


def _cpu(cluster: StormCluster) -> dict[str, float]:
    """Return the seconds of processor time that each process has used so far."""
    processes = {name: cluster.plane.pid(name) for name in ("etcd", "kube-apiserver")}
    processes["kube-scheduler"] = cluster.scheduler.pid
    for replica in () if cluster.site is None else cluster.site.replicas:
        processes[replica.process.name] = replica.process.pid
    return {name: _seconds(pid) for name, pid in processes.items()}


def _seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = fields[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
