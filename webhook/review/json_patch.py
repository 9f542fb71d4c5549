"""The JSON Patch operations that carry out an intended change of a pod.

Operations are built from the intent, never by comparing two documents, and only add what is
missing: a patch that decodes but does not apply fails the pod whatever the failure policy,
so parents are created from what was received and no ``test`` is ever emitted.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
import orjson

from allocator.catalog.keys import ASKED_KEY
from allocator.model.value import Value
from webhook.review.pod_schema import Container, Pod

ANNOTATIONS: Final = "/metadata/annotations"
Operation = dict[str, Any]
Entry = Mapping[str, Any]


class ContainerIntent(Value, frozen=True):
    """What one container gains: appended variables and mounts, set and removed resources.

    ``kind`` is the field of the pod's spec that holds the container, at ``index``.
    """

    kind: str
    index: int
    env: tuple[Entry, ...] = ()
    mounts: tuple[Entry, ...] = ()
    resources: Mapping[str, str] = msgspec.field(default_factory=dict)
    resources_removed: tuple[str, ...] = ()


class Intent(Value, frozen=True):
    """The whole intended change of a pod; ``scheduler`` is the one that is to take it."""

    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations_removed: tuple[str, ...] = ()
    volumes: tuple[Entry, ...] = ()
    containers: tuple[ContainerIntent, ...] = ()
    scheduler: str | None = None


@lru_cache(maxsize=256)  # of keys and resources that we write: few, and none is a tenant's
def pointer_token(text: str) -> str:
    """Escape one reference token (RFC 6901): ``volcano.sh/x`` becomes ``volcano.sh~1x``."""
    return text.replace("~", "~0").replace("/", "~1")


ASKED_PATH: Final = f"{ANNOTATIONS}/{pointer_token(ASKED_KEY)}"


def operations(pod: Pod, intent: Intent) -> list[Operation]:
    """Return the operations that turn the received *pod* into the intended one."""
    ops = _annotations(pod, intent)
    if intent.volumes:
        ops += _append("/spec/volumes", pod.spec.volumes, intent.volumes)
    if intent.scheduler is not None:
        ops.append({"op": "add", "path": "/spec/schedulerName", "value": intent.scheduler})
    for change in intent.containers:
        received = _container_at(pod, change)
        at = f"/spec/{change.kind}/{change.index}"
        if change.env:
            ops += _append(f"{at}/env", received.env, change.env)
        if change.mounts:
            ops += _append(f"{at}/volumeMounts", received.volume_mounts, change.mounts)
        if change.resources or change.resources_removed:
            ops += _resources(f"{at}/resources", received, change)
    return ops


class EncodedPatch(Value, frozen=True):
    """Operations as JSON, so that an answer and its record need not encode them twice.

    ``annotations`` are those at the start that change annotations, and ``rest`` the others. The
    other fields are their JSON in the same order, without brackets, and empty where there is none:
    ``asked`` is the last on annotations if that adds what was asked, which no record repeats,
    ``first`` are those before it, and ``last`` is the rest.
    """

    annotations: list[Operation]
    rest: list[Operation]
    first: bytes
    asked: bytes
    last: bytes

    @property
    def size(self) -> int:
        """Return about the bytes of the whole patch."""
        return len(self.first) + len(self.asked) + len(self.last)

    @property
    def text(self) -> bytes:
        """Return the whole patch."""
        first, asked, last = self.first, self.asked, self.last
        if first and asked and last:  # nearly always
            return b"".join((b"[", first, b",", asked, b",", last, b"]"))
        return joined_array(first, asked, last)


def encoded(ops: list[Operation]) -> EncodedPatch:
    """Return *ops* as JSON."""
    most = 0
    for op in ops:
        if not op["path"].startswith(ANNOTATIONS):
            break
        most += 1
    annotations, rest = ops[:most], ops[most:]
    first, asked = annotations, b""
    if annotations:
        last = annotations[-1]
        if last["path"] == ASKED_PATH and last["op"] == "add":
            first, asked = annotations[:-1], orjson.dumps(last)
    return EncodedPatch(annotations, rest, _json_of(first), asked, _json_of(rest))


def _json_of(ops: list[Operation]) -> bytes:
    """Return *ops* as JSON without brackets."""
    return orjson.dumps(ops)[1:-1] if ops else b""


def joined_array(*parts: bytes) -> bytes:
    """Return the JSON array of *parts*, which have no brackets; empty ones are left out."""
    return b"[%b]" % b",".join([part for part in parts if part])


def _container_at(pod: Pod, change: ContainerIntent) -> Container:
    spec = pod.spec
    match change.kind:
        case "initContainers":
            return (spec.init_containers or ())[change.index]
        case "ephemeralContainers":
            return (spec.ephemeral_containers or ())[change.index]
        case _:
            return spec.containers[change.index]


def _annotations(pod: Pod, intent: Intent) -> list[Operation]:
    present, wanted = pod.metadata.annotations, intent.annotations
    at = ANNOTATIONS
    if present is None:
        return [{"op": "add", "path": at, "value": dict(wanted)}] if wanted else []
    removed = [key for key in intent.annotations_removed if key in present and key not in wanted]
    changed = [(key, value) for key, value in wanted.items() if present.get(key) != value]
    return [
        *[{"op": "remove", "path": f"{at}/{pointer_token(key)}"} for key in removed],
        *[{"op": "add", "path": f"{at}/{pointer_token(k)}", "value": v} for k, v in changed],
    ]


def _append(
    path: str, present: tuple[object, ...] | None, entries: tuple[Entry, ...]
) -> list[Operation]:
    """Append *entries*, creating the list where it is absent or null."""
    if present is None:
        return [{"op": "add", "path": path, "value": entries}]
    end = f"{path}/-"
    return [{"op": "add", "path": end, "value": entry} for entry in entries]


def _resources(at: str, received: Container, change: ContainerIntent) -> Iterator[Operation]:
    """Change limits, and requests with them wherever the API server already defaulted them.

    A limit that differs from its request is rejected for extended resources; a request that
    is absent is defaulted again after the patch.
    """
    resources = received.resources
    limits = resources.limits if resources is not None else None
    requests = resources.requests if resources is not None else None
    if resources is None:
        yield {"op": "add", "path": at, "value": {"limits": dict(change.resources)}}
        return
    if limits is None:
        yield {"op": "add", "path": f"{at}/limits", "value": dict(change.resources)}
    else:
        yield from _resource_operations(f"{at}/limits", limits, change)
    if requests is not None:
        yield from _resource_operations(f"{at}/requests", requests, change)


def _resource_operations(
    at: str, present: Mapping[str, str | int], change: ContainerIntent
) -> Iterator[Operation]:
    for name in change.resources_removed:
        if name in present and name not in change.resources:
            yield {"op": "remove", "path": f"{at}/{pointer_token(name)}"}
    for name, amount in change.resources.items():
        if present.get(name) != amount:
            yield {"op": "add", "path": f"{at}/{pointer_token(name)}", "value": amount}
