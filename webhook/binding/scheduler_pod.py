"""Unbound pods, as a scheduler sends them and a watch shows them: what each asks for."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec

from allocator.catalog.keys import HINT_KEY
from allocator.catalog.vocabularies import Vocabulary
from allocator.extender.pod import SchedulingPod
from allocator.ledger.assign import PodClaim
from allocator.model.decision import Finding
from allocator.request.admitted import admitted_request
from allocator.request.parse import parse_request
from webhook.review import pod_schema

_OVER: Final = frozenset({"Succeeded", "Failed"})


class _Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    uid: str = ""
    name: str = ""
    namespace: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    node_name: str = ""
    priority: int | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel", gc=False):
    phase: str = ""
    nominated_node_name: str = ""


class _Pod(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_POD: Final = msgspec.json.Decoder(_Pod)
_REVIEWED: Final = msgspec.json.Decoder(pod_schema.Pod)


def unbound_pod(raw: bytes | msgspec.Raw, vocabularies: Sequence[Vocabulary]) -> SchedulingPod:
    """Read a pod that waits for a node; raises ``ValueError`` or msgspec's errors."""
    return _pod(_POD.decode(raw), pod_claim(_REVIEWED.decode(raw), vocabularies))


def watched_pod(raw: bytes, vocabularies: Sequence[Vocabulary]) -> SchedulingPod:
    """Read any pod; what it asks for only where a scheduler already makes room for it."""
    found = _POD.decode(raw)
    if found.spec.node_name or not found.status.nominated_node_name:
        return _pod(found, None)
    pod = _REVIEWED.decode(raw)
    nominee = _pod(found, pod_claim(pod, vocabularies))
    hint = (pod.metadata.annotations or {}).get(HINT_KEY)
    return replace(nominee, hinted=hint == nominee.nominated)


def pod_claim(
    pod: pod_schema.Pod, vocabularies: Sequence[Vocabulary]
) -> PodClaim | tuple[Finding, ...] | None:
    """Return what a pod asks for; a mode that was the best at CREATE may be revised."""
    present = pod.metadata.annotations or {}
    request = parse_request(
        containers=pod.spec.containers,
        init_containers=pod.spec.init_containers or (),
        annotations=present,
        vocabularies=vocabularies,
    )
    if request is None or isinstance(request, tuple):
        return request
    admitted = admitted_request(present, request, vocabularies)
    return PodClaim(uid=pod.metadata.uid or "", request=admitted.request, mode=admitted.mode)


def _pod(pod: _Pod, wanted: PodClaim | tuple[Finding, ...] | None) -> SchedulingPod:
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    return SchedulingPod(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        priority=spec.priority or 0,
        created=metadata.creation_timestamp or "",
        node=spec.node_name,
        nominated=status.nominated_node_name,
        deleting=metadata.deletion_timestamp is not None,
        deadline=_time(metadata.deletion_timestamp),
        over=status.phase in _OVER,
        claim=wanted,
    )


def _time(text: str | None) -> datetime | None:
    """Read a time; one beyond the year 9999, as the longest of graces ends, never comes."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else None
