"""The patched Binding: the annotations that carry the assignment to the pod.

The API server writes them together with the node name. They serve people, other tools and the
downward API; the authority is the GPUNode (docs/design.md, commit rule 6).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import orjson

from allocator.catalog import hami_keys as hami
from allocator.catalog.injection import (
    GPU_INDEX,
    GPU_UNITS,
    MPS_MEMORY,
    PRELOAD_LIBRARY,
    PRELOAD_NOTHING,
)
from allocator.catalog.keys import (
    ALLOCATION_KEYS,
    ASSIGNMENT_KEY,
    CDI_PREFIX,
    MODE_KEY,
    MODE_SOURCE_KEY,
    SERVED_BY_KEY,
)
from allocator.catalog.vocabularies import OWN, Vocabulary
from allocator.config.settings import NodeAgent
from allocator.families.family import BoundPod
from allocator.families.registry import family_of
from allocator.hami.bound_pod import hami_annotations
from allocator.ledger.commit import wire_of
from allocator.model.allocation import Assignment, Entry, Grant
from allocator.model.request import Mode
from allocator.model.units import NO_MEMORY
from allocator.request.annotation_keys import request_keys
from webhook.admission.containers import container_refs
from webhook.admission.rewrite import keys_of
from webhook.binding.decide import BindInputs, BindRequest
from webhook.review.binding_schema import Binding
from webhook.review.json_patch import Intent, Operation, pointer_token
from webhook.review.json_patch import operations as annotating
from webhook.review.pod_schema import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What was committed for one bind."""

    bind: BindRequest
    assignment: Assignment  # what the pod got
    entry: Entry  # the same, as the ledger records it
    inputs: BindInputs  # what was decided on
    served_by: NodeAgent  # whose agent or plugin serves the node
    told_to_hami: bool = False  # HAMi's scheduler counts the pods that our agent serves


def strip_reserved(binding: Binding, vocabularies: Iterable[Vocabulary]) -> list[Operation]:
    """Return the patch that removes reserved annotations; the pod asks for no vGPU."""
    return annotating(
        _as_pod(binding), Intent(annotations_removed=_reserved_keys(binding, vocabularies))
    )


def upstream_patch(binding: Binding) -> list[Operation]:
    """Return what tells our policies that another plugin serves the pod.

    What its scheduler brought stays on the Binding; only names of ours are taken off.
    """
    brought = binding.metadata.annotations or ()
    forged = tuple(key for key in brought if key.startswith((OWN, CDI_PREFIX)))
    served = {SERVED_BY_KEY: str(NodeAgent.UPSTREAM)}
    return annotating(_as_pod(binding), Intent(annotations=served, annotations_removed=forged))


def committed_patch(commit: Commit, now: datetime) -> list[Operation]:
    """Return the patch by which the Binding carries *commit* and no other reserved annotation.

    The uid is a precondition: a pod recreated under the same name is not bound.
    """
    binding = commit.bind.bound.binding
    intent = Intent(
        annotations=annotations(commit, now),
        annotations_removed=_reserved_keys(binding, commit.inputs.vocabularies),
    )
    uid = {"op": "add", "path": "/metadata/uid", "value": commit.entry.uid}
    return [uid, *annotating(_as_pod(binding), intent), *_label_operations(commit)]


def _label_operations(commit: Commit) -> list[Operation]:
    """Return what adds HAMi's label, by which its monitor finds the pods of a node.

    API servers since 1.35 copy labels from a Binding to its pod. Earlier ones ignore them.
    """
    if not _is_told_to_hami(commit):
        return []
    node = commit.assignment.node
    if commit.bind.bound.binding.metadata.labels is None:
        return [{"op": "add", "path": "/metadata/labels", "value": {hami.NODE_KEY: node}}]
    path = f"/metadata/labels/{pointer_token(hami.NODE_KEY)}"
    return [{"op": "add", "path": path, "value": node}]


def _as_pod(binding: Binding) -> Pod:
    """Return what the patch of a pod's annotations goes by: a Binding has the same metadata."""
    return Pod(metadata=binding.metadata)


