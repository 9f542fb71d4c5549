"""Stand-ins for HAMi's device plugin and scheduler, whose programs are in no registry of ours.

They do what HAMi's source does on the API server, releases 2.9 and 2.10: which annotations they
read and write, in what order, and when they give up. They hand out no hardware.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from allocator.catalog.hami_keys import (
    ALLOCATED_KEY,
    BIND_TIME_KEY,
    COUNT_RESOURCE,
    HANDSHAKE_ANNOTATION,
    LOCK_ANNOTATION,
    NODE_KEY,
    PHASE_KEY,
    REGISTER_ANNOTATION,
    TIME_KEY,
    TO_ALLOCATE_KEY,
)

Json = dict[str, Any]
Call = Callable[[str, str, Json | None], Json]  # method, path and body of a request
NODES = "/api/v1/nodes"


class HamiError(Exception):
    """What HAMi's program gives up with, in its words."""


def _patch(call: Call, path: str, annotations: Mapping[str, str | None]) -> Json:
    return call("PATCH", path, {"metadata": {"annotations": dict(annotations)}})


def _annotations(found: Json) -> dict[str, str]:
    return dict(found["metadata"].get("annotations") or {})


def _pod_path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


@dataclass(frozen=True, slots=True)
class HamiPlugin:
    """The device plugin of one node."""

    call: Call
    node: str

    def allocate(self, count: int) -> list[str]:
        """Return the devices of kubelet's next request, which names *count* and no pod."""
        pod = self._pending_pod()
        try:
            devices = self._next_devices(pod, count)
        except HamiError:
            _patch(self.call, _pod_path(pod), {PHASE_KEY: "failed"})
            self._release(pod)
            raise
        return devices

    def _pending_pod(self) -> Json:
        """Return the pod that the lock names, else the first that waits."""
        lock = _annotations(self.call("GET", f"{NODES}/{self.node}", None)).get(LOCK_ANNOTATION)
        if lock is not None:
            _, namespace, name = lock.split(",")
            return self.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}", None)
        pods: list[Json] = self.call("GET", "/api/v1/pods", None)["items"]
        for pod in pods:
            written = _annotations(pod)
            waits = pod["status"].get("phase") == "Pending" and BIND_TIME_KEY in written
            phased = written.get(PHASE_KEY) in {"allocating", "success"}
            if waits and phased and written.get(NODE_KEY) == self.node:
                return pod
        raise HamiError("no binding pod found on node")

    def _next_devices(self, pod: Json, count: int) -> list[str]:
        containers = _annotations(pod)[TO_ALLOCATE_KEY].split(";")
        for number, container in enumerate(containers):
            devices = [device.split(",") for device in container.split(":") if "," in device]
            if not devices:
                continue
            if any(len(fields) < 4 for fields in devices):
                raise HamiError("pod annotation format error")
            if len(devices) != count:
                raise HamiError("device number not matched")
            containers[number] = ""
            left = ";".join(containers)
            _patch(self.call, _pod_path(pod), {TO_ALLOCATE_KEY: left})
            if "NVIDIA" not in left:
                _patch(self.call, _pod_path(pod), {PHASE_KEY: "success"})
                self._release(pod)
            return [fields[0] for fields in devices]
        raise HamiError("device request not found")

    def _release(self, pod: Json) -> None:
        node = self.call("GET", f"{NODES}/{self.node}", None)
        name = f",{pod['metadata']['namespace']},{pod['metadata']['name']}"
        if _annotations(node).get(LOCK_ANNOTATION, "").endswith(name):
            version = {"resourceVersion": node["metadata"]["resourceVersion"]}
            body = {"metadata": {**version, "annotations": {LOCK_ANNOTATION: None}}}
            self.call("PATCH", f"{NODES}/{self.node}", body)


