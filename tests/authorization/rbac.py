"""What roles allow, judged as the API server's RBAC authorizer does, without an API server.

Left out are aggregated ClusterRoles and non-resource URLs, of which our manifests have none.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final

from manifests.generator.names import Json

_BOUND: Final = {"RoleBinding", "ClusterRoleBinding"}
_ROLES: Final = {"Role", "ClusterRole"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """What somebody wants to do; *resource* includes the subresource, as in ``pods/status``."""

    user: str
    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


class Roles:
    """The roles and bindings among some *documents*."""

    def __init__(self, documents: Iterable[Json]) -> None:
        """Raise KeyError on a binding to a role that is not among the documents."""
        kept = [each for each in documents if each["kind"] in _BOUND | _ROLES]
        roles = {_key(each): each for each in kept if each["kind"] in _ROLES}
        self._bound = [(each, _role_of(each, roles)) for each in kept if each["kind"] in _BOUND]

    def allow(self, wanted: Attributes) -> bool:
        """Return whether one of the rules that are bound to the user allows it."""
        return any(_allows(rule, wanted) for rule in self._rules(wanted))

    def _rules(self, wanted: Attributes) -> Iterator[Json]:
        for binding, role in self._bound:
            everywhere = binding["kind"] == "ClusterRoleBinding"
            here = binding["metadata"].get("namespace") == wanted.namespace != ""
            if (everywhere or here) and any(
                _is(subject, wanted.user) for subject in binding["subjects"]
            ):
                yield from role["rules"]


def rights(documents: Iterable[Json], prefix: str) -> Iterator[tuple[str, Roles]]:
    """Yield each single right that roles named with a *prefix* give, in words and by itself."""
    kept = list(documents)
    roles = {_key(each): each for each in kept if each["kind"] in _ROLES}
    for binding in (each for each in kept if each["kind"] in _BOUND):
        role = _role_of(binding, roles)
        if role["metadata"]["name"].startswith(prefix):
            for rule in (part for whole in role["rules"] for part in _single(whole)):
                yield _words(binding, rule), Roles([role | {"rules": [rule]}, binding])


def _words(binding: Json, rule: Json) -> str:
    metadata = binding["metadata"]
    namespace = metadata.get("namespace", "")
    place = f" {namespace}/{''.join(rule.get('resourceNames', []))}"
    return f"{metadata['name']} {rule['verbs'][0]} {rule['resources'][0]}{place}".rstrip(" /")


def _single(rule: Json) -> Iterator[Json]:
    """Take a rule apart into rules of one verb, resource and name."""
    for group, resource, verb, name in product(
        rule["apiGroups"], rule["resources"], rule["verbs"], rule.get("resourceNames") or [None]
    ):
        one = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
        yield one | ({"resourceNames": [name]} if name else {})


def groups_of(user: str) -> tuple[str, ...]:
    """Return the groups that the API server gives to whoever is authenticated as *user*."""
    parts = user.split(":")
    if parts[:2] != ["system", "serviceaccount"]:
        return ("system:authenticated",)
    return (
        "system:serviceaccounts",
        f"system:serviceaccounts:{parts[2]}",
        "system:authenticated",
    )


def _key(role: Json) -> tuple[str, str, str]:
    metadata = role["metadata"]
    return role["kind"], metadata.get("namespace", ""), metadata["name"]


def _role_of(binding: Json, roles: dict[tuple[str, str, str], Json]) -> Json:
    reference = binding["roleRef"]
    cluster = reference["kind"] == "ClusterRole"
    namespace = "" if cluster else binding["metadata"]["namespace"]
    return roles[reference["kind"], namespace, reference["name"]]


def _is(subject: Json, user: str) -> bool:
    match subject["kind"]:
        case "ServiceAccount":
            return user == f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
        case "Group":
            return subject["name"] in groups_of(user)
        case _:
            return bool(subject["name"] == user)


def _allows(rule: Json, wanted: Attributes) -> bool:
    names = rule.get("resourceNames")
    return (
        _holds(rule["verbs"], wanted.verb)
        and _holds(rule["apiGroups"], wanted.group)
        and (_holds(rule["resources"], wanted.resource) or _any_of(rule, wanted.resource))
        and (not names or wanted.name in names)
    )


def _holds(values: list[str], value: str) -> bool:
    return "*" in values or value in values


def _any_of(rule: Json, resource: str) -> bool:
    """Return whether the rule names the subresource of any resource, as in ``*/status``."""
    _, slash, subresource = resource.partition("/")
    return bool(slash) and f"*/{subresource}" in rule["resources"]
