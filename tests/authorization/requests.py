"""Requests as the API server hands them to its authorizer and to policies."""

import copy
from dataclasses import dataclass
from typing import Any, Final

from manifests.generator.names import DOMAIN, Json
from tests.authorization.policies import Review
from tests.authorization.rbac import Attributes, groups_of
from tests.authorization.rows import Row, Subject
from tests.authorization.world import NAMESPACES, OBJECTS

# The group of each resource that rows name; all else is of the core.
GROUPS: Final = {
    "gpunodes": DOMAIN,
    "events": "events.k8s.io",
    "podgroups": "scheduling.volcano.sh",
    "leases": "coordination.k8s.io",
    "clusterroles": "rbac.authorization.k8s.io",
    "clusterrolebindings": "rbac.authorization.k8s.io",
    "rolebindings": "rbac.authorization.k8s.io",
    "mutatingwebhookconfigurations": "admissionregistration.k8s.io",
    "validatingwebhookconfigurations": "admissionregistration.k8s.io",
    "validatingadmissionpolicies": "admissionregistration.k8s.io",
    "validatingadmissionpolicybindings": "admissionregistration.k8s.io",
    "mutatingadmissionpolicies": "admissionregistration.k8s.io",
    "mutatingadmissionpolicybindings": "admissionregistration.k8s.io",
    "customresourcedefinitions": "apiextensions.k8s.io",
    "daemonsets": "apps",
}
_OPERATIONS: Final = {"create": "CREATE", "patch": "UPDATE", "delete": "DELETE"}
# A field that is left out of the encoding of an object when there is nothing in it.
_OMITTED: Final = ("annotations", "labels", "finalizers", "ownerReferences", "taints", "capacity")


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about, as rows write it: ``pods/status team/bound``."""

    resource: str
    subresource: str
    namespace: str
    name: str

    @classmethod
    def of(cls, text: str) -> "Target":
        """Read the text of a row; without a name it is about all of a namespace or cluster."""
        resource, _, place = text.partition(" ")
        resource, _, subresource = resource.partition("/")
        namespace, slash, name = place.partition("/")
        return cls(resource, subresource, *((namespace, name) if slash else ("", namespace)))

    @property
    def group(self) -> str:
        """The API group of the resource."""
        return GROUPS.get(self.resource, "")

    @property
    def version(self) -> str:
        """The version of that group that everybody uses."""
        return {DOMAIN: "v1alpha1", GROUPS["podgroups"]: "v1beta1"}.get(self.group, "v1")

    @property
    def key(self) -> str:
        """The object's place in the world."""
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.resource} {name}"


def attributes(row: Row) -> Attributes:
    """Return what the authorizer is asked.

    A POST names no object in its path; an apply that creates one does.
    """
    target = Target.of(row.what)
    posted = row.verb == "create" and row.change is not None
    subresource = f"/{target.subresource}" if target.subresource else ""
    return Attributes(
        user=row.who.user,
        verb=row.verb,
        group=target.group,
        resource=target.resource + subresource,
        namespace=target.namespace,
        name="" if posted and not target.subresource else target.name,
    )


def review(row: Row) -> Review:
    """Return what policies are asked about a request that changes something."""
    target = Target.of(row.what)
    old = None if row.verb == "create" else OBJECTS[target.key]
    new = None if row.verb == "delete" else row.change
    if old is not None and new is not None:
        new = prepared(target, old, merged(old, new))
    return Review(
        request=_request(row.who, _OPERATIONS[row.verb], target),
        object=_encoded(new),
        old=_encoded(old),
        namespace=NAMESPACES[target.namespace] if target.namespace else None,
    )


def _request(who: Subject, operation: str, target: Target) -> Json:
    subresource = {"subResource": target.subresource} if target.subresource else {}
    extra = {key: [value] for key, value in who.extra.items()}
    return {
        "operation": operation,
        "resource": {
            "group": target.group,
            "version": target.version,
            "resource": target.resource,
        },
        "name": target.name,
        "userInfo": {
            "username": who.user,
            "groups": list(groups_of(who.user)),
            **({"extra": extra} if extra else {}),
        },
        **subresource,
        **({"namespace": target.namespace} if target.namespace else {}),
    }


def prepared(target: Target, old: Json, new: Json) -> Json:
    """Return what the API server makes of *new* before policies see it.

    A resource and its subresources write different fields; it puts back what a request may not.
    """
    match target.resource, target.subresource:
        case ("gpunodes", "status"):
            return _with(old, new, "status")
        case ("pods", "status"):
            owners = old["metadata"].get("ownerReferences", [])
            kept = _with(new, old, "spec")
            return kept | {"metadata": new["metadata"] | {"ownerReferences": owners}}
        case ("nodes", "status"):
            return _with(new, old, "spec")
        case ("pods", "ephemeralcontainers"):
            return old | {"spec": _with(old["spec"], new["spec"], "ephemeralContainers")}
        case (_, ""):
            return _with(new, old, "status")
        case _:
            return old


def merged(old: Any, change: Any) -> Any:  # noqa: ANN401 - any JSON, as the standard has it
    """Apply a JSON merge patch (RFC 7396)."""
    if not isinstance(change, dict):
        return change
    found = dict(old) if isinstance(old, dict) else {}
    for key, value in change.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


def _with(one: Json, other: Json, key: str) -> Json:
    """Return *one* with a field of the *other*'s, which may be absent there."""
    found = {name: value for name, value in one.items() if name != key}
    return found | ({key: other[key]} if key in other else {})


def _encoded(found: Json | None) -> Json | None:
    """Return an object as the API server encodes it, without fields that are empty."""
    if found is None:
        return None
    found = copy.deepcopy(found)
    for part in ("metadata", "spec", "status"):
        for key in _OMITTED:
            if part in found and not found[part].get(key, True):
                del found[part][key]
    return found