def _reserved_keys(binding: Binding, vocabularies: Iterable[Vocabulary]) -> tuple[str, ...]:
    """Return the reserved annotation keys on the Binding."""
    read = request_keys(tuple(vocabularies))
    return tuple(
        key
        for key in binding.metadata.annotations or ()
        if key in ALLOCATION_KEYS
        or key in hami.POD_KEYS
        or key in read
        or key.startswith((OWN, CDI_PREFIX))
    )


def annotations(commit: Commit, now: datetime) -> dict[str, str]:
    """Return all annotations of a bound pod: the plugin's, ours, and those its env reads."""
    bind, mode = commit.bind, commit.assignment.mode
    held = wire_of(commit.entry)["containers"]
    values = {
        **_plugin_annotations(commit, now),
        bind.vocabulary.mode_key or MODE_KEY: str(mode),
        MODE_SOURCE_KEY: str(bind.source),
        SERVED_BY_KEY: str(commit.served_by),
        ASSIGNMENT_KEY: orjson.dumps(held).decode(),
    }
    if MODE_KEY in (bind.live.pod.metadata.annotations or {}):
        values[MODE_KEY] = str(mode)
    if commit.served_by is NodeAgent.OURS:
        values.update(_container_annotations(commit))
    return values


def _plugin_annotations(commit: Commit, now: datetime) -> Mapping[str, str]:
    """Return what the plugin of the node and other schedulers read."""
    bound, family = _bound_pod(commit, now), family_of(commit.bind.wanted.request)
    by_hami = commit.served_by is NodeAgent.HAMI
    values = {} if by_hami else family.binding_annotations(bound)
    return {**values, **hami_annotations(bound)} if _is_told_to_hami(commit) else values


def _is_told_to_hami(commit: Commit) -> bool:
    return commit.told_to_hami or commit.served_by is NodeAgent.HAMI


def _bound_pod(commit: Commit, now: datetime) -> BoundPod:
    spec = commit.bind.live.pod.spec
    return BoundPod(
        assignment=commit.assignment,
        request=commit.bind.wanted.request,
        node=commit.inputs.node,
        containers=tuple(container.name for container in spec.containers),
        init_containers=tuple(container.name for container in spec.init_containers or ()),
        vocabularies=commit.inputs.vocabularies,
        ours=commit.served_by is NodeAgent.OURS,
        now=now,
    )


def _container_annotations(commit: Commit) -> Iterator[tuple[str, str]]:
    """Yield the annotations that injected variables read, under the key each container reads.

    A MIG instance has no UUID before the agent made it, so ``visible`` is the agent's to write:
    until then the container sees nothing.
    """
    asking = {
        container_request.name: container_request
        for container_request in commit.bind.wanted.request.containers
    }
    keys = keys_of(
        container
        for container in container_refs(commit.bind.live.pod)
        if container.container.name in asking
    )
    for held in commit.assignment.containers:
        key, grants = f"{OWN}{keys[held.name]}", held.grants
        if commit.assignment.mode is not Mode.MIG:
            yield f"{key}.visible", ",".join(grant.gpu for grant in grants)
        for k, grant in enumerate(grants):
            yield f"{key}.memory-{k}", f"{grant.memory}m"
        if commit.assignment.mode is Mode.MPS and grants:
            yield f"{key}.{MPS_MEMORY}", f"0={grants[0].memory}M"
        yield f"{key}.cores", str(max((grant.cores for grant in grants), default=0))
        yield f"{key}.preload", _preload(commit.assignment.mode)
        if commit.bind.vocabulary.share_variables and asking[held.name].memory is not None:
            indices, units = _gpu_figures(commit, grants)
            yield f"{key}.{GPU_INDEX}", indices
            yield f"{key}.{GPU_UNITS}", units


def _gpu_figures(commit: Commit, grants: Sequence[Grant]) -> tuple[str, str]:
    """Return the indices of the GPUs of *grants*, and the units of memory that the least has."""
    held = {grant.gpu for grant in grants}
    gpus = [gpu for gpu in commit.inputs.node.gpus if gpu.uuid in held]
    least = min((gpu.memory for gpu in gpus), default=NO_MEMORY)
    return ",".join(str(gpu.index) for gpu in gpus), str(commit.bind.vocabulary.units(least))


def _preload(mode: Mode) -> str:
    return PRELOAD_LIBRARY if mode is Mode.HAMI_CORE else PRELOAD_NOTHING
