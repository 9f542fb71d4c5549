"""Parts of policies: their common fields, and conditions that several of them share."""

from allocator.catalog.conditions import text
from manifests.generator.names import (
    DOMAIN,
    NODE_CLAIM,
    Json,
)


def policy(name: str, spec: Json) -> Json:
    """Return the policy *name*, which refuses a request where its evaluation fails."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": f"{name}.{DOMAIN}"},
        "spec": {"failurePolicy": "Fail", **spec},
    }


def binding(name: str, actions: list[str]) -> Json:
    """Return the binding of the policy *name*; *actions* are taken on a failed validation."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": f"{name}.{DOMAIN}"},
        "spec": {"policyName": f"{name}.{DOMAIN}", "validationActions": actions},
    }


def rule(operation: str, *resources: str, group: str = "") -> Json:
    """Return the rule for an *operation* on *resources* of the core or of our *group*."""
    return {
        "apiGroups": [group],
        "apiVersions": ["v1alpha1" if group else "v1"],
        "operations": [operation],
        "resources": list(resources),
    }


def variable(name: str, expression: str) -> Json:
    """Return the variable *name* of a policy."""
    return {"name": name, "expression": expression}


def annotations_of(which: str) -> str:
    """Return the annotations of ``object`` or ``oldObject``, which may be absent."""
    absent = "oldObject == null || " if which == "oldObject" else ""
    return f"{absent}!has({which}.metadata.annotations) ? {{}} : {which}.metadata.annotations"


def runs_on(node: str) -> str:
    """Return the condition that the caller's token belongs to a pod on *node*."""
    claim = text(NODE_CLAIM)
    return (
        f"has(request.userInfo.extra) && {claim} in request.userInfo.extra && "
        f"{node} in request.userInfo.extra[{claim}]"
    )


def metadata() -> list[Json]:
    """Return variables for labels and annotations before and after the request."""
    return [
        variable("labelsBefore", _map("oldObject", "labels")),
        variable("labelsAfter", _map("object", "labels")),
        variable("before", _map("oldObject", "annotations")),
        variable("after", _map("object", "annotations")),
    ]


def _map(which: str, key: str) -> str:
    return f"has({which}.metadata.{key}) ? dyn({which}.metadata.{key}) : {{}}"


def same_field(part: str, key: str) -> str:
    """Return the condition that a field does not change, be it present or absent."""
    path = f"{part}.{key}" if part else key
    return equal(f"object.{path}", f"oldObject.{path}")


def equal(new: str, old: str) -> str:
    """Return the condition that two fields are equal, or both absent."""
    return f"has({new}) == has({old}) && (!has({new}) || {new} == {old})"


def only_keys(pair: tuple[str, str], condition: str) -> str:
    """Return the condition that two maps differ only in keys ``k`` that meet *condition*."""
    before, after = (f"variables.{name}" for name in pair)
    return (
        f"{before}.all(k, {condition} || k in {after} && {after}[k] == {before}[k]) &&\n"
        f"{after}.all(k, {condition} || k in {before})"
    )
