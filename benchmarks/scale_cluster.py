"""A large cluster: a real etcd and kube-apiserver full of nodes and pods, and a replica of ours."""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import scale_objects
from benchmarks.scale_store import Etcd, copied
from benchmarks.storm_cluster import FLAGS, GPUS, gpu_node, inventory
from tests.cluster.api import Api, Json
from tests.cluster.control_plane import API_SERVER, Settings
from tests.cluster.extender import apply
from tests.cluster.installation import OPTED_IN, PODS, Installation, Replica, installation
from tests.cluster.ports import free_port

TEAMS: Final = 40  # namespaces whose pods come to our hooks
APPS: Final = 60  # namespaces of the other pods
BOUND_SHARE, PENDING_SHARE = 20 / 72, 2 / 72  # of all pods
TEAM, APP = "team-999", "apps-999"
NODES: Final = ("gpu-99998", "gpu-99999")  # the originals; the second is cut by MIG
BOOT: Final = "b" * 36
POD_KEY, NODE_KEY = "/registry/pods/{}/{}", "/registry/minions/{}"
GPU_NODE_KEY: Final = "/registry/vgpu-admission.io/gpunodes/{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """How large a cluster is."""

    nodes: int
    pods: int  # in all

    @property
    def bound(self) -> int:
        """Return the bound pods that ask for vGPU."""
        return round(self.pods * BOUND_SHARE)

    @property
    def pending(self) -> int:
        """Return the pods that ask for vGPU and have no node."""
        return round(self.pods * PENDING_SHARE)

    @property
    def others(self) -> int:
        """Return the bound pods that ask for no vGPU."""
        return self.pods - self.bound - self.pending

    def node(self, number: int) -> str:
        """Return the name of the node on which bound pod *number* is."""
        return f"gpu-{number % self.nodes:05}"


@dataclass(frozen=True, slots=True)
class _Original:
    """An object that the API server stored, and the names in it that a copy changes."""

    raw: bytes
    names: tuple[str, ...]

    def copy(self, *names: str) -> bytes:
        return copied(self.raw, dict(zip(self.names, names, strict=True)))


@dataclass(frozen=True, slots=True)
class _Originals:
    """One of each kind; pods, nodes and ledgers of both modes."""

    nodes: tuple[_Original, ...]
    ledgers: tuple[_Original, ...]
    bound: tuple[_Original, ...]
    pending: _Original
    other: _Original


@contextlib.contextmanager
def large_cluster(
    programs: Mapping[str, Path], folder: Path, fleet: Fleet, *, tree: Path
) -> Iterator[Installation]:
    """Yield a cluster filled with *fleet*, whose one replica serves the extender too, in *tree*."""
    settings = Settings(api_server_flags=FLAGS)
    options = [f"--extender=127.0.0.1:{free_port()}"]
    with installation(programs, folder, options=options, settings=settings, tree=tree) as site:
        apply(site, "rbac.yaml")
        for number in range(TEAMS):
            _namespace(site.api, team(number), OPTED_IN)
        for number in range(APPS):
            _namespace(site.api, app(number), {})
        with Etcd(site.plane.etcd_url) as etcd:
            originals = _originals(site, etcd)
            site.stop()
            site.plane.stop(API_SERVER)  # else it would decode each object twice
            began = time.monotonic()
            done = _fill(etcd, originals, fleet)
            print(f"{done} objects in {time.monotonic() - began:.0f} s", flush=True)
            site.plane.start(API_SERVER)
        yield site


def team(number: int) -> str:
    """Return the namespace of pod *number* that asks for vGPU."""
    return f"team-{number % TEAMS:03}"


def app(number: int) -> str:
    """Return the namespace of pod *number* that asks for none."""
    return f"apps-{number % APPS:03}"


def pending_pod(number: int) -> tuple[str, str, str]:
    """Return namespace, name and uid of pending pod *number*."""
    return team(number), f"wait-{number:06}", _uid("aaaaaaaa", number)


def other_pod(number: int) -> tuple[str, str, str]:
    """Return namespace, name and uid of pod *number* that asks for no vGPU."""
    return app(number), f"runs-{number:06}", _uid("cccccccc", number)


def _bound_pod(number: int) -> tuple[str, str, str]:
    return team(number), f"gpus-{number:06}", _uid("dddddddd", number)


def _uid(kind: str, number: int) -> str:
    return f"{kind}-0000-4000-8000-{number:012}"


def _namespace(api: Api, name: str, labels: Mapping[str, str]) -> None:
    api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": dict(labels)}})


def _originals(site: Installation, etcd: Etcd) -> _Originals:
    """Make one object of each kind, through our hooks, and take them out of the cluster again."""
    api = site.api
    _namespace(api, TEAM, OPTED_IN)
    _namespace(api, APP, {})
    for name in NODES:
        api.create("/api/v1/nodes", scale_objects.node(name, BOOT))
    inventory(api, [gpu_node(name, number) for number, name in enumerate(NODES)])
    site.wait_for_models("A100")
    pods = [
        _bound(api, TEAM, f"gpus-99999{number}", node=name, mode=mode)
        for number, (name, mode) in enumerate(zip(NODES, ("hami-core", "mig"), strict=True))
    ]
    written = scale_objects.pod("wait-999999", limits=dict(scale_objects.LIMITS))
    pending = api.create(PODS.format(TEAM), written).body
    other = _bound(api, APP, "runs-999999", node=NODES[0])
    nodes = [api.get(f"/api/v1/nodes/{name}") for name in NODES]
    taken = [(POD_KEY.format(TEAM, pod["metadata"]["name"]), pod) for pod in (*pods, pending)]
    taken += [(POD_KEY.format(APP, other["metadata"]["name"]), other)]
    taken += [(NODE_KEY.format(node["metadata"]["name"]), node) for node in nodes]
    raws = {key: etcd.get(key) for key, _ in taken}
    ledgers = {GPU_NODE_KEY.format(name): etcd.get(GPU_NODE_KEY.format(name)) for name in NODES}
    for key in (*raws, *ledgers):
        etcd.delete(key)

    def original(key: str, found: Json) -> _Original:
        metadata = found["metadata"]
        names = [metadata["name"], metadata["uid"]]
        if "namespace" in metadata:
            names.append(metadata["namespace"])
        if found["spec"].get("nodeName"):
            names.append(found["spec"]["nodeName"])
        return _Original(raws[key], tuple(names))

    made = [original(key, found) for key, found in taken]
    return _Originals(
        bound=tuple(made[:2]),
        pending=made[2],
        other=made[3],
        nodes=tuple(made[4:]),
        ledgers=tuple(
            _Original(raw, (name, pod["metadata"]["uid"], pod["metadata"]["name"]))
            for (raw, name, pod) in zip(ledgers.values(), NODES, pods, strict=True)
        ),
    )


def _bound(api: Api, namespace: str, name: str, *, node: str, mode: str = "") -> Json:
    """Create a pod that runs on *node*; with a *mode* it asks for vGPU."""
    annotations = {scale_objects.MODE: mode} if mode else {}
    limits = dict(scale_objects.LIMITS) if mode else {}
    path = f"{PODS.format(namespace)}/{name}"
    written = scale_objects.pod(name, annotations=annotations, limits=limits)
    api.create(PODS.format(namespace), written)
    bind(api, namespace, name, node=node)
    return api.patch(f"{path}/status", {"status": scale_objects.running()}).body


def bind(api: Api, namespace: str, name: str, *, node: str, uid: str | None = None) -> None:
    """Post the Binding of a pod."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    metadata = {"name": name, **({"uid": uid} if uid else {})}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    api.create(f"{PODS.format(namespace)}/{name}/binding", body)


