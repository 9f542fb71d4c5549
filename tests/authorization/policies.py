"""What ValidatingAdmissionPolicies answer, judged without an API server.

The conditions are evaluated by cel-cpp, another implementation of the same language, with untyped
objects. It has none of Kubernetes' libraries (``authorizer``, ``quantity``, ``url`` and the like),
so a condition with one does not compile here, and it counts no cost. Its checker wants ``dyn()``
around a value of an index over which a macro runs. Where ``has()`` looks into what is no object, it
has an error, which refuses, and the API server says that the field is absent: whether that is too
mild is seen there only. The words of an error here begin with the message of its validation.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cel_expr_python import cel

from manifests.generator.names import Json

_NAMES: Final = ("object", "oldObject", "request", "variables", "params", "namespaceObject")
_EXTENSIONS: Final = "extensions:\n- {name: two-var-comprehensions, version: latest}\n"
_ENVIRONMENT: Final = cel.NewEnv(
    config=cel.NewEnvConfigFromYaml(f"name: kubernetes\n{_EXTENSIONS}"),
    variables=dict.fromkeys(_NAMES, cel.Type.DYN),
)

# What is understood here; a policy with anything else would be judged wrongly.
_SPEC: Final = {
    "failurePolicy",
    "paramKind",
    "matchConstraints",
    "matchConditions",
    "variables",
    "validations",
}
_CONSTRAINTS: Final = {"resourceRules", "namespaceSelector"}
_RULE: Final = {"apiGroups", "apiVersions", "operations", "resources"}
_BINDING: Final = {"policyName", "validationActions", "paramRef"}
_PARAMETER: Final = {"name", "parameterNotFoundAction"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A request as policies see it, and the labels of its namespace if it has one."""

    request: Json
    object: Json | None
    old: Json | None
    namespace: Mapping[str, str] | None
    params: Mapping[str, Json] = field(default_factory=dict)  # by name, whatever their kind


@dataclass(frozen=True, slots=True)
class Finding:
    """The *words* of a *policy* that is not content, and what its binding does then."""

    policy: str
    words: str
    actions: tuple[str, ...]


class EvaluationError(Exception):
    """An expression that has no value."""


class Policies:
    """The policies in force among some *documents*."""

    def __init__(self, documents: Iterable[Json]) -> None:
        """Raise ValueError on a field that is not understood here."""
        kept = list(documents)
        policies = {
            each["metadata"]["name"]: _understood(each["spec"], _SPEC)
            for each in kept
            if each["kind"] == "ValidatingAdmissionPolicy"
        }
        bindings = [
            _understood(each["spec"], _BINDING)
            for each in kept
            if each["kind"] == "ValidatingAdmissionPolicyBinding"
        ]
        self._bound = [(each, policies[each["policyName"]]) for each in bindings]

    def findings(self, review: Review) -> Iterator[Finding]:
        """Yield what each policy that is in force objects to."""
        for bound, spec in self._bound:
            name = bound["policyName"].partition(".")[0]
            params = _parameter(bound, review)
            if params is not _NOT_FOUND and _matches(spec["matchConstraints"], review):
                for words in _objections(spec, review, params):
                    yield Finding(name, words, tuple(bound["validationActions"]))


_NOT_FOUND: Final = {"apiVersion": "nothing"}


def _parameter(bound: Json, review: Review) -> Json | None:
    """Return the parameter object of a binding, ``None`` where it has none."""
    if "paramRef" not in bound:
        return None
    reference = _understood(bound["paramRef"], _PARAMETER)
    if reference["parameterNotFoundAction"] != "Allow":
        raise ValueError("not understood: a binding that refuses without its parameter")
    return review.params.get(reference["name"], _NOT_FOUND)


def value_of(expression: str, values: Mapping[str, Any]) -> object:
    """Return the value of an *expression*, or raise EvaluationError."""
    found = _compiled(expression).eval(data=dict.fromkeys(_NAMES) | dict(values))
    if found.type() == cel.Type.ERROR:
        raise EvaluationError(f"expression '{expression}' resulted in error: {found.value()}")
    return found.plain_value()


@functools.cache
def _compiled(expression: str) -> cel.Expression:
    return _ENVIRONMENT.compile(expression)


def _understood(part: Json, fields: set[str]) -> Json:
    if unknown := part.keys() - fields:
        raise ValueError(f"not understood: {', '.join(sorted(unknown))}")
    return part


def _matches(constraints: Json, review: Review) -> bool:
    _understood(constraints, _CONSTRAINTS)
    selected = review.namespace is None or _selects(
        constraints.get("namespaceSelector", {}), review.namespace
    )
    return selected and any(
        _covers(_understood(rule, _RULE), review.request) for rule in constraints["resourceRules"]
    )


def _covers(rule: Json, request: Json) -> bool:
    resource, subresource = request["resource"], request.get("subResource", "")
    name = f"{resource['resource']}/{subresource}" if subresource else resource["resource"]
    return (
        resource["group"] in rule["apiGroups"]
        and resource["version"] in rule["apiVersions"]
        and request["operation"] in rule["operations"]
        and name in rule["resources"]
    )


def _selects(selector: Json, labels: Mapping[str, str]) -> bool:
    return all(
        (labels.get(each["key"]) in each["values"])
        is {"In": True, "NotIn": False}[each["operator"]]
        for each in _understood(selector, {"matchExpressions"}).get("matchExpressions", [])
    )


def _objections(spec: Json, review: Review, params: Json | None) -> Iterator[str]:
    """Yield the message of each validation that does not hold; errors are objections too."""
    if spec["failurePolicy"] != "Fail":
        raise ValueError(f"not understood: failurePolicy {spec['failurePolicy']}")
    values: dict[str, Any] = {
        "object": review.object,
        "oldObject": review.old,
        "request": review.request,
        "params": params,
        "namespaceObject": None
        if review.namespace is None
        else {"metadata": {"labels": dict(review.namespace)} if review.namespace else {}},
    }
    try:
        if not _concerns(spec.get("matchConditions", []), values):
            return
    except EvaluationError as error:
        yield str(error)
        return
    values["variables"] = _variables(spec.get("variables", []), values)
    for validation in spec["validations"]:
        try:
            if value_of(validation["expression"], values) is not True:
                yield _message(validation, values)
        except EvaluationError as error:
            yield f"{validation['message']}; {error}"


def _concerns(conditions: list[Json], values: Mapping[str, Any]) -> bool:
    """Return whether all conditions hold; one that does not outweighs errors of others."""
    failed: list[EvaluationError] = []
    for condition in conditions:
        try:
            if value_of(condition["expression"], values) is not True:
                return False
        except EvaluationError as error:
            failed.append(error)
    if failed:
        raise failed[0]
    return True


def _variables(variables: list[Json], values: Mapping[str, Any]) -> Json:
    """Return the values of variables; one without is missing, an error only for who uses it."""
    found: Json = {}
    for each in variables:
        try:
            found[each["name"]] = value_of(each["expression"], {**values, "variables": found})
        except EvaluationError:
            continue
    return found


def _message(validation: Json, values: Mapping[str, Any]) -> str:
    """Return what is said; an expression for it that fails leaves the constant."""
    try:
        return str(value_of(validation["messageExpression"], values))
    except (KeyError, EvaluationError):
        return str(validation["message"])
