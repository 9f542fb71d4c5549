"""Policies that the API server enforces even while the webhook is down (docs/policies.md).

Accounts are variables, first in the list and one per line, so that a site whose Volcano uses other
accounts replaces them with a two-line patch. They are not a parameter object, because a policy
whose parameters are missing refuses everything.
"""

from typing import Final

from allocator.catalog.conditions import (
    MOST_VARIABLES,
    VISIBLE_DEVICES,
    asks,
    asks_for_vgpu,
    containers_of,
    opt_in_selector,
    strings,
    text,
)
from allocator.catalog.hami_keys import POD_KEYS
from allocator.catalog.keys import (
    ALLOCATION_KEYS,
    CDI_PREFIX,
    OPT_IN_LABEL,
    OPT_IN_VALUE,
    SERVED_BY_KEY,
    USER_KEYS,
)
from allocator.catalog.vocabularies import CATALOGUE, OWN
from allocator.request.annotation_keys import request_keys
from manifests.generator.names import (
    AGENT,
    CONTROL_PLANE,
    DOMAIN,
    HAMI,
    UPSTREAM,
    Json,
)
from manifests.generator.parts import (
    annotations_of,
    binding,
    policy,
    rule,
    runs_on,
    variable,
)

SCHEDULERS: Final = (
    "system:serviceaccount:volcano-system:volcano-scheduler",
    "system:serviceaccount:kube-system:hami-scheduler",
)
HIDDEN: Final = ("", "none", "void")  # values that show no GPU
PLUGINS: Final = (
    "system:serviceaccount:kube-system:volcano-device-plugin",
    "system:serviceaccount:kube-system:hami-device-plugin",
)

# What decided at CREATE which GPU fits; read again at bind, so it may not change in between.
REQUEST_KEYS: Final = request_keys(CATALOGUE)


def policies() -> tuple[Json, ...]:
    """Return every policy, each followed by its binding."""
    return (*_unlabelled_policy(), *_hidden(), *_frozen(), *_gpunodes())


def _unlabelled_policy() -> tuple[Json, Json]:
    reserved = (
        f"k in variables.allocation || k.startsWith({text(OWN)}) && !(k in {strings(USER_KEYS)})"
    )
    spec = {
        "matchConstraints": _pods("NotIn", rule("CREATE", "pods"), _annotations()),
        "matchConditions": [_new_or_annotated()],
        "variables": [
            *_accounts(),
            variable("allocation", strings(ALLOCATION_KEYS)),
            variable("before", annotations_of("oldObject")),
            variable("after", annotations_of("object")),
            variable("forged", _changed_keys(reserved)),
        ],
        "validations": [
            {
                "expression": f"request.operation != 'CREATE' || !({asks_for_vgpu()})",
                "message": (
                    f"the pod asks for vGPU in a namespace without {OPT_IN_LABEL}={OPT_IN_VALUE}, "
                    "where no limits are enforced; ask an administrator to add the label"
                ),
            },
            {
                "expression": (
                    "variables.forged.size() == 0 || request.operation == 'UPDATE' && "
                    "request.userInfo.username in variables.schedulers + variables.plugins + "
                    f"{strings((CONTROL_PLANE, AGENT))}"
                ),
                "message": "the pod carries annotations that only a scheduler or vgpu-admission "
                "may write; remove them",
                "messageExpression": (
                    "'annotation ' + variables.forged[0] + ' may be written only by schedulers "
                    "and vgpu-admission; remove it'"
                ),
            },
        ],
    }
    # Warn lets the installation join a running Volcano site; component refuse denies.
    return policy("unlabelled", spec), binding("unlabelled", ["Warn", "Audit"])