def _fill(etcd: Etcd, originals: _Originals, fleet: Fleet) -> int:
    """Write the whole *fleet*; return the number of objects."""
    return sum(
        etcd.put_all(values)
        for values in (
            _nodes(originals, fleet),
            _ledgers(originals, fleet),
            _pods(originals, fleet),
        )
    )


def _nodes(originals: _Originals, fleet: Fleet) -> Iterator[tuple[str, bytes]]:
    for number in range(fleet.nodes):
        name = fleet.node(number)
        node = originals.nodes[number % 2].copy(name, _uid("eeeeeeee", number))
        yield NODE_KEY.format(name), copied(node, {BOOT: _uid("bbbbbbbb", number)})


def _pods(originals: _Originals, fleet: Fleet) -> Iterator[tuple[str, bytes]]:
    for number in range(fleet.bound):
        namespace, name, uid = _bound_pod(number)
        node = fleet.node(number)
        original = originals.bound[int(node[-1]) % 2]
        raw = original.copy(name, uid, namespace, node)
        yield POD_KEY.format(namespace, name), _on_gpu(raw, node, number // fleet.nodes)
    for number in range(fleet.pending):
        namespace, name, uid = pending_pod(number)
        yield POD_KEY.format(namespace, name), originals.pending.copy(name, uid, namespace)
    for number in range(fleet.others):
        namespace, name, uid = other_pod(number)
        raw = originals.other.copy(name, uid, namespace, fleet.node(number))
        yield POD_KEY.format(namespace, name), raw


def _on_gpu(raw: bytes, node: str, turn: int) -> bytes:
    """Return *raw* with the pod's GPU replaced by that of the pod *turn* of its node."""
    known = [f"GPU-{node}-{index}".encode() for index in range(GPUS)]
    found = next(gpu for gpu in known if gpu in raw)
    return raw.replace(found, known[turn % GPUS])


def _ledgers(originals: _Originals, fleet: Fleet) -> Iterator[tuple[str, bytes]]:
    """Yield the GPUNode of each node, with the entries of its pods."""
    pods: dict[int, list[int]] = {}
    for number in range(fleet.bound):
        pods.setdefault(number % fleet.nodes, []).append(number)
    for number in range(fleet.nodes):
        name, original = fleet.node(number), originals.ledgers[number % 2]
        yield (
            GPU_NODE_KEY.format(name),
            _ledger(original, name, number=number, pods=pods.get(number, ())),
        )


def _ledger(original: _Original, name: str, *, number: int, pods: Iterable[int]) -> bytes:
    """Return the GPUNode of node *number*, called *name*, on which *pods* are, by their numbers."""
    old_node, old_uid, old_pod = original.names
    document = json.loads(copied(original.raw, {old_node: name}))
    (entry,) = document["spec"]["entries"]
    text, entries, uids = json.dumps(entry), [], []
    for turn, pod in enumerate(pods):
        namespace, pod_name, uid = _bound_pod(pod)
        names = {old_uid: uid, old_pod: pod_name, TEAM: namespace}
        entries.append(json.loads(_on_gpu(copied(text.encode(), names), name, turn)))
        uids.append(uid)
    metadata, status = document["metadata"], document["status"]
    metadata["uid"] = _uid("ffffffff", number)
    document["spec"]["entries"] = entries
    devices = [device for made in entries for device in made["containers"][0]["devices"]]
    status |= {
        "bootID": _uid("bbbbbbbb", number),
        "nodeUID": _uid("eeeeeeee", number),
        "inventory": f"sha256:{hashlib.sha256(name.encode()).hexdigest()}",
        "observedGeneration": metadata["generation"],
        "held": uids,
        "instances": [
            {
                "gpu": device["gpu"],
                "profile": device["profile"],
                "start": device["start"],
                "uuid": f"MIG-{number:08x}-0000-5000-8000-{turn:012}",
            }
            for turn, device in enumerate(devices)
            if device.get("profile")
        ],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def restart(replica: Replica, known: Callable[[str], bool], *, within: float) -> float:
    """Restart *replica* and return the seconds until a line *known* is in its log."""
    replica.process.stop()
    before = replica.process.log.stat().st_size
    began = time.monotonic()
    replica.process.start(lambda: True, within=within)
    with replica.process.log.open() as log:
        log.seek(before)
        while time.monotonic() - began < within:
            if any(known(line) for line in log):
                return time.monotonic() - began
            time.sleep(0.02)
    raise TimeoutError(f"not all is known after {within} s: {replica.process.tail()}")
