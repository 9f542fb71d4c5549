"""Pods that the API server sends in protobuf: the fields of every pod, and a whole one as JSON."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
from google.protobuf.message import Message

from allocator.request.pod_fields import (
    WatchedContainer,
    WatchedMetadata,
    WatchedPod,
    WatchedResources,
    WatchedSpec,
    WatchedStatus,
    decode_watched,
)
from kube.errors import UnreadableError
from kube.proto import core_pb2 as core
from kube.proto.wire import is_protobuf, parse_envelope

_INLINED: Final = frozenset({"volumeSource", "ephemeralContainerCommon"})  # parts that JSON lacks
_OMITTED_IF_FALSE: Final = frozenset({"readOnly"})
_NO_TIME: Final = -62_135_596_800  # seconds of the year 1, which JSON writes as null
_WITHOUT_LIMITS: Final = WatchedContainer(WatchedResources())
_encode: Final = msgspec.json.Encoder().encode


def decode_pod(raw: bytes) -> WatchedPod:
    """Read a pod that the API server sent in JSON or protobuf; raises ``ValueError``."""
    if not is_protobuf(raw):
        return decode_watched(raw)
    pod = _pod(raw)
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    uid, annotations = metadata.uid, metadata.annotations
    if not uid:
        raise ValueError("a pod without uid")
    # In the order of the fields: names would cost a microsecond of each of a hundred thousand pods.
    return WatchedPod(
        WatchedMetadata(
            uid,
            metadata.namespace,
            metadata.name,
            _time_text(metadata.creationTimestamp.seconds),
            _time_text(metadata.deletionTimestamp.seconds)
            if metadata.HasField("deletionTimestamp")
            else None,
            {key: _text(annotations[key]) for key in annotations} if annotations else None,
        ),
        WatchedSpec(
            spec.nodeName,
            spec.priority if spec.HasField("priority") else None,
            _containers(spec.containers),
            _containers(spec.initContainers) or None,
        ),
        WatchedStatus(status.phase, status.nominatedNodeName),
    )


def pod_json(raw: bytes) -> bytes:
    """Return a pod in JSON: all that any of our schemas reads; raises ``ValueError``."""
    return _encode(_plain(_pod(raw))) if is_protobuf(raw) else raw


def _pod(raw: bytes) -> core.Pod:
    try:
        return parse_envelope(raw, core.PodEnvelope).raw
    except UnreadableError as error:
        raise ValueError(str(error)) from error


def _containers(containers: Iterable[core.Container]) -> tuple[WatchedContainer, ...]:
    found = []
    for container in containers:
        limits = container.resources.limits
        if limits:
            amounts = {name: _amount(limits[name].string) for name in limits}
            found.append(WatchedContainer(WatchedResources(amounts)))
        else:
            found.append(_WITHOUT_LIMITS)
    return tuple(found)


@lru_cache(maxsize=1024)
def _amount(text: str) -> msgspec.Raw:
    return msgspec.Raw(_encode(text))


def _text(value: str | bytes) -> str:
    """Return a text as JSON has it. What is no UTF-8 is read as bytes; any tenant may send it."""
    return value if isinstance(value, str) else value.decode(errors="replace")


@lru_cache(maxsize=4096)
def _time_text(seconds: int) -> str | None:
    """Write a time as JSON has it; one beyond the year 9999 as no time that can be read."""
    if seconds <= _NO_TIME:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "after the year 9999"


def _plain(message: Message) -> dict[str, Any]:
    """Return *message* as its JSON: without what Go leaves out there."""
    plain: dict[str, Any] = {}
    for field, value in message.ListFields():
        name = field.name
        if name in _INLINED:
            plain |= _plain(value)
        elif isinstance(value, Mapping):
            plain[name] = {key: _plain_value(item) for key, item in value.items()}
        elif field.is_repeated:
            plain[name] = [_plain_value(item) for item in value]
        elif value != "" and not (value is False and name in _OMITTED_IF_FALSE):
            plain[name] = _plain_value(value)
    return plain


def _plain_value(value: object) -> object:
    match value:
        case core.Quantity():
            return value.string
        case core.Time():
            return _time_text(value.seconds)
        case Message():
            return _plain(value)
        case bytes():
            return _text(value)
        case _:
            return value