def _hidden() -> tuple[Json, Json]:
    """Return the policy that no container names GPUs for itself, where the hook could not look.

    The hook that hides GPUs is ``Ignore``, so that its failure stops no ordinary pod.
    """
    old = "oldObject == null || !has(oldObject.spec.ephemeralContainers)"
    new = "has(object.spec.ephemeralContainers) ? dyn(object.spec.ephemeralContainers) : []"
    fine = f"has(e.valueFrom) == false && (!has(e.value) || e.value in {strings(HIDDEN)})"
    names_none = f"!has(c.env) || c.env.all(e, e.name != {text(VISIBLE_DEVICES)} || {fine})"
    crowded = f"has(c.env) && c.env.size() > {MOST_VARIABLES}"
    spec = {
        "matchConstraints": {
            "resourceRules": [rule("CREATE", "pods"), rule("UPDATE", "pods/ephemeralcontainers")],
            "namespaceSelector": opt_in_selector(),
        },
        "variables": [
            variable("before", f"{old} ? [] : oldObject.spec.ephemeralContainers.map(c, c.name)"),
            variable(
                "containers",
                f"request.operation == 'CREATE' ? {containers_of('object.spec')} :\n"
                f"  ({new}).filter(c, !(c.name in variables.before))",
            ),
            variable("crowded", f"variables.containers.filter(c, !({asks()}) && {crowded})"),
            variable(
                "naming",
                f"variables.containers.filter(c, !({asks()} || {crowded} || {names_none}))",
            ),
        ],
        "validations": [
            {
                "expression": "variables.naming.size() == 0",
                "message": f"a container that asks for no vGPU may not set {VISIBLE_DEVICES}; "
                "remove it",
                "messageExpression": (
                    "'container ' + variables.naming[0].name + ' asks for no vGPU, so it may not "
                    f"set {VISIBLE_DEVICES}; remove it'"
                ),
            },
            {
                "expression": "variables.crowded.size() == 0",
                "message": f"a container may have {MOST_VARIABLES} variables at most",
                "messageExpression": (
                    "'container ' + variables.crowded[0].name + ' has more than "
                    f"{MOST_VARIABLES} variables, which is more than can be searched; use a file'"
                ),
            },
        ],
    }
    return policy("hidden", spec), binding("hidden", ["Deny"])


def _frozen() -> tuple[Json, Json]:
    reserved = (
        f"k in variables.allocation || k.startsWith({text(OWN)}) || "
        f"k.startsWith({text(CDI_PREFIX)}) || k in {strings(REQUEST_KEYS)}"
    )
    spec = {
        "matchConstraints": _pods("In", _annotations()),
        "matchConditions": [_new_or_annotated()],
        "variables": [
            *_accounts(),
            variable("before", annotations_of("oldObject")),
            variable("after", annotations_of("object")),
            variable(
                "server",
                f"{text(SERVED_BY_KEY)} in variables.before ? "
                f"variables.before[{text(SERVED_BY_KEY)}] : ''",
            ),
            variable("upstream", f"variables.server in {strings((HAMI, UPSTREAM))}"),
            # Plugins of other makes of GPU write HAMi's keys too, under accounts of their own.
            variable(
                "allocation",
                f"{strings(ALLOCATION_KEYS)} +\n"
                f"  (variables.server == {text(UPSTREAM)} ? [] : {strings(POD_KEYS)})",
            ),
            variable("touched", _changed_keys(reserved)),
            variable("node", "has(oldObject.spec.nodeName) ? oldObject.spec.nodeName : ''"),
        ],
        "validations": [_decision_rule(), _allocation_rule()],
    }
    return policy("frozen", spec), binding("frozen", ["Deny"])


def _decision_rule() -> Json:
    return {
        "expression": (
            "variables.touched.all(k, k in variables.allocation) || "
            f"request.userInfo.username == {text(CONTROL_PLANE)} || "
            f"request.userInfo.username == {text(AGENT)} && variables.node != '' && "
            f"{runs_on('variables.node')} && "
            f"variables.touched.all(k, k in variables.allocation || k.startsWith({text(OWN)}))"
        ),
        "message": "what admission decided cannot change once the pod exists; recreate the pod",
        "messageExpression": (
            "'annotation ' + variables.touched.filter(k, !(k in variables.allocation))[0] + "
            "' was decided at admission and cannot change; recreate the pod'"
        ),
    }


def _allocation_rule() -> Json:
    return {
        "expression": (
            "variables.touched.all(k, !(k in variables.allocation)) || "
            f"request.userInfo.username == {text(CONTROL_PLANE)} || "
            "request.userInfo.username in variables.schedulers && "
            "(variables.node == '' || variables.upstream) || "
            "request.userInfo.username in variables.plugins && variables.upstream"
        ),
        "message": "only the scheduler may write an allocation, and only until the pod is bound",
        "messageExpression": (
            "'annotation ' + variables.touched.filter(k, k in variables.allocation)[0] + "
            "' is an allocation: only the scheduler may write it, until the pod is bound'"
        ),
    }


