"""Tenants: the pods of this node, as the API server describes them.

A container's own variables decide only which annotations are read: other webhooks may have moved
it within the pod, so its annotation prefix is taken from there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType
from typing import Final

import msgspec

from allocator.catalog.injection import REGIONS_VOLUME, key_in
from allocator.catalog.keys import ASSIGNMENT_KEY
from allocator.model.request import Priority, Stage
from allocator.request.quantity import LARGEST, parse
from allocator.volcano.device_list import (
    HAMI_LIST_ANNOTATION,
    HAMI_LIST_NODE_ANNOTATION,
    LIST_ANNOTATION,
    LIST_NODE_ANNOTATION,
)

_OVER: Final = frozenset({"Succeeded", "Failed"})
_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
_PRIORITY: Final = "CUDA_TASK_PRIORITY"
_REGION: Final = "/tmp/vgpu"
_MIRROR: Final = "kubernetes.io/config.mirror"
_ALWAYS: Final = "Always"


class _FieldRef(msgspec.Struct, rename="camel", gc=False):
    field_path: str = ""


class _ValueFrom(msgspec.Struct, rename="camel", gc=False):
    field_ref: _FieldRef | None = None


class _Variable(msgspec.Struct, rename="camel", gc=False):
    name: str
    value: str | None = None
    value_from: _ValueFrom | None = None


class _VolumeMount(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    mount_path: str = ""


class _Resources(msgspec.Struct, gc=False):
    limits: dict[str, str | int] | None = None


class _Container(msgspec.Struct, rename="camel", gc=False):
    name: str
    env: tuple[_Variable, ...] | None = None
    resources: _Resources | None = None
    volume_mounts: tuple[_VolumeMount, ...] | None = None
    restart_policy: str | None = None


class _Terminated(msgspec.Struct, rename="camel", gc=False):
    exit_code: int = 0


class _State(msgspec.Struct, gc=False):
    running: dict[str, object] | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct, rename="camel", gc=False):
    name: str
    id: str = msgspec.field(name="containerID", default="")
    state: _State | None = None
    last_state: _State | None = None


class _Owner(msgspec.Struct, gc=False):
    kind: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel", gc=False):
    uid: str
    name: str
    namespace: str = ""
    annotations: dict[str, str] | None = None
    owner_references: tuple[_Owner, ...] | None = None


class _Spec(msgspec.Struct, rename="camel", gc=False):
    node_name: str = ""
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] | None = None


class _Status(msgspec.Struct, rename="camel", gc=False):
    phase: str = ""
    container_statuses: tuple[_ContainerStatus, ...] | None = None
    init_container_statuses: tuple[_ContainerStatus, ...] | None = None
    ephemeral_container_statuses: tuple[_ContainerStatus, ...] | None = None


class _Pod(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_POD: Final = msgspec.json.Decoder(_Pod)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContainer:
    """One container of a pod's spec; ``stage`` says when it runs.

    ``key`` is its annotation prefix, as ``c0``. ``injected`` says that it sees devices by its
    annotation and by nothing that it could have written itself, ``mounts`` that admission
    mounted its region. ``started`` says that it runs or ran, ``done`` that it is an init
    container that has ended well. ``asks`` has the extended resources that it asks for.
    ``priority`` is what admission injected, for a spec does not change any more.
    """

    name: str
    stage: Stage
    key: str
    injected: bool
    mounts: bool
    started: bool
    done: bool
    running: bool
    asks: frozenset[str]
    priority: Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePod:
    """One pod that is bound to this node; ``vessels`` are its containers, init first.

    ``over`` says that its phase is final, ``kept`` that somebody would bring it back here. ``told``
    is the assignment its annotations tell of, as JSON, or empty; ``volcano`` and ``hami`` are the
    lists of devices that those schedulers made for this node, or empty. ``requests`` is what
    kubelet counts for it of each extended resource, ``ids`` has its containers' names by runtime
    ids.
    """

    uid: str
    namespace: str
    name: str
    node: str
    over: bool
    kept: bool
    told: str
    volcano: str
    hami: str
    requests: Mapping[str, int]
    ids: Mapping[str, str]
    vessels: tuple[PodContainer, ...]

    @property
    def has_started(self) -> bool:
        """Say whether any of its containers runs or ran."""
        return any(vessel.started for vessel in self.vessels)

    def vessel(self, name: str) -> PodContainer | None:
        """Return the container called *name*."""
        return next((vessel for vessel in self.vessels if vessel.name == name), None)


def tenant(raw: bytes) -> NodePod:
    """Read a pod that the API server sent; raises ``ValueError`` where it is none."""
    pod = _POD.decode(raw)
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    annotations = metadata.annotations or {}
    container_statuses = {s.name: s for s in status.container_statuses or ()}
    told_init = {s.name: s for s in status.init_container_statuses or ()}
    beside = status.ephemeral_container_statuses or ()
    init = spec.init_containers or ()
    return NodePod(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        node=spec.node_name,
        over=status.phase in _OVER,
        kept=_is_daemon_or_static(metadata),
        told=annotations.get(ASSIGNMENT_KEY, ""),
        volcano=annotations.get(LIST_ANNOTATION, "")
        if annotations.get(LIST_NODE_ANNOTATION) == spec.node_name
        else "",
        hami=annotations.get(HAMI_LIST_ANNOTATION, "")
        if annotations.get(HAMI_LIST_NODE_ANNOTATION) == spec.node_name
        else "",
        requests=MappingProxyType(_requests(spec.containers, init)),
        ids=MappingProxyType(_ids((*container_statuses.values(), *told_init.values(), *beside))),
        vessels=(
            *(_vessel(f"i{i}", c, told_init.get(c.name)) for i, c in enumerate(init)),
            *(
                _vessel(f"c{i}", c, container_statuses.get(c.name))
                for i, c in enumerate(spec.containers)
            ),
        ),
    )


def _is_daemon_or_static(metadata: _Metadata) -> bool:
    """Say whether a DaemonSet or kubelet (a static pod) would recreate the pod here."""
    owners = metadata.owner_references or ()
    daemon = any(owner.kind == "DaemonSet" and owner.controller for owner in owners)
    return daemon or _MIRROR in (metadata.annotations or {})


def _ids(statuses: Iterable[_ContainerStatus]) -> dict[str, str]:
    """Return names by what stands behind ``containerd://`` and its like."""
    return {s.id.rpartition("/")[2]: s.name for s in statuses if s.id}


