"""Checks for fields that would lift a limit or forge a grant."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from allocator.catalog.hami_keys import POD_KEYS
from allocator.catalog.injection import Column
from allocator.catalog.keys import (
    ADMISSION_KEYS,
    ALLOCATION_KEYS,
    ASSIGNMENT_KEY,
    CDI_PREFIX,
    HIGH_ALLOWED,
    HIGH_KEY,
    HINT_KEY,
    LIBRARY_KEY,
    LIBRARY_OFF,
    PRIORITY_KEY,
    SERVED_BY_KEY,
    USER_KEYS,
)
from allocator.catalog.reserved_paths import (
    HARMLESS_HOST_PATHS,
    RESERVED_HOST_PATHS,
    RESERVED_PATHS,
    overlaps,
)
from allocator.catalog.vocabularies import OWN
from allocator.model.decision import Finding, Reason
from allocator.model.request import PodRequest, Priority
from allocator.model.untrusted import escaped
from allocator.model.value import Value
from allocator.request.annotation_keys import MOST_KEYS, closest_key
from allocator.request.containers import MOST_FINDINGS
from allocator.request.pod_fields import EnvVar
from allocator.request.wording import field_of, place_of, short_name, vocabulary_of
from webhook.admission.containers import ContainerRef, normal
from webhook.admission.injection import (
    OWN_VOLUMES,
    RESERVED,
    library_volumes,
    reads_own_annotation,
    same_mount,
    same_variable,
    same_volume,
)
from webhook.review.json_patch import Entry
from webhook.review.pod_schema import Pod

_KEPT_KEYS: Final = USER_KEYS | ADMISSION_KEYS
_USER_KEYS: Final = tuple(sorted(USER_KEYS))
# Close to none that a person may write, whatever they look like.
_ALLOCATION_KEYS: Final = ALLOCATION_KEYS | POD_KEYS
_WRITTEN_KEYS: Final = _ALLOCATION_KEYS | {ASSIGNMENT_KEY, SERVED_BY_KEY, HINT_KEY}
_RESERVED_KEYS: Final = (CDI_PREFIX, OWN)
_HIDDEN: Final = frozenset({"", "void", "none"})
_DEVICE_LISTS: Final = frozenset(
    {"/var/run/nvidia-container-devices", "/run/nvidia-container-devices"}
)


def annotations(pod: Pod) -> Iterator[Finding]:
    """Find annotations that only others may write, at most ``MOST_FINDINGS``."""
    return islice(_reserved_annotations(pod), MOST_FINDINGS)


def _reserved_annotations(pod: Pod) -> Iterator[Finding]:
    """Find annotations that only a scheduler, a device plugin or vgpu-admission may write."""
    compared = 0
    for key in pod.metadata.annotations or ():
        kept = key in _KEPT_KEYS or not key.startswith(_RESERVED_KEYS)
        if key in _ALLOCATION_KEYS or not kept:
            compared += 1
            unknown = key not in _WRITTEN_KEYS and compared <= MOST_KEYS
            meant = closest_key(key, _USER_KEYS) if unknown else None
            why = "it is written when the pod is bound" if meant is None else "nobody may write it"
            yield Finding(
                reason=Reason.RESERVED_ANNOTATION,
                place="pod",
                field=f'metadata.annotations["{escaped(key)}"]',
                what=f"annotation {escaped(key)} is reserved: {why}",
                remedy="remove it" if meant is None else f"use {meant}, or remove it",
            )


def placement(pod: Pod) -> Iterator[Finding]:
    """Find a ``nodeName`` in the manifest, which bypasses schedulers and the ledger."""
    if pod.spec.node_name:
        yield Finding(
            reason=Reason.NODE_NAME,
            place="pod",
            field="spec.nodeName",
            what=f"nodeName {escaped(pod.spec.node_name)} bypasses the scheduler",
            remedy="use nodeSelector kubernetes.io/hostname instead",
        )


def priority(request: PodRequest, *, allowed: bool) -> Iterator[Finding]:
    """Find high task priority in a namespace that does not allow it."""
    if allowed:
        return
    remedy = (
        f"remove it, or ask an administrator to annotate the namespace with "
        f"{HIGH_KEY}={HIGH_ALLOWED}"
    )
    for container_request in request.containers:
        if container_request.priority is Priority.HIGH:
            resource = vocabulary_of(request).priority or ""
            yield Finding(
                reason=Reason.PRIORITY,
                place=place_of(container_request),
                field=field_of(container_request, resource),
                what=f"{short_name(resource)} 0 slows down other pods on the GPU, which the "
                "namespace does not allow",
                remedy=remedy,
            )
    if request.priority is Priority.HIGH:
        yield Finding(
            reason=Reason.PRIORITY,
            place="pod",
            field=f'metadata.annotations["{PRIORITY_KEY}"]',
            what=f"{PRIORITY_KEY} high slows down other pods on the GPU, which the namespace "
            "does not allow",
            remedy=remedy,
        )


def library(request: PodRequest, column: Column) -> Iterator[Finding]:
    """Find the wish for no library where another device plugin brings one to every container."""
    if request.library_off and column is Column.UPSTREAM:
        yield Finding(
            reason=Reason.CONFLICTING,
            place="pod",
            field=f'metadata.annotations["{LIBRARY_KEY}"]',
            what=f"{LIBRARY_KEY} {LIBRARY_OFF} needs our agent on the nodes, but another device "
            "plugin serves this cluster",
            remedy=f"remove {LIBRARY_KEY}",
        )


def volumes(pod: Pod, host_root: str) -> Iterator[Finding]:
    """Find volumes that must not be there, at most ``MOST_FINDINGS``."""
    return islice(_exposing_volumes(pod, host_root), MOST_FINDINGS)


def _exposing_volumes(pod: Pod, host_root: str) -> Iterator[Finding]:
    """Find volumes that expose devices or the node's *host_root*, or have a reserved name."""
    entries = {entry["name"]: entry for entry in library_volumes(host_root)}
    for number, volume in enumerate(pod.spec.volumes or ()):
        own = entries.get(volume.name)
        if own is None and volume.host_path is None:
            continue  # nearly always
        if own is not None:
            what = "" if same_volume(volume, own) else "has a name reserved for vGPU volumes"
        else:
            path = normal(volume.host_path.path) if volume.host_path is not None else ""
            what = (
                f"exposes {escaped(path)} of the node" if path and _reaches(path, host_root) else ""
            )
        if what:
            yield Finding(
                reason=Reason.RESERVED_MOUNT,
                place="pod",
                field=f"spec.volumes[{number}]",
                what=f'volume "{escaped(volume.name)}" {what}',
                remedy="remove the volume or the vGPU request",
            )


