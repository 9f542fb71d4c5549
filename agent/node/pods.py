"""The pods of this node, as the API server describes them.

A container's own variables decide only which annotations are read: other webhooks may have moved
it within the pod, so its annotation prefix is taken from there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from math import ceil
from posixpath import dirname
from types import MappingProxyType
from typing import Final

import msgspec

from allocator.catalog.injection import REGION_PATH, REGIONS_VOLUME, VISIBLE, key_in, key_path
from allocator.catalog.keys import ASSIGNMENT_KEY, DECISION_KEY, LIBRARY_KEY, LIBRARY_OFF
from allocator.model.request import Priority, Stage
from allocator.model.untrusted import zoned_time
from allocator.request.pod_fields import (
    EnvVar,
    MountPoint,
    NodeNameSpec,
    OwnerKind,
    PodPhase,
    ResourceLimits,
)
from allocator.request.quantity import LARGEST, parse
from allocator.volcano.device_list import (
    HAMI_LIST_ANNOTATION,
    HAMI_LIST_NODE_ANNOTATION,
    LIST_ANNOTATION,
    LIST_NODE_ANNOTATION,
)

_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
_PRIORITY: Final = "CUDA_TASK_PRIORITY"
_CONTROL: Final = "CUDA_DISABLE_CONTROL"
# Where a region is mounted; pods that older versions admitted have its directory there.
_REGION_MOUNT_PATHS: Final = frozenset((REGION_PATH, dirname(REGION_PATH)))
_MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
_ALWAYS: Final = "Always"


class _Container(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str
    env: tuple[EnvVar, ...] | None = None
    resources: ResourceLimits | None = None
    volume_mounts: tuple[MountPoint, ...] | None = None
    restart_policy: str | None = None


class _Running(msgspec.Struct, frozen=True, rename="camel", gc=False):
    started_at: str | None = None


class _Terminated(msgspec.Struct, frozen=True, rename="camel", gc=False):
    exit_code: int = 0
    started_at: str | None = None


class _State(msgspec.Struct, frozen=True, gc=False):
    running: _Running | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str
    id: str = msgspec.field(name="containerID", default="")
    state: _State | None = None
    last_state: _State | None = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    uid: str
    name: str
    namespace: str = ""
    creation_timestamp: str | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerKind, ...] | None = None


class _Spec(NodeNameSpec, frozen=True, rename="camel", gc=False):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] | None = None


class _Status(PodPhase, frozen=True, rename="camel", gc=False):
    container_statuses: tuple[_ContainerStatus, ...] | None = None
    init_container_statuses: tuple[_ContainerStatus, ...] | None = None
    ephemeral_container_statuses: tuple[_ContainerStatus, ...] | None = None


class _Pod(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


_POD: Final = msgspec.json.Decoder(_Pod)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContainer:
    """One container of a pod's spec."""

    name: str
    stage: Stage  # when it runs
    key: str  # its annotation prefix, as ``c0``
    injected: bool  # sees devices by its own annotation of ours alone
    has_mounts: bool  # admission mounted its region
    limited: bool  # its own variables keep the library on, so no image can turn it off
    started: bool  # runs or ran
    completed: bool  # an init container that has succeeded
    running: bool
    running_since: datetime | None  # since its last start, also where it has ended; None: unknown
    resources: Mapping[str, int]  # what it requests of extended resources, amounts above 0
    priority: Priority  # as injected: a spec does not change any more


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePod:
    """One pod that is bound to this node."""

    uid: str
    namespace: str
    name: str
    node: str
    created: datetime | None  # None: unknown
    ended: bool  # its phase is final
    recreated_here: bool  # by a DaemonSet, or by kubelet (a static pod)
    library_off: bool  # its containers with whole GPUs want no library
    assignment: str  # annotation, as JSON, or empty
    digest: str  # of the request that it was admitted with, or empty
    volcano_devices: str  # Volcano's list of devices, if it is for this node, or empty
    hami_devices: str  # HAMi's, likewise
    requests: Mapping[str, int]  # what kubelet counts of each extended resource
    container_names: Mapping[str, str]  # by the runtime's ids
    containers: tuple[PodContainer, ...]  # init containers first

    @property
    def has_started(self) -> bool:
        """Say whether any of its containers runs or ran."""
        return any(container.started for container in self.containers)

    def container(self, name: str) -> PodContainer | None:
        """Return the container called *name*."""
        return next((container for container in self.containers if container.name == name), None)


def parse_pod(raw: bytes) -> NodePod:
    """Read a pod that the API server sent; raises ``ValueError`` where it is none."""
    pod = _POD.decode(raw)
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    annotations = metadata.annotations or {}
    return NodePod(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        node=spec.node_name,
        created=zoned_time(metadata.creation_timestamp),
        ended=status.over,
        recreated_here=_is_daemon_or_static(metadata),
        library_off=annotations.get(LIBRARY_KEY) == LIBRARY_OFF,
        assignment=annotations.get(ASSIGNMENT_KEY, ""),
        digest=annotations.get(DECISION_KEY, ""),
        volcano_devices=_value_for_node(pod, LIST_ANNOTATION, LIST_NODE_ANNOTATION),
        hami_devices=_value_for_node(pod, HAMI_LIST_ANNOTATION, HAMI_LIST_NODE_ANNOTATION),
        requests=MappingProxyType(_requests(spec.containers, spec.init_containers or ())),
        container_names=MappingProxyType(_names_by_id(status)),
        containers=_with_keys_of_their_own(
            (
                *_containers("i", spec.init_containers, status.init_container_statuses),
                *_containers("c", spec.containers, status.container_statuses),
            )
        ),
    )


