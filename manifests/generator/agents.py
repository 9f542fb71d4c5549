"""Policies on agents: what an agent may write on its Node and on the pods there.

A role cannot limit an agent to the objects of its own node, so a policy does, by the node that the
token was issued on. An attacker on one node can write only for that node (docs/agent.md).
"""

from collections.abc import Sequence
from typing import Final

import yaml

from allocator.catalog.conditions import strings, text
from allocator.catalog.hami_keys import LOCK_ANNOTATION
from allocator.catalog.keys import AGENT_LABEL, CAPACITY_KEY, NOT_READY_TAINT, SIMULATED_LABEL
from allocator.catalog.vocabularies import OWN
from allocator.cluster.objects import MODEL_LABEL
from allocator.metax.names import NODE_ANNOTATIONS, NODE_LABELS
from manifests.generator.gpunode import LISTS
from manifests.generator.names import AGENT, DOMAIN, REPORTER, Json
from manifests.generator.parts import (
    binding,
    metadata,
    only_keys,
    policy,
    rule,
    runs_on,
    same_field,
    variable,
)
from manifests.generator.shapes import ObjectShape, checks

_LABELS: Final = (AGENT_LABEL, MODEL_LABEL)
_LINKS: Final = ("finalizers", "ownerReferences")


def agents() -> tuple[Json, ...]:
    """Return the policies about agents, each followed by its binding."""
    return (
        policy("agents-nodes", _nodes()),
        binding("agents-nodes", ["Deny"]),
        policy("agents-pods", _pods()),
        binding("agents-pods", ["Deny"]),
        policy("agents-gpunodes", _gpunodes()),
        binding("agents-gpunodes", ["Deny"]),
        policy("agents-events", _events()),
        binding("agents-events", ["Deny"]),
    )


def _nodes() -> Json:
    return {
        "matchConstraints": {"resourceRules": [rule("UPDATE", "nodes", "nodes/status")]},
        "matchConditions": [_by_an_agent()],
        "variables": [
            *metadata(),
            # The type checker knows no maps of quantities, and fields of an object only by name:
            # as maps they are compared with those that a later Kubernetes adds.
            variable("specBefore", "dyn(oldObject.spec)"),
            variable("specAfter", "dyn(object.spec)"),
            variable("statusBefore", "dyn(oldObject.status)"),
            variable("statusAfter", "dyn(object.status)"),
            variable("had", _map("variables.statusBefore", "capacity")),
            variable("has", _map("variables.statusAfter", "capacity")),
            variable("couldGive", _map("variables.statusBefore", "allocatable")),
            variable("canGive", _map("variables.statusAfter", "allocatable")),
            variable("taintsBefore", _list("oldObject", "spec", "taints")),
            variable("taintsAfter", _list("object", "spec", "taints")),
        ],
        "validations": [
            _all_hold("an agent may write only its own Node", runs_on("oldObject.metadata.name")),
            _node_metadata_rule(_LABELS, (CAPACITY_KEY,)),
            _node_spec_rule(),
            _node_status_rule(),
        ],
    }


def simulated_metax_component() -> Json:
    """Return the component by which a simulated agent may write what MetaX's components write.

    No real agent may: on a MetaX node the control plane believes these keys.
    """
    before = _node_metadata_rule(_LABELS, (CAPACITY_KEY,))
    after = _node_metadata_rule(
        (*_LABELS, *NODE_LABELS, SIMULATED_LABEL),
        (CAPACITY_KEY, *NODE_ANNOTATIONS, LOCK_ANNOTATION),
    )
    path = f"/spec/validations/{_nodes()['validations'].index(before)}"
    operations = [
        {"op": "test", "path": f"{path}/expression", "value": before["expression"]},
        {"op": "replace", "path": path, "value": after},
    ]
    target = {"kind": "ValidatingAdmissionPolicy", "name": f"agents-nodes.{DOMAIN}"}
    return {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "patches": [{"target": target, "patch": yaml.safe_dump(operations, sort_keys=False)}],
    }