@dataclass(slots=True)
class HamiScheduler:
    """The scheduler: Filter and Bind of its extender, and its look at the nodes."""

    call: Call
    now: Callable[[], datetime]
    answers: bool = False  # it is older than 2.10, and reads again what was reported only
    devices: dict[str, list[Json]] = field(default_factory=dict)  # by node

    def look(self) -> None:
        """Read the register of each node with some of the resource, and ask for a report."""
        for node in self.call("GET", NODES, None)["items"]:
            name, written = node["metadata"]["name"], _annotations(node)
            allocatable = (node["status"].get("allocatable") or {}).get(COUNT_RESOURCE, "0")
            if allocatable == "0" or REGISTER_ANNOTATION not in written:
                self.devices.pop(name, None)
                continue
            asked = "Requesting" in written.get(HANDSHAKE_ANNOTATION, "")
            if not (asked and self.answers and name in self.devices):
                self.devices[name] = json.loads(written[REGISTER_ANNOTATION])
            if not asked:
                stamp = f"Requesting_{self.now():%Y-%m-%d %H:%M:%S}"
                _patch(self.call, f"{NODES}/{name}", {HANDSHAKE_ANNOTATION: stamp})

    def filter(self, pod: Json, requests: Sequence[tuple[int, int, int]]) -> str:
        """Pick a node and devices: of each container count, MiB and percent, init first."""
        for name in sorted(self.devices):
            picked = self._pick(name, requests)
            if picked is not None:
                text = "".join("".join(f"{d}:" for d in devices) + ";" for devices in picked)
                stamp = str(int(self.now().timestamp()))
                lists = {TO_ALLOCATE_KEY: text, ALLOCATED_KEY: text}
                _patch(self.call, _pod_path(pod), {NODE_KEY: name, TIME_KEY: stamp, **lists})
                return name
        raise HamiError("no available node, all node scores do not meet")

    def _pick(self, node: str, requests: Sequence[tuple[int, int, int]]) -> list[list[str]] | None:
        used = self._used(node)
        picked: list[list[str]] = []
        for count, memory, cores in requests:
            fitting = [
                device["id"]
                for device in self.devices[node]
                if device.get("health")
                and len(used.get(device["id"], [])) < device.get("count", 0)
                and sum(m for m, _ in used.get(device["id"], [])) + memory <= device["devmem"]
                and sum(c for _, c in used.get(device["id"], [])) + cores <= device["devcore"]
            ][:count]
            if len(fitting) < count:
                return None
            for uuid in fitting:
                used.setdefault(uuid, []).append((memory, cores))
            picked.append([f"{uuid},NVIDIA,{memory},{cores}" for uuid in fitting])
        return picked

    def _used(self, node: str) -> dict[str, list[tuple[int, int]]]:
        """Return what pods' lists say is used of each device: memory and cores of each share."""
        used: dict[str, list[tuple[int, int]]] = {}
        for pod in self.call("GET", "/api/v1/pods", None)["items"]:
            written = _annotations(pod)
            over = pod["status"].get("phase") in {"Succeeded", "Failed"}
            if over or written.get(NODE_KEY) != node:
                continue
            for device in written.get(ALLOCATED_KEY, "").replace(";", ":").split(":"):
                if "," in device:
                    uuid, _, memory, cores = device.split(",")[:4]
                    used.setdefault(uuid, []).append((int(memory), int(cores)))
        return used

    def bind(self, pod: Json, node: str) -> None:
        """Lock the node, say that the pod is allocating, and post its Binding."""
        found = self.call("GET", f"{NODES}/{node}", None)
        if LOCK_ANNOTATION in _annotations(found):
            raise HamiError(f"node {node} has been locked within 5m0s")
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        lock = f"{self.now():%Y-%m-%dT%H:%M:%SZ},{namespace},{name}"
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        body: Json = {"metadata": {**version, "annotations": {LOCK_ANNOTATION: lock}}}
        self.call("PATCH", f"{NODES}/{node}", body)
        stamp = str(int(self.now().timestamp()))
        _patch(self.call, _pod_path(pod), {PHASE_KEY: "allocating", BIND_TIME_KEY: stamp})
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding: Json = {"apiVersion": "v1", "kind": "Binding", "target": target}
        binding["metadata"] = {"name": name, "uid": pod["metadata"]["uid"]}
        self.call("POST", f"{_pod_path(pod)}/binding", binding)
