"""Pods as commands read them: the fields that show what became of a request."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from allocator.catalog.vocabularies import Vocabulary
from allocator.model.decision import Findings
from allocator.model.request import PodRequest
from allocator.request.parse import parse_request
from allocator.request.pod_fields import NodeNameSpec, PodPhase, SpecContainer


class ObjectOwner(msgspec.Struct, frozen=True):
    """An owner reference of an object."""

    uid: str = ""


class PodMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of a pod or a workload."""

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    annotations: dict[str, str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: tuple[ObjectOwner, ...] | None = None

    def is_owned_by(self, uids: Collection[str]) -> bool:
        """Say whether one of the objects with *uids* owns it."""
        return any(owner.uid in uids for owner in self.owner_references or ())


class Spec(NodeNameSpec, frozen=True, rename="camel"):
    """The containers of a pod, its node and its scheduler."""

    containers: tuple[SpecContainer, ...] = ()
    init_containers: tuple[SpecContainer, ...] | None = None
    scheduler_name: str = ""
    scheduling_gates: tuple[dict[str, str], ...] | None = None


class PodView(msgspec.Struct, frozen=True):
    """A pod; one that a manifest makes has no uid yet."""

    metadata: PodMetadata
    spec: Spec
    status: PodPhase = PodPhase()

    @property
    def namespace(self) -> str:
        """Return its namespace."""
        return self.metadata.namespace or ""

    @property
    def annotations(self) -> Mapping[str, str]:
        """Return its annotations."""
        return self.metadata.annotations or {}

    @property
    def over(self) -> bool:
        """Say whether its containers have ended for good."""
        return self.status.over


def pod_of(document: Mapping[str, Any]) -> PodView:
    """Read a pod that was parsed from JSON; raises ``ValueError`` where it is none."""
    return msgspec.convert(document, PodView)


class PodState(StrEnum):
    """How far a pod's request has come. Public API: never rename, only add."""

    WAITING = "Waiting"  # for a node
    RESERVED = "Reserved"  # promised, its Binding not seen yet
    BOUND = "Bound"  # to its node; no container runs yet
    RUNNING = "Running"
    BYPASSED = "Bypassed"  # bound without a promise
    ENDED = "Ended"  # what it was promised is not free yet
    GONE = "Gone"  # the same, and the pod does not exist any more


def state_of(pod: PodView, *, promised: bool) -> PodState:
    """Return how far *pod* has come; *promised* says whether a ledger has an entry for it."""
    if pod.over:
        return PodState.ENDED
    if not pod.spec.node_name:
        return PodState.RESERVED if promised else PodState.WAITING
    if not promised:
        return PodState.BYPASSED
    return PodState.RUNNING if pod.status.phase == "Running" else PodState.BOUND


def request_of(pod: PodView, vocabularies: Sequence[Vocabulary]) -> PodRequest | Findings | None:
    """Return what a pod asks for, as admission left it."""
    return parse_request(
        containers=pod.spec.containers,
        init_containers=pod.spec.init_containers or (),
        annotations=pod.annotations,
        vocabularies=vocabularies,
    )