def _value_for_node(pod: _Pod, key: str, node_key: str) -> str:
    """Return the annotation *key*, empty where *node_key* names another node than the pod's."""
    annotations = pod.metadata.annotations or {}
    return annotations.get(key, "") if annotations.get(node_key) == pod.spec.node_name else ""


def _containers(
    kind: str,
    containers: Sequence[_Container] | None,
    statuses: Sequence[_ContainerStatus] | None,
) -> Iterator[PodContainer]:
    """Yield the containers of one *kind*, the first letter of their positions, with their state."""
    by_name = {status.name: status for status in statuses or ()}
    for number, container in enumerate(containers or ()):
        yield _pod_container(f"{kind}{number}", container, by_name.get(container.name))


def _with_keys_of_their_own(containers: Iterable[PodContainer]) -> tuple[PodContainer, ...]:
    """Return *containers*; a second one with the same key reads what is another container's."""
    taken: set[str] = set()
    kept: list[PodContainer] = []
    for container in containers:
        injected = container.injected and container.key not in taken
        kept.append(container if injected else replace(container, injected=False))
        if injected:
            taken.add(container.key)
    return tuple(kept)


def _is_daemon_or_static(metadata: _Metadata) -> bool:
    """Say whether a DaemonSet or kubelet (a static pod) would recreate the pod here."""
    owners = metadata.owner_references or ()
    daemon = any(owner.kind == "DaemonSet" and owner.controller for owner in owners)
    return daemon or _MIRROR_ANNOTATION in (metadata.annotations or {})


def _names_by_id(status: _Status) -> dict[str, str]:
    """Return names by container id, without the prefix ``containerd://`` or the like."""
    statuses = chain(
        status.container_statuses or (),
        status.init_container_statuses or (),
        status.ephemeral_container_statuses or (),
    )
    return {s.id.rpartition("/")[2]: s.name for s in statuses if s.id}


def _pod_container(
    position: str, container: _Container, status: _ContainerStatus | None
) -> PodContainer:
    state = None if status is None else status.state
    last = None if status is None else status.last_state
    ended = None if state is None else state.terminated
    running = state is not None and state.running is not None
    env = {v.name: v for v in container.env or ()}  # the last one of a name applies
    paths = {name: path for name, v in env.items() if (path := _field_path(v))}
    key = min((key for path in paths.values() if (key := key_in(path))), default=position)
    injected = paths.get(_VISIBLE) == key_path(key, VISIBLE)
    return PodContainer(
        name=container.name,
        stage=_stage(position, container),
        key=key,
        injected=injected,
        has_mounts=any(
            mount.name == REGIONS_VOLUME and mount.mount_path.rstrip("/") in _REGION_MOUNT_PATHS
            for mount in container.volume_mounts or ()
        ),
        limited=_CONTROL in env and env[_CONTROL].value == "false",
        started=running or ended is not None or bool(last and last.terminated),
        completed=position[0] == "i" and ended is not None and ended.exit_code == 0,
        running=running,
        running_since=_running_since(state),
        resources=MappingProxyType(_limits(container)),
        priority=_priority(env) if injected else Priority.LOW,
    )


def _running_since(state: _State | None) -> datetime | None:
    if state is None:
        return None
    begun = state.running or state.terminated
    return None if begun is None else zoned_time(begun.started_at)


def _stage(position: str, container: _Container) -> Stage:
    if position[0] != "i":
        return Stage.APP
    return Stage.SIDECAR if container.restart_policy == _ALWAYS else Stage.INIT


def _field_path(variable: EnvVar) -> str:
    """Return the field of the pod that a variable reads; empty if it reads none."""
    source = variable.value_from
    reference = None if source is None else source.field_ref
    return "" if reference is None else reference.field_path


def _priority(env: Mapping[str, EnvVar]) -> Priority:
    stated = env.get(_PRIORITY)
    high = stated is not None and stated.value == str(Priority.HIGH.value)
    return Priority.HIGH if high else Priority.LOW


def _requests(apps: Sequence[_Container], init: Sequence[_Container]) -> dict[str, int]:
    """Return what kubelet counts: apps and sidecars, or more for an init container with sidecars.

    An extended resource has whole amounts; an invalid amount counts as 0.
    """
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in init:
        wanted = _limits(container)
        if container.restart_policy == _ALWAYS:
            sidecars = _sum((sidecars, wanted))
            most = _maximum(most, sidecars)
        else:
            most = _maximum(most, _sum((sidecars, wanted)))
    return _maximum(most, _sum((sidecars, *map(_limits, apps))))


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


def _maximum(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return {
        name: max(first.get(name, 0), second.get(name, 0)) for name in first.keys() | second.keys()
    }