def _reaches(path: str, host_root: str) -> bool:
    if any(path == fine or path.startswith(f"{fine}/") for fine in HARMLESS_HOST_PATHS):
        return False
    return any(overlaps(path, reserved) for reserved in (*RESERVED_HOST_PATHS, host_root))


class CheckedContainer(Value, frozen=True):
    """A container under inspection, with what we would write into it.

    ``key`` is its own annotation prefix. ``shares_gpus`` says whether its pod asks for vGPU, so
    that the names of our volumes are reserved in it.
    """

    ref: ContainerRef
    column: Column
    key: str = ""
    env: tuple[Entry, ...] = ()
    mounts: tuple[Entry, ...] = ()
    shares_gpus: bool = False


def container(subject: CheckedContainer) -> list[Finding]:
    """Find settings that would lift a limit in one container, at most ``MOST_FINDINGS`` a kind."""
    findings: list[Finding] = []
    if subject.ref.reserved:
        findings += islice(_variables(subject), MOST_FINDINGS)
    if subject.ref.near:
        findings += islice(_mounts(subject), MOST_FINDINGS)
    return findings


def _variables(subject: CheckedContainer) -> Iterator[Finding]:
    """Find reserved variables whose value is not the one that we would write."""
    ref = subject.ref
    for number, present in enumerate(ref.container.env or ()):
        if present.name not in RESERVED or _variable_fits(present, subject):
            continue
        yield Finding(
            reason=Reason.RESERVED_VARIABLE,
            place=ref.place,
            field=f"{ref.field}.env[{number}]",
            what=f"variable {present.name} is reserved for vGPU limits",
            remedy="remove it",
        )


def _variable_fits(present: EnvVar, subject: CheckedContainer) -> bool:
    variable, _ = RESERVED[present.name]
    if subject.column is Column.VOID and present.name == "NVIDIA_VISIBLE_DEVICES":
        return present.value_from is None and (present.value or "") in _HIDDEN
    entry = next((entry for entry in subject.env if entry["name"] == present.name), None)
    if entry is None and subject.column in variable.tolerated:
        return True
    if entry is not None and same_variable(present, entry):
        return True
    return bool(subject.key) and reads_own_annotation(present, subject.key)


def _mounts(subject: CheckedContainer) -> Iterator[Finding]:
    """Find mounts that hide a path which carries the interception library, or show our files.

    Of the volumes of vgpu-admission, whoever mounts the whole has the regions of all tenants and
    the library of the node.
    """
    ref = subject.ref
    for number, present in enumerate(ref.container.volume_mounts or ()):
        path = normal(present.mount_path)
        hit = _reserved_path(path, subject.column)
        ours = subject.shares_gpus and present.name in OWN_VOLUMES
        if not (hit or ours) or any(same_mount(present, entry) for entry in subject.mounts):
            continue
        yield Finding(
            reason=Reason.RESERVED_MOUNT,
            place=ref.place,
            field=f"{ref.field}.volumeMounts[{number}]",
            what=f"mounts the volume {present.name} at {escaped(path)}, which is not how "
            "vgpu-admission mounts it"
            if ours
            else f"mount at {escaped(path)} would hide {hit}, which carries the vGPU limits",
            remedy="remove the mount" if ours else "mount it elsewhere",
        )


def _reserved_path(path: str, column: Column) -> str | None:
    for reserved in RESERVED_PATHS:
        if column is Column.VOID and reserved.path not in _DEVICE_LISTS:
            continue
        if reserved.only not in {None, column}:
            continue
        if path == reserved.path or path.startswith(reserved.path + "/"):
            return reserved.path
        if reserved.parents and reserved.path.startswith(path.rstrip("/") + "/"):
            return reserved.path
    return None


def privileged_findings(ref: ContainerRef) -> Iterator[Finding]:
    """Find a container that sees every device whatever it was given."""
    security = ref.container.security_context
    if security is not None and security.privileged:
        yield Finding(
            reason=Reason.PRIVILEGED,
            place=ref.place,
            field=f"{ref.field}.securityContext.privileged",
            what="is privileged: it sees every GPU, and no limit holds",
            remedy="remove privileged or the vGPU request",
        )
