"""Pods of tests on a real node: how they ask, what they see from inside, and how they end."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from allocator.model.allocation import Entry, Grant
from tests.builders.pods import CORES, MEMORY, MODE, NUMBER, container, pod
from tests.cluster.api import Json, wait_for
from tests.cluster.image.archive import PROBE
from tests.cluster.installation import PODS, Installation
from tests.cluster.kubelet import Node, pods_of
from tests.cluster.node_agent import GpuNode

RUN_WITHIN: Final = 60.0
GONE_WITHIN: Final = 90.0
CACHE: Final = "/tmp/vgpu/vgpu.cache"
LOST_CACHE: Final = "/tmp/cudevshr.cache"  # for a process that has lost its environment
PRELOAD: Final = "/etc/ld.so.preload"
LIBRARY: Final = "/usr/local/vgpu/libvgpu.so"
VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
# Everything that a container can tell of its share, and then that it has told everything.
LOOK: Final = (
    *(
        "env",
        "mounts",
        "read",
        PRELOAD,
        "bytes",
        CACHE,
        "bytes",
        LOST_CACHE,
        "list",
        "/dev",
        "list",
        "/dev/nvidia-caps",
    ),
    *("list", "/tmp/vgpu", "write", PRELOAD, "write", LIBRARY, "say", "looked"),
)
STAY: Final = ("sleep", "100000")
SOFT: Final = {NUMBER: 1, MEMORY: 3000, CORES: 10}
HARD: Final = {NUMBER: 1, MEMORY: 3000}


def looking(
    name: str = "main",
    limits: Mapping[str, object] | None = None,
    then: Sequence[str] = STAY,
    **more: object,
) -> Json:
    """Write a container that tells what it sees and then does something else."""
    command = ["/probe", *LOOK, *then]
    return container(name, limits, image=PROBE, command=command, **more)


def soft(*containers: Json, name: str = "p", init: Sequence[Json] = (), **spec: object) -> Json:
    """Write a pod that asks for slices by HAMi-core; it stays a while unless told otherwise."""
    return _written(
        pod(*containers or (looking(limits=SOFT),), init=init), name, "hami-core", spec=spec
    )


def hard(*containers: Json, name: str = "p", init: Sequence[Json] = (), **spec: object) -> Json:
    """Write a pod that asks for MIG instances."""
    return _written(pod(*containers or (looking(limits=HARD),), init=init), name, "mig", spec=spec)


def _written(found: Json, name: str, mode: str, *, spec: Mapping[str, object]) -> Json:
    metadata = {**found["metadata"], "name": name, "annotations": {MODE: mode}}
    return {**found, "metadata": metadata, "spec": {**found["spec"], **spec}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What a container told of itself."""

    env: Mapping[str, str]
    mounts: Mapping[str, str]  # "ro" or "rw" by mount point
    lines: Sequence[str]

    def told(self, what: str) -> list[str]:
        """Return what follows *what*, such as ``list /dev:``."""
        return [line.removeprefix(f"{what} ") for line in self.lines if line.startswith(what)]


def inside(node: Node, found: Json, name: str = "main") -> Inside:
    """Return what a container tells of its latest life, once it has told everything."""
    wait_for(lambda: "say looked" in node.log(found, name), within=RUN_WITHIN)
    lines = node.log(found, name)
    rows = [line.split(" ", 1) for line in lines]
    env = dict(row[1].split("=", 1) for row in rows if row[0] == "env")
    mounts = dict(row[1].rsplit(" ", 1) for row in rows if row[0] == "mount")
    return Inside(env=env, mounts=mounts, lines=lines)


def pod_of(site: Installation, team: str, name: str = "p") -> Json:
    """Return a pod as it is now."""
    found: Json = site.api.get(f"{PODS.format(team)}/{name}")
    return found


def phase(found: Json) -> str:
    return str(found["status"].get("phase", ""))


def running(site: Installation, team: str, name: str = "p") -> Json:
    """Return a pod once it runs, or say why it does not."""
    try:
        wait_for(lambda: phase(pod_of(site, team, name)) == "Running", within=RUN_WITHIN)
    except TimeoutError:
        raise AssertionError(told(site, team, name)) from None
    return pod_of(site, team, name)