def _gpunodes() -> tuple[Json, Json]:
    control_plane = f"request.userInfo.username == {text(CONTROL_PLANE)}"
    spec = {
        "matchConstraints": {
            "resourceRules": [
                rule("CREATE", "gpunodes", group=DOMAIN),
                rule("UPDATE", "gpunodes", "gpunodes/status", group=DOMAIN),
                rule("DELETE", "gpunodes", group=DOMAIN),
            ]
        },
        # Commits of entries are frequent, and none of the rules below applies to them.
        "matchConditions": [
            {
                "name": "no-promise",
                "expression": (
                    f"request.operation != 'UPDATE' || !({control_plane}) || "
                    "has(object.metadata.ownerReferences)"
                ),
            }
        ],
        "variables": [
            variable("status", "has(request.subResource) && request.subResource == 'status'"),
            variable("finalizers", _finalizers_of("object")),
            variable("held", _finalizers_of("oldObject")),
        ],
        "validations": [*_writer_rules(control_plane), _owner_rule()],
    }
    return policy("gpunodes", spec), binding("gpunodes", ["Deny"])


def _writer_rules(control_plane: str) -> list[Json]:
    return [
        {
            "expression": (
                f"{control_plane} || variables.status || request.operation == 'UPDATE' && "
                "object.spec == oldObject.spec && "
                "variables.finalizers.all(f, f in variables.held) || "
                "request.operation == 'DELETE'"
            ),
            "message": "only the control plane of vgpu-admission may create a GPUNode, change its "
            "entries or add a finalizer",
        },
        {
            "expression": f"{control_plane} || request.operation != 'DELETE'",
            "message": "only the control plane of vgpu-admission may delete a GPUNode, because "
            "pods may run on its GPUs. To take a node out, remove its label "
            f"{OWN}node: the GPUNode goes after the last pod. To uninstall, run kubectl delete -k "
            "on what was applied (docs/uninstall.md)",
        },
        {
            "expression": (
                f"{control_plane} || !variables.status || "
                f"request.userInfo.username == {text(AGENT)} && "
                f"{runs_on('oldObject.metadata.name')}"
            ),
            "message": "only the agent of a node may write the status of its GPUNode",
        },
    ]


def _owner_rule() -> Json:
    return {
        "expression": "request.operation == 'DELETE' || !has(object.metadata.ownerReferences)",
        "message": "a GPUNode must have no owner, because it outlives its Node",
    }


def _pods(operator: str, *rules: Json) -> Json:
    selected = {"key": OPT_IN_LABEL, "operator": operator, "values": [OPT_IN_VALUE]}
    return {
        "resourceRules": list(rules),
        "namespaceSelector": {"matchExpressions": [selected]},
    }


def _annotations() -> Json:
    """Return the rule for requests that can change a pod's annotations; a status patch can."""
    return rule("UPDATE", "pods", "pods/status")


def _new_or_annotated() -> Json:
    """Match only new pods and changes of annotations.

    Label edits, status updates and removals of finalizers do not match. So none of them is refused,
    not even by an error or an exhausted budget in the rules, and most writes cost almost nothing.
    """
    changed = f"({annotations_of('object')}) != ({annotations_of('oldObject')})"
    return {
        "name": "new-or-annotated",
        "expression": f"request.operation == 'CREATE' || {changed}",
    }


def _accounts() -> list[Json]:
    return [
        variable("schedulers", strings(SCHEDULERS)),
        variable("plugins", strings(PLUGINS)),
    ]


def _finalizers_of(which: str) -> str:
    return (
        f"{which} == null || !has({which}.metadata.finalizers) ? [] : {which}.metadata.finalizers"
    )


def _changed_keys(condition: str) -> str:
    """Return an expression for the changed keys ``k`` that meet *condition*."""
    return (
        f"variables.before.filter(k, ({condition}) &&\n"
        "  !(k in variables.after && variables.after[k] == variables.before[k])) +\n"
        f"variables.after.filter(k, ({condition}) && !(k in variables.before))"
    )
