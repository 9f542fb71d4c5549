"""The policy on pods in namespaces without the label that ask for what only our agents offer.

Such a pod can only run on our nodes, and runs wrongly there: nobody limits it, and nobody counted
with it. Which resources those are the control plane notes on our webhook configuration, because a
condition sees no Nodes. Every API server follows that kind anyway; ConfigMaps as parameters would
make each keep all of the cluster's. Without it, before the first note and once we are uninstalled,
nothing is refused.
"""

from typing import Final

from allocator.catalog.conditions import containers_of, text
from allocator.catalog.keys import OPT_IN_LABEL, OPT_IN_VALUE, SOLE_KEY
from manifests.generator.names import (
    NAMESPACE,
    REGISTRATION,
    Json,
)
from manifests.generator.parts import binding, policy, rule, variable

POLICY: Final = "sole-capacity"
# The evaluator's time grows with the square of a list, so longer ones are refused unsearched.
MOST_LIMITS: Final = 1000
_MIRROR: Final = "kubernetes.io/config.mirror"


def sole_capacity() -> tuple[Json, Json]:
    """Return the policy and its binding.

    A static pod runs whether its mirror is refused or not, and would then be seen by nobody. A
    limit of 0, which the API server writes as ``0`` however it came, asks for nothing.
    """
    note = f"params.metadata.annotations[{text(SOLE_KEY)}]"
    noted = (
        "has(params.metadata.annotations) && "
        f"{text(SOLE_KEY)} in params.metadata.annotations && {note} != ''"
    )
    ours = "c.resources.limits[r] != '0' && variables.names.contains(',' + r + ',')"
    too_many = f"c.resources.limits.size() > {MOST_LIMITS}"
    remedy = f"use one with the label {OPT_IN_LABEL}={OPT_IN_VALUE}"
    where = (
        f"which only nodes of vgpu-admission have, in a namespace where it limits none; {remedy}"
    )
    spec = {
        "paramKind": {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
        },
        "matchConstraints": {"resourceRules": [rule("CREATE", "pods")]},
        "matchConditions": [
            {"name": "not-the-mirror-of-a-static-pod", "expression": f"!({_is_mirror()})"},
            {"name": "some-are-noted", "expression": noted},
        ],
        "variables": [
            variable("names", f"',' + {note} + ','"),
            variable("reviewed", _is_reviewed()),
            variable(
                "asking",
                f"({containers_of('object.spec')})\n"
                "  .filter(c, has(c.resources) && has(c.resources.limits) &&\n"
                f"    ({too_many} || c.resources.limits.exists(r, {ours})))",
            ),
            variable(
                "asked",
                f"variables.asking.map(c, {too_many} ? ['more resources than are searched'] :\n"
                f"  c.resources.limits.filter(r, {ours}))",
            ),
        ],
        "validations": [
            {
                "expression": "variables.reviewed || variables.asking.size() == 0",
                "message": f"the pod asks for a resource, {where}",
                "messageExpression": (
                    "'container ' + variables.asking[0].name + ' asks for ' + "
                    f"variables.asked[0][0] + {text(f', {where}')}"
                ),
            }
        ],
    }
    bound = binding(POLICY, ["Deny"])
    bound["spec"]["paramRef"] = {"name": REGISTRATION, "parameterNotFoundAction": "Allow"}
    return policy(POLICY, spec), bound


def _is_mirror() -> str:
    return (
        "has(object.metadata.annotations) && "
        f"{text(_MIRROR)} in object.metadata.annotations && "
        "has(request.userInfo.groups) && 'system:nodes' in request.userInfo.groups"
    )


def _is_reviewed() -> str:
    """Return the condition that our hooks review pods of the namespace."""
    label = text(OPT_IN_LABEL)
    return (
        f"!(request.namespace in [{text('kube-system')}, {text(NAMESPACE)}]) && "
        "has(namespaceObject.metadata.labels) && "
        f"{label} in namespaceObject.metadata.labels && "
        f"namespaceObject.metadata.labels[{label}] == {text(OPT_IN_VALUE)}"
    )
