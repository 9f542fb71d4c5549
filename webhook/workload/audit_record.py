"""The record of a workload: who created or changed an object with a pod template."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from allocator.audit.record_source import RecordStamp, stamp_fields
from allocator.model.untrusted import LONGEST_NAME, all_shown, inert
from webhook.review.admission_review import UNREADABLE
from webhook.review.workload_schema import WorkloadRequest

MOST_OWNERS: Final = 4
MOST_GROUPS: Final = 16
LARGEST: Final = 512 * 1024  # bytes of an object whose template is compared


class _Owner(msgspec.Struct, frozen=True, gc=False):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str = ""
    generate_name: str = ""
    uid: str = ""
    owner_references: tuple[_Owner, ...] | None = None


class WorkloadObject(msgspec.Struct, frozen=True, gc=False):
    """What is read of an object that creates pods."""

    kind: str = ""
    metadata: _Metadata = _Metadata()

    @property
    def owners(self) -> Sequence[_Owner]:
        """Return its owners, the controller first."""
        owners = self.metadata.owner_references or ()
        return sorted(owners, key=lambda owner: not owner.controller)

    @property
    def is_controlled(self) -> bool:
        """Say whether a controller made it, so that nobody reads what is said of it."""
        return any(owner.controller for owner in self.metadata.owner_references or ())


_NONE: Final = msgspec.Raw(b"null")


class _PodTemplate(msgspec.Struct, frozen=True, gc=False):
    template: msgspec.Raw = _NONE


class _JobTemplate(msgspec.Struct, frozen=True, gc=False):
    spec: _PodTemplate = _PodTemplate()


class _Spec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    template: msgspec.Raw = _NONE
    job_template: _JobTemplate | None = None
    tasks: tuple[_PodTemplate, ...] | None = None


class _Templates(msgspec.Struct, frozen=True, gc=False):
    spec: _Spec = _Spec()


_OBJECT: Final = msgspec.json.Decoder(WorkloadObject)
_TEMPLATES: Final = msgspec.json.Decoder(_Templates)


def workload_object(request: WorkloadRequest) -> WorkloadObject | None:
    """Return the object under review, ``None`` where it is none that has a name."""
    try:
        return _OBJECT.decode(request.object)
    except UNREADABLE:
        return None


def record(
    request: WorkloadRequest,
    found: WorkloadObject,
    *,
    stamp: RecordStamp,
    warnings: Sequence[str],
) -> dict[str, Any]:
    """Return the record of a review of *found*, whose author was told *warnings*."""
    metadata, user = found.metadata, request.user_info
    name = metadata.name or metadata.generate_name
    names = (request.operation, request.namespace, user.username, found.kind, name, metadata.uid)
    operation, namespace, username, kind, shown, uid = all_shown(names, LONGEST_NAME)
    return {
        **stamp_fields("workload", stamp),
        "operation": operation,
        "namespace": namespace,
        "object": {"kind": kind, "name": shown, "uid": uid},
        "owners": list(map(_owner_fields, found.owners[:MOST_OWNERS])),
        "template": template_digest(bytes(request.object)),
        "user": username,
        "groups": all_shown((user.groups or ())[:MOST_GROUPS], LONGEST_NAME),
        "warnings": list(map(inert, warnings)),
    }


def _owner_fields(owner: _Owner) -> dict[str, str]:
    kind, name, uid = all_shown((owner.kind, owner.name, owner.uid), LONGEST_NAME)
    return {"kind": kind, "name": name, "uid": uid}


def template_digest(raw: bytes) -> str:
    """Return 32 hexadecimal digits that name the pod templates of the object *raw*.

    They are the same for equal templates however these are written; empty where there is none, or
    the object is too large to compare.
    """
    if len(raw) > LARGEST:
        return ""
    try:
        templates = [msgspec.json.decode(one) for one in _templates(_TEMPLATES.decode(raw).spec)]
        text = msgspec.json.encode(templates, order="sorted")
    except UNREADABLE:
        return ""
    return hashlib.blake2b(text, digest_size=16).hexdigest() if templates else ""


def _templates(spec: _Spec) -> Iterator[msgspec.Raw]:
    jobs = () if spec.job_template is None else (spec.job_template.spec,)
    for holder in (spec, *jobs, *(spec.tasks or ())):
        if holder.template != _NONE:
            yield holder.template