def _node_metadata_rule(labels: Sequence[str], annotations: Sequence[str]) -> Json:
    keys = (*labels, *annotations)
    return _all_hold(
        f"an agent may write only {', '.join(keys[:-1])} and {keys[-1]} on its Node",
        only_keys(("labelsBefore", "labelsAfter"), f"k in {strings(labels)}"),
        only_keys(("before", "after"), _is_one_of(annotations)),
        *(same_field("metadata", key) for key in _LINKS),
    )


def _is_one_of(keys: Sequence[str]) -> str:
    return f"k == {text(keys[0])}" if len(keys) == 1 else f"k in {strings(keys)}"


def _node_spec_rule() -> Json:
    return _all_hold(
        f"an agent may remove only {NOT_READY_TAINT} from its Node's spec",
        "variables.taintsAfter.all(t, t in variables.taintsBefore)",
        (
            f"variables.taintsBefore.all(t, t.key == {text(NOT_READY_TAINT)} || "
            "t in variables.taintsAfter)"
        ),
        only_keys(("specBefore", "specAfter"), "k == 'taints'"),
    )


def _node_status_rule() -> Json:
    extended = "k.contains('/') && !k.contains('kubernetes.io/')"
    return _all_hold(
        "an agent may write only capacity of extended resources to the status",
        only_keys(("had", "has"), extended),
        only_keys(("couldGive", "canGive"), extended),
        only_keys(("statusBefore", "statusAfter"), "k in ['capacity', 'allocatable']"),
    )


def _all_hold(message: str, *conditions: str) -> Json:
    """Return a validation that refuses with *message* unless all *conditions* hold."""
    return {"expression": " &&\n".join(conditions), "message": message}


def _pods() -> Json:
    ours = f"k.matches({text('^' + OWN.replace('.', '[.]') + '[ci][0-9]+[.]visible$')})"
    return {
        "matchConstraints": {"resourceRules": [rule("UPDATE", "pods", "pods/status")]},
        "matchConditions": [_by_an_agent()],
        "variables": [
            *metadata(),
            variable("node", "has(oldObject.spec.nodeName) ? oldObject.spec.nodeName : ''"),
        ],
        "validations": [
            {
                "expression": f"variables.node != '' && {runs_on('variables.node')}",
                "message": "an agent may write to pods of its own node only",
            },
            _all_hold(
                "an agent may write to a pod only which instances it was given",
                only_keys(("before", "after"), ours),
                "variables.labelsBefore == variables.labelsAfter",
                "object.spec == oldObject.spec",
                same_field("", "status"),
                *(same_field("metadata", key) for key in _LINKS),
            ),
        ],
    }


def _gpunodes() -> Json:
    """Check the lists that an agent reports, which the schema leaves open (``gpunode``)."""
    shape_checks = checks(ObjectShape(LISTS), "variables.status", "status")
    return {
        "matchConstraints": {"resourceRules": [rule("UPDATE", "gpunodes/status", group=DOMAIN)]},
        "matchConditions": [_by_an_agent()],
        "variables": [variable("status", "has(object.status) ? object.status : {}")],
        "validations": [
            {
                "expression": check.condition,
                "message": f"{check.place} is invalid; accepted: {check.accepted}",
            }
            for check in shape_checks
        ],
    }


def _events() -> Json:
    """Let an agent write only Events that name itself as the reporter.

    Objects of Events are not limited to its node, because the Event of a Pod does not name one.
    """
    controller, instance = "object.reportingController", "object.reportingInstance"
    return {
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": ["events.k8s.io"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["events"],
                }
            ]
        },
        "matchConditions": [_by_an_agent()],
        "validations": [
            {
                "expression": (
                    f"has({controller}) && {controller} == {text(REPORTER)} &&\n"
                    f"has({instance}) && {runs_on(instance)}"
                ),
                "message": f"an agent may write Events only as {REPORTER} of its own node",
            }
        ],
    }


def _by_an_agent() -> Json:
    return {
        "name": "by-an-agent",
        "expression": f"request.userInfo.username == {text(AGENT)}",
    }


def _map(owner: str, key: str) -> str:
    return f"has({owner}.{key}) ? {owner}.{key} : {{}}"


def _list(which: str, part: str, key: str) -> str:
    return f"has({which}.{part}.{key}) ? {which}.{part}.{key} : []"
