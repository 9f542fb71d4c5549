"""The JSON of pods, as far as admission reads it: a few fields of each part, within bounds."""

from typing import Annotated, Final

import msgspec

MOST_CONTAINERS: Final = 512
MOST_ENTRIES: Final = 4096  # variables or mounts of one container, volumes of one pod


class FieldRef(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A downward API reference."""

    field_path: str = ""


class ValueFrom(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Where a variable's value comes from; other sources than a field are not told apart."""

    field_ref: FieldRef | None = None


class EnvVar(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One explicit variable."""

    name: str
    value: str | None = None
    value_from: ValueFrom | None = None


class EnvFrom(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A source of variables that we cannot see into."""


class Resources(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Quantities as the API server canonicalised them."""

    limits: dict[str, str | int] | None = None
    requests: dict[str, str | int] | None = None


class VolumeMount(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A mount of a volume into a container."""

    name: str = ""
    mount_path: str = ""
    sub_path: str | None = None
    sub_path_expr: str | None = None
    read_only: bool | None = None


class SecurityContext(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Whether a container escapes its limits."""

    privileged: bool | None = None


class Container(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A container of any kind."""

    name: str
    env: Annotated[tuple[EnvVar, ...], msgspec.Meta(max_length=MOST_ENTRIES)] | None = None
    env_from: tuple[EnvFrom, ...] | None = None
    resources: Resources | None = None
    volume_mounts: (
        Annotated[tuple[VolumeMount, ...], msgspec.Meta(max_length=MOST_ENTRIES)] | None
    ) = None
    security_context: SecurityContext | None = None
    restart_policy: str | None = None


class HostPath(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A path of the node."""

    path: str = ""


class Volume(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A volume; only those of the node are told apart."""

    name: str
    host_path: HostPath | None = None


Containers = Annotated[tuple[Container, ...], msgspec.Meta(max_length=MOST_CONTAINERS)]


class PodSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What a pod runs and where."""

    containers: Containers = ()
    init_containers: Containers | None = None
    ephemeral_containers: Containers | None = None
    volumes: Annotated[tuple[Volume, ...], msgspec.Meta(max_length=MOST_ENTRIES)] | None = None
    node_name: str | None = None
    scheduler_name: str | None = None


class OwnerReference(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The object that made this one."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Names, annotations and owners of a pod."""

    name: str | None = None
    generate_name: str | None = None
    uid: str | None = None
    namespace: str | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class Pod(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A pod under review."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
