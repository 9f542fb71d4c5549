"""What the MutatingAdmissionPolicy that hides GPUs makes of a pod, without an API server."""

import re
from typing import Any

import jsonpatch

from allocator.controllers.hiding_policy import hiding_spec
from manifests.generator.names import Json
from tests.authorization.policies import value_of


def mutated(found: Json, spec: Json | None = None, *, old: Json | None = None) -> Json:
    """Return *found* as the API server goes on with it, by another implementation of CEL.

    Raises ``policies.EvaluationError`` where an expression has no value, which refuses the pod.
    """
    spec = spec or hiding_spec()
    values: Json = {
        "object": found,
        "oldObject": old,
        "request": {"operation": "UPDATE" if old else "CREATE"},
    }
    for condition in spec["matchConditions"]:
        if value_of(condition["expression"], values) is not True:
            return found
    values["variables"] = {v["name"]: value_of(v["expression"], values) for v in spec["variables"]}
    (mutation,) = spec["mutations"]
    # The evaluator here does not know Kubernetes' type of an operation.
    expression = mutation["jsonPatch"]["expression"].replace("JSONPatch{", "{")
    expression = re.sub(r"\b(op|path|value): ", r"'\1': ", expression)
    operations: Any = value_of(expression, values)
    patched: Json = jsonpatch.apply_patch(found, operations)
    return patched