def _vessel(place: str, container: _Container, status: _ContainerStatus | None) -> PodContainer:
    state = None if status is None else status.state
    last = None if status is None else status.last_state
    ended = None if state is None else state.terminated
    running = state is not None and state.running is not None
    env = {v.name: v for v in container.env or ()}  # of one name the last one holds
    keys = {name: key for name, v in env.items() if (key := _key(v)) is not None}
    return PodContainer(
        name=container.name,
        stage=_stage(place, container),
        key=min(keys.values(), default=place),
        injected=_VISIBLE in keys,
        mounts=any(
            mount.name == REGIONS_VOLUME and mount.mount_path.rstrip("/") == _REGION
            for mount in container.volume_mounts or ()
        ),
        started=running or ended is not None or bool(last and last.terminated),
        done=place[0] == "i" and ended is not None and ended.exit_code == 0,
        running=running,
        asks=frozenset(_limits(container)),
        priority=_priority(env) if _VISIBLE in keys else Priority.LOW,
    )


def _stage(place: str, container: _Container) -> Stage:
    if place[0] != "i":
        return Stage.APP
    return Stage.SIDECAR if container.restart_policy == _ALWAYS else Stage.INIT


def _key(variable: _Variable) -> str | None:
    source = variable.value_from
    reference = None if source is None else source.field_ref
    return None if reference is None else key_in(reference.field_path)


def _priority(env: Mapping[str, _Variable]) -> Priority:
    stated = env.get(_PRIORITY)
    high = stated is not None and stated.value == str(Priority.HIGH.value)
    return Priority.HIGH if high else Priority.LOW


def _requests(apps: Sequence[_Container], init: Sequence[_Container]) -> dict[str, int]:
    """Return what kubelet counts: apps and sidecars together, or an init container with those.

    An extended resource has whole amounts; what cannot be read counts nothing.
    """
    beside: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in init:
        wanted = _limits(container)
        if container.restart_policy == _ALWAYS:
            beside = _sum((beside, wanted))
            most = _largest(most, beside)
        else:
            most = _largest(most, _sum((beside, wanted)))
    return _largest(most, _sum((beside, *map(_limits, apps))))


def _limits(container: _Container) -> dict[str, int]:
    limits = (container.resources.limits if container.resources else None) or {}
    amounts = {name: parse(text) for name, text in limits.items() if "/" in name}
    return {
        name: ceil(q.value)
        for name, q in amounts.items()
        if q is not None and 0 < q.value <= LARGEST
    }


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _largest(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in one.keys() | other.keys()}
