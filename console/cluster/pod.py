"""Pods as commands read them: the fields that show what became of a request."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from allocator.catalog.vocabularies import LostVocabulary, Vocabulary
from allocator.model.decision import Finding, Findings
from allocator.model.request import PodRequest
from allocator.request.parse import lost_findings, parse_request, unserved_findings
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


# Kubelet is at work on a container that waits for one of these; anything else is in its way.
_UNDER_WAY: Final = frozenset({"", "ContainerCreating", "PodInitializing"})


class _Waiting(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _ContainerState(msgspec.Struct, frozen=True):
    waiting: _Waiting | None = None


class _ContainerStatus(msgspec.Struct, frozen=True):
    name: str = ""
    state: _ContainerState = _ContainerState()


class _PodCondition(msgspec.Struct, frozen=True):
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerTrouble:
    """Why a container does not start, in kubelet's words."""

    container: str = ""
    reason: str = ""
    message: str = ""


class PodStatusView(PodPhase, frozen=True, rename="camel"):
    """How far a pod has come, and what is in its way."""

    reason: str = ""  # of a phase
    message: str = ""
    conditions: tuple[_PodCondition, ...] | None = None
    container_statuses: tuple[_ContainerStatus, ...] | None = None
    init_container_statuses: tuple[_ContainerStatus, ...] | None = None

    @property
    def is_seen_by_scheduler(self) -> bool:
        """Say whether a scheduler has left its condition on the pod."""
        return any(condition.type == "PodScheduled" for condition in self.conditions or ())

    @property
    def troubles(self) -> tuple[ContainerTrouble, ...]:
        """Return the containers that do not start, those of the first stage first."""
        return tuple(self._troubles())

    def _troubles(self) -> Iterator[ContainerTrouble]:
        for status in (*(self.init_container_statuses or ()), *(self.container_statuses or ())):
            waiting = status.state.waiting
            if waiting is not None and waiting.reason not in _UNDER_WAY:
                yield ContainerTrouble(
                    container=status.name, reason=waiting.reason, message=waiting.message
                )


class PodView(msgspec.Struct, frozen=True):
    """A pod; one that a manifest makes has no uid yet."""

    metadata: PodMetadata
    spec: Spec
    status: PodStatusView = PodStatusView()

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
    FAILING = "Failing"  # bound to its node; a container does not start, or keeps ending
    RUNNING = "Running"
    BYPASSED = "Bypassed"  # bound without a promise
    ENDED = "Ended"  # what it was promised is not free yet
    GONE = "Gone"  # the same, and the pod does not exist any more


def state_of(pod: PodView, *, promised: bool, asking: bool = True) -> PodState:
    """Return how far *pod* has come; *promised* says whether a ledger has an entry for it.

    A pod that is not *asking* for vGPU needs none.
    """
    if pod.over:
        return PodState.ENDED
    if not pod.spec.node_name:
        return PodState.RESERVED if promised else PodState.WAITING
    if asking and not promised:
        return PodState.BYPASSED
    if pod.status.troubles:
        return PodState.FAILING
    return PodState.RUNNING if pod.status.phase == "Running" else PodState.BOUND


def request_of(pod: PodView, vocabularies: Sequence[Vocabulary]) -> PodRequest | Findings | None:
    """Return what a pod asks for, as admission left it."""
    return parse_request(
        containers=pod.spec.containers,
        init_containers=pod.spec.init_containers or (),
        annotations=pod.annotations,
        vocabularies=vocabularies,
    )


def lost_findings_of(
    pod: PodView, vocabularies: Sequence[Vocabulary], lost: Sequence[LostVocabulary]
) -> Findings | None:
    """Return why admission refuses a pod that asks in a *lost* vocabulary besides another one."""
    return lost_findings(
        pod.spec.init_containers or (), pod.spec.containers, tuple(vocabularies), lost=lost
    )


def unserved_findings_of(
    pod: PodView, vocabularies: Sequence[Vocabulary], lost: Sequence[LostVocabulary]
) -> Sequence[Finding]:
    """Return what a pod asks for in vocabularies that are not served."""
    return unserved_findings(
        pod.spec.init_containers or (), pod.spec.containers, tuple(vocabularies), lost=lost
    )
