"""Unbound pods, as a scheduler sends them and a watch shows them: what each asks for."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from allocator.catalog.keys import GROUP_SIZE_KEY, HINT_KEY
from allocator.catalog.vocabularies import Vocabulary
from allocator.extender.pod import SchedulingPod
from allocator.groups.members import GroupPod, job_of
from allocator.ledger.assign import PodClaim
from allocator.model.decision import Findings
from allocator.model.untrusted import zoned_time
from allocator.request.admitted import admitted_request
from allocator.request.amounts import group_size
from allocator.request.parse import parse_request
from allocator.request.pod_fields import WatchedPod, shared
from webhook.review.pod_schema import Metadata, Pod, QueuedPod

_POD: Final = msgspec.json.Decoder(QueuedPod)
_REVIEWED: Final = msgspec.json.Decoder(Pod)


def unbound_pod(raw: bytes | msgspec.Raw, vocabularies: Sequence[Vocabulary]) -> SchedulingPod:
    """Read a pod that waits for a node; raises ``ValueError`` or msgspec's errors."""
    reviewed = _REVIEWED.decode(raw)
    found = _pod(_POD.decode(raw), pod_claim(reviewed, vocabularies))
    member = member_of(reviewed.metadata, namespace=found.namespace)
    return found if member is None else replace(found, member=member)


def watched_pod(
    pod: WatchedPod, as_json: Callable[[], bytes], vocabularies: Sequence[Vocabulary]
) -> SchedulingPod:
    """Return any *pod*.

    What it asks for is read of its JSON, and only where a scheduler makes room for it.
    """
    if pod.spec.node_name or not pod.status.nominated_node_name:
        return _pod(pod, None)
    reviewed = _REVIEWED.decode(as_json())
    nominee = _pod(pod, pod_claim(reviewed, vocabularies))
    hint = (reviewed.metadata.annotations or {}).get(HINT_KEY)
    return replace(nominee, hinted=hint == nominee.nominated)


def pod_claim(pod: Pod, vocabularies: Sequence[Vocabulary]) -> PodClaim | Findings | None:
    """Return what a pod asks for; a mode that was the best at CREATE may be revised."""
    present = pod.metadata.annotations or {}
    request = parse_request(
        containers=pod.spec.containers,
        init_containers=pod.spec.init_containers or (),
        annotations=present,
        vocabularies=vocabularies,
    )
    if request is None or isinstance(request, Findings):
        return request
    admitted = admitted_request(present, request, vocabularies)
    return PodClaim(uid=pod.metadata.uid or "", request=admitted.request, mode=admitted.mode)


def member_of(metadata: Metadata, *, namespace: str) -> GroupPod | None:
    """Return an unbound pod as a member of its job; ``None`` where it is of none."""
    annotations = metadata.annotations or {}
    job = job_of(namespace, annotations, metadata.owner_references)
    if job is None:
        return None
    return GroupPod(
        uid=metadata.uid or "",
        job=job,
        name=metadata.name or "",
        size=group_size(annotations.get(GROUP_SIZE_KEY, "")),
    )


def _pod(pod: QueuedPod | WatchedPod, wanted: PodClaim | Findings | None) -> SchedulingPod:
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    return SchedulingPod(
        uid=metadata.uid,
        namespace=shared(metadata.namespace),
        name=metadata.name,
        priority=spec.priority or 0,
        created=shared(metadata.creation_timestamp or ""),
        node=shared(spec.node_name),
        nominated=shared(status.nominated_node_name),
        deleting=metadata.deletion_timestamp is not None,
        deadline=zoned_time(metadata.deletion_timestamp),
        over=status.over,
        claim=wanted,
    )