def over(site: Installation, team: str, name: str = "p") -> Json:
    """Return a pod once all its containers have ended."""
    ended = {"Succeeded", "Failed"}
    wait_for(lambda: phase(pod_of(site, team, name)) in ended, within=RUN_WITHIN)
    return pod_of(site, team, name)


def told(site: Installation, team: str, name: str = "p") -> str:
    """Return what a user would read of a pod: its status and its Events."""
    status = pod_of(site, team, name)["status"]
    notes = site.api.get(f"/apis/events.k8s.io/v1/namespaces/{team}/events")["items"]
    events = [f"{e['reason']}: {e.get('note')}" for e in notes if e["regarding"]["name"] == name]
    return "\n".join((str(status), *events))


def waiting(found: Json, name: str = "main") -> str:
    """Return why a container waits."""
    for status in found["status"].get("containerStatuses", ()):
        if status["name"] == name:
            return str(status["state"].get("waiting", {}).get("message", ""))
    return ""


def delete(site: Installation, team: str, name: str = "p", *, grace: int | None = None) -> None:
    """Delete a pod; *grace* 0 is by force, whether or not its containers run."""
    body = None if grace is None else {"gracePeriodSeconds": grace}
    site.api.delete(f"{PODS.format(team)}/{name}", body)


def ask_again(site: Installation, team: str, name: str = "p") -> None:
    """Let kubelet try at once what it would try again after 10 to 15 s: something has changed."""
    site.api.patch(f"{PODS.format(team)}/{name}", {"metadata": {"labels": {"again": "now"}}})


@contextlib.contextmanager
def team_of(found: GpuNode) -> Iterator[str]:
    """Yield a namespace; when it is left its pods go, and a little later their promises."""
    site = found.site
    name = site.namespace()
    yield name
    site.api.delete(PODS.format(name), {"gracePeriodSeconds": 1})
    wait_for(lambda: not pods_of(site, name), within=GONE_WITHIN)


def empty(found: GpuNode) -> None:
    """Return once nothing of the node is promised to anybody."""
    wait_for(lambda: not found.promised(), within=GONE_WITHIN)


def entry_of(found: GpuNode, what: Json) -> Entry:
    """Return the promise to a pod."""
    uid = what["metadata"]["uid"]
    return next(entry for entry in found.ledger().entries if entry.uid == uid)


def grants_of(found: GpuNode, what: Json, name: str = "main") -> tuple[Grant, ...]:
    """Return what a container of a pod was promised."""
    return next(c.grants for c in entry_of(found, what).containers if c.name == name)


def device_of(found: GpuNode, what: Json, name: str = "main") -> str:
    """Return the one device that a container of a pod sees, which is what it was promised."""
    (grant,) = grants_of(found, what, name)
    visible = inside(found.node, what, name).env[VISIBLE]
    if grant.placed is None:
        assert visible == grant.gpu
    else:
        assert found.instances()[visible] == (grant.gpu, grant.placed.start)
    return visible


def undisturbed(found: GpuNode, team: str, names: Iterable[str]) -> None:
    """Check that pods run in their first life and that their promises are held."""
    pods, held = pods_of(found.site, team), found.ledger().held
    for name in names:
        (status,) = pods[name]["status"]["containerStatuses"]
        assert (phase(pods[name]), status["restartCount"]) == ("Running", 0)
        assert pods[name]["metadata"]["uid"] in held


def process_of(found: GpuNode, what: Json, name: str = "main") -> int:
    """Return the first process of a pod's container, as the node counts processes."""
    return found.node.runtime.tasks()[container_id(what, name)]


def container_id(what: Json, name: str = "main") -> str:
    """Return what the runtime calls a container of a pod in its latest life."""
    statuses = what["status"]["containerStatuses"]
    told = next(status["containerID"] for status in statuses if status["name"] == name)
    return str(told).rpartition("/")[2]


def lives(found: GpuNode) -> dict[str, int]:
    """Return a running process of each pod on the node by the pod's uid, as its runtime knows."""
    runtime = found.node.runtime
    running = {pid: runtime.labels(container) for container, pid in runtime.tasks().items()}
    return {
        labels["io.kubernetes.pod.uid"]: pid
        for pid, labels in running.items()
        if labels.get("io.kubernetes.container.name")
    }
