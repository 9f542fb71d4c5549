"""The fields that are read of every pod of the cluster, decoded once for all who follow pods."""

from typing import Final

import msgspec

from allocator.request.pod_fields import NodeNameSpec, PodPhase


class WatchedMetadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Which pod it is, since when, and until when; times as RFC 3339."""

    uid: str
    namespace: str = ""
    name: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class WatchedResources(msgspec.Struct, frozen=True, gc=False):
    """What a container may use at most; amounts are not read, whatever they are."""

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


_POD: Final = msgspec.json.Decoder(WatchedPod)


def decode_watched(raw: bytes) -> WatchedPod:
    """Read a pod that the API server sent; raises ``ValueError`` for anything else."""
    return _POD.decode(raw)
