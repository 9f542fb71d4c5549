"""The JSON of pods as hooks and schedulers' questions need it: a few fields, within bounds.

``Pod`` is what admission reads, of a pod under review and of one that is stored. The others are
read beside it: ``StoredPod`` for a bind and ``QueuedPod`` for the order of schedulers.
"""

from typing import Annotated, Final

import msgspec

from allocator.request.pod_fields import (
    EnvVar,
    MountPoint,
    NodeNameSpec,
    OwnerKind,
    PodPhase,
    Resources,
    SpecContainer,
)

MOST_CONTAINERS: Final = 512
MOST_ENTRIES: Final = 4096  # variables or mounts of one container, volumes or annotations of a pod
MOST_RESOURCES: Final = 64  # that one container names; each is looked at several times


class EnvFrom(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A source of variables that we cannot see into."""


class VolumeMount(MountPoint, frozen=True, rename="camel", gc=False):
    """A mount of a volume into a container."""

    sub_path: str | None = None
    sub_path_expr: str | None = None
    read_only: bool | None = None


class SecurityContext(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Whether a container escapes its limits."""

    privileged: bool | None = None


Amounts = Annotated[dict[str, str | int], msgspec.Meta(max_length=MOST_RESOURCES)]


class BoundedResources(Resources, frozen=True, gc=False):
    """What a container may use at most, and what it asks to be scheduled for."""

    limits: Amounts | None = None
    requests: Amounts | None = None


class Container(SpecContainer, frozen=True, rename="camel", gc=False):
    """A container of any kind."""

    resources: BoundedResources | None = None
    env: Annotated[tuple[EnvVar, ...], msgspec.Meta(max_length=MOST_ENTRIES)] | None = None
    env_from: tuple[EnvFrom, ...] | None = None
    volume_mounts: (
        Annotated[tuple[VolumeMount, ...], msgspec.Meta(max_length=MOST_ENTRIES)] | None
    ) = None
    security_context: SecurityContext | None = None
    # As JSON, which costs nothing to skip: only a container with several GPUs is looked into.
    command: msgspec.Raw = msgspec.Raw()
    args: msgspec.Raw = msgspec.Raw()


class HostPath(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A path of the node."""

    path: str = ""


class Volume(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A volume; only those of the node are told apart."""

    name: str
    host_path: HostPath | None = None


class ResourceClaim(msgspec.Struct, frozen=True, gc=False):
    """A claim of dynamic resource allocation; only that there is one matters."""


Containers = Annotated[tuple[Container, ...], msgspec.Meta(max_length=MOST_CONTAINERS)]


class PodSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What a pod runs and where."""

    containers: Containers = ()
    init_containers: Containers | None = None
    ephemeral_containers: Containers | None = None
    volumes: Annotated[tuple[Volume, ...], msgspec.Meta(max_length=MOST_ENTRIES)] | None = None
    node_name: str | None = None
    scheduler_name: str | None = None
    resource_claims: (
        Annotated[tuple[ResourceClaim, ...], msgspec.Meta(max_length=MOST_ENTRIES)] | None
    ) = None


class OwnerReference(OwnerKind, frozen=True, gc=False):
    """The object that made this one."""

    name: str = ""
    uid: str = ""


class Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Names, annotations and owners of a pod."""

    name: str | None = None
    generate_name: str | None = None
    uid: str | None = None
    namespace: str | None = None
    annotations: Annotated[dict[str, str], msgspec.Meta(max_length=MOST_ENTRIES)] | None = None
    labels: Annotated[dict[str, str], msgspec.Meta(max_length=MOST_ENTRIES)] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class Pod(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A pod under review."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()


class SchedulingGate(msgspec.Struct, frozen=True, gc=False):
    """What keeps schedulers from the pod until it is removed."""

    name: str = ""


class StoredMetadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Which pod it is, its labels, and whether it is being deleted."""

    uid: str
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class StoredSpec(NodeNameSpec, frozen=True, rename="camel", gc=False):
    """Where the pod is, and whether it may be scheduled."""

    scheduling_gates: tuple[SchedulingGate, ...] | None = None


class ContainerState(msgspec.Struct, frozen=True, gc=False):
    """What a container does or did; its other state is that it waits."""

    running: dict[str, msgspec.Raw] | None = None
    terminated: dict[str, msgspec.Raw] | None = None

    @property
    def has_run(self) -> bool:
        """Say whether it runs or ran."""
        return self.running is not None or self.terminated is not None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A container as kubelet reports it."""

    state: ContainerState | None = None
    last_state: ContainerState | None = None


class RequestMapping(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """An extended resource of one container that is served by a claim."""

    resource_name: str = ""


class ExtendedClaim(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The claim that a scheduler made for extended resources which a DeviceClass stands for."""

    resource_claim_name: str = ""
    request_mappings: tuple[RequestMapping, ...] | None = None


class StoredStatus(PodPhase, frozen=True, rename="camel", gc=False):
    """How far the pod has come."""

    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    extended_resource_claim_status: ExtendedClaim | None = None


class StoredPod(msgspec.Struct, frozen=True, gc=False):
    """A pod as the API server has it: what a bind rests on beside its request."""

    metadata: StoredMetadata
    spec: StoredSpec = StoredSpec()
    status: StoredStatus = StoredStatus()


class QueuedMetadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Which pod it is, since when, and until when; times as RFC 3339."""

    uid: str = ""
    name: str = ""
    namespace: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class QueuedSpec(NodeNameSpec, frozen=True, rename="camel", gc=False):
    """Where the pod is, and how important."""

    priority: int | None = None


class QueuedStatus(PodPhase, frozen=True, rename="camel", gc=False):
    """How far the pod has come, and the node that a scheduler makes room on for it."""

    nominated_node_name: str = ""


class QueuedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod as schedulers rank it."""

    metadata: QueuedMetadata = QueuedMetadata()
    spec: QueuedSpec = QueuedSpec()
    status: QueuedStatus = QueuedStatus()
