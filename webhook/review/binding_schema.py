"""Reviews of Bindings, and the live pods that they are about."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from allocator.model.untrusted import is_safe_name
from webhook.review.admission_review import (
    UNREADABLE,
    BadObjectError,
    ObjectKind,
    UserInfo,
    decode_review,
)
from webhook.review.pod_schema import MOST_ENTRIES, Metadata, Pod, StoredPod, StoredStatus


class BindingTarget(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Where the pod is to go."""

    kind: str = ""
    name: str = ""


class BindingMetadata(Metadata, frozen=True, rename="camel", gc=False):
    """Which pod it is, and what the API server adds to it."""

    labels: Annotated[dict[str, str], msgspec.Meta(max_length=MOST_ENTRIES)] | None = None


class Binding(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A pod's Binding; Volcano's carries annotations, a legacy one no uid."""

    metadata: BindingMetadata = BindingMetadata()
    target: BindingTarget = BindingTarget()


class BindingRequest(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The request under review."""

    uid: str
    kind: ObjectKind = ObjectKind()
    name: str | None = None
    namespace: str = ""
    user_info: UserInfo = UserInfo()
    dry_run: bool | None = None
    object: Binding | None = None


class _Review(msgspec.Struct, frozen=True, rename="camel", gc=False):
    request: BindingRequest
    api_version: str = ""
    kind: str = ""


_REVIEW: Final = msgspec.json.Decoder(_Review)
_LIVE: Final = msgspec.json.Decoder(StoredPod)
_POD: Final = msgspec.json.Decoder(Pod)


class UnreadablePodError(ValueError):
    """A pod that does not decode or exceeds the bounds; the text says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingReview:
    """A valid review: which pod is bound to which node, and who asked."""

    request: BindingRequest
    binding: Binding
    namespace: str
    pod: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePod:
    """A pod as the API server has it now; ``node`` is empty until it is bound.

    ``started`` says that one of its containers runs or ran. ``claimed`` are the extended resources
    that its scheduler has taken from a ResourceClaim, not from the node.
    """

    pod: Pod
    uid: str
    labels: Mapping[str, str]
    node: str
    gated: bool
    deleting: bool
    over: bool
    started: bool
    claimed: frozenset[str] = frozenset()


def parse(body: bytes) -> BindingReview:
    """Decode one review of a Binding.

    Raises as :func:`decode_review` does, and :class:`BadObjectError` where the review carries
    no Binding of a named pod to a named node.
    """
    return _binding_review(decode_review(_REVIEW, body).request)


def _binding_review(request: BindingRequest) -> BindingReview:
    binding, kind = request.object, request.kind
    if kind.kind != "Binding" or kind.group or binding is None:
        what = f"{kind.group[:64]}/{kind.kind[:64]}"
        raise BadObjectError(request.uid, f"object is a {what!r}; expected a Binding")
    named = binding.metadata.name or ""
    name = request.name or named
    if not name or (named and named != name):
        text = (
            f"the request names pod {name[:64]!r} but its Binding {named[:64]!r}; expected one name"
        )
        raise BadObjectError(request.uid, text)
    target = binding.target
    if target.kind not in {"", "Node"} or not target.name:
        what = f"{target.kind[:64]} {target.name[:64]}"
        raise BadObjectError(request.uid, f"target is {what!r}; expected a Node with a name")
    if not all(map(is_safe_name, (request.namespace, name, target.name))):
        raise BadObjectError(
            request.uid, "a name has characters other than letters, digits, '-' and '.'"
        )
    return BindingReview(
        request=request,
        binding=binding,
        namespace=request.namespace,
        pod=name,
        node=target.name,
    )


def live_pod(raw: bytes) -> LivePod:
    """Read a pod that the API server sent; raises :class:`UnreadablePodError`."""
    try:  # twice, because admission's schema of a pod has no status, and a review has none to read
        live, pod = _LIVE.decode(raw), _POD.decode(raw)
    except UNREADABLE as error:
        raise UnreadablePodError(str(error)[:256]) from error
    return LivePod(
        pod=pod,
        uid=live.metadata.uid,
        labels=live.metadata.labels or {},
        node=live.spec.node_name,
        gated=bool(live.spec.scheduling_gates),
        deleting=live.metadata.deletion_timestamp is not None,
        over=live.status.over,
        started=_has_started(live.status),
        claimed=_claims(live.status),
    )


def _claims(status: StoredStatus) -> frozenset[str]:
    claim = status.extended_resource_claim_status
    mappings = () if claim is None else claim.request_mappings or ()
    return frozenset(mapping.resource_name for mapping in mappings)


def _has_started(status: StoredStatus) -> bool:
    container_statuses = (
        *(status.container_statuses or ()),
        *(status.init_container_statuses or ()),
    )
    return any(
        state.has_run
        for container_status in container_statuses
        for state in (container_status.state, container_status.last_state)
        if state
    )
