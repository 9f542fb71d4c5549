"""Parts of a pod that several programs read alike: their types, defaults, and what may be null.

A field with ``| None`` may be null or absent; any other may be absent, but null is an error. Each
program adds the fields that it needs, in a struct that builds on one of these, and no more: what
is not declared is not decoded, so that nothing unreadable there can make a pod unreadable.
"""

from functools import lru_cache
from typing import Final

import msgspec

MOST_SHARED: Final = 16_384  # texts, such as names of nodes and namespaces
_FINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})


class FieldRef(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A downward API reference."""

    field_path: str = ""


class ValueFrom(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Where a variable's value comes from; sources other than a field are not decoded."""

    field_ref: FieldRef | None = None


class EnvVar(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One explicit variable."""

    name: str
    value: str | None = None
    value_from: ValueFrom | None = None


class MountPoint(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A volume by name, and where a container sees it."""

    name: str = ""
    mount_path: str = ""


class ResourceLimits(msgspec.Struct, frozen=True, gc=False):
    """What a container may use at most: quantities as the API server canonicalised them."""

    limits: dict[str, str | int] | None = None


class Resources(ResourceLimits, frozen=True, gc=False):
    """What a container may use at most, and what it asks to be scheduled for."""

    requests: dict[str, str | int] | None = None


class SpecContainer(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A container of any kind, as far as its request goes."""

    name: str
    resources: Resources | None = None
    restart_policy: str | None = None


class OwnerKind(msgspec.Struct, frozen=True, gc=False):
    """An owner reference: the kind of the owner, and whether it is the controller."""

    kind: str = ""
    controller: bool | None = None


class NodeNameSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The node of a pod that the API server sent; empty until it is bound."""

    node_name: str = ""


class PodPhase(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The phase of a pod's status."""

    phase: str = ""

    @property
    def over(self) -> bool:
        """Say whether its containers have ended for good."""
        return self.phase in _FINAL_PHASES


class WatchedMetadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Which pod it is, since when, and until when; times as RFC 3339."""

    uid: str
    namespace: str = ""
    name: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class WatchedResources(msgspec.Struct, frozen=True, gc=False):
    """What a container may use at most; amounts are not read, but for whether they are zero."""

    limits: dict[str, msgspec.Raw] | None = None


class WatchedContainer(msgspec.Struct, frozen=True, gc=False):
    """A container, of which only the limits count."""

    resources: WatchedResources | None = None


class WatchedSpec(NodeNameSpec, frozen=True, rename="camel", gc=False):
    """Where the pod is, how important, and what it runs."""

    priority: int | None = None
    containers: tuple[WatchedContainer, ...] = ()
    init_containers: tuple[WatchedContainer, ...] | None = None


class WatchedStatus(PodPhase, frozen=True, rename="camel", gc=False):
    """How far the pod has come, and the node that a scheduler makes room on for it."""

    nominated_node_name: str = ""


class WatchedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod that the API server sent."""

    metadata: WatchedMetadata
    spec: WatchedSpec = WatchedSpec()
    status: WatchedStatus = WatchedStatus()


class ControllerReference(msgspec.Struct, frozen=True, gc=False):
    """An owner, by uid, and whether it is the controller."""

    uid: str = ""
    controller: bool | None = None


class OwnedMetadata(WatchedMetadata, frozen=True, rename="camel", gc=False):
    """Which pod it is, and whose."""

    owner_references: tuple[ControllerReference, ...] | None = None


class OwnedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod with its owners."""

    metadata: OwnedMetadata
    spec: NodeNameSpec = NodeNameSpec()


_POD: Final = msgspec.json.Decoder(WatchedPod)
_OWNED: Final = msgspec.json.Decoder(OwnedPod)


def decode_watched(raw: bytes) -> WatchedPod:
    """Read a pod that the API server sent; raises ``ValueError`` for anything else."""
    return _POD.decode(raw)


def decode_owned(raw: bytes) -> OwnedPod:
    """Read a pod with its owners; raises ``ValueError`` for anything else."""
    return _OWNED.decode(raw)


@lru_cache(maxsize=MOST_SHARED)
def shared(text: str) -> str:
    """Return *text*, for equal texts mostly the same object: many pods name the same nodes."""
    return text
