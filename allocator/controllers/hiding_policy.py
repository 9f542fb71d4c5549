"""Publishes the policy by which the API server itself hides GPUs, where it can do that.

MutatingAdmissionPolicy is served in v1 from Kubernetes 1.36 on. A manifest of an unknown kind would
fail whoever applies it to an older server, so this is published and not applied. The policy is
owned by our webhook configuration, and so goes with it. It knows the resources by which this
cluster asks, as its device-config names them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
import structlog

from allocator.catalog.conditions import (
    MOST_VARIABLES,
    VISIBLE_DEVICES,
    asks_for_none,
    is_given_gpu,
    opt_in_selector,
    text,
)
from allocator.catalog.vocabularies import OWN, VOCABULARIES, Vocabulary
from allocator.controllers.match_conditions import GROUP, REGISTRATION
from kube.client import ApiClient
from kube.errors import NotFoundError

SWEEP_SECONDS: Final = 10.0  # between sweeps; somebody may delete it, or upgrade the API server
NAME: Final = f"hiding.{OWN.rstrip('/')}"
POLICY: Final = "MutatingAdmissionPolicy"
BINDING: Final = "MutatingAdmissionPolicyBinding"
_COLLECTIONS: Final = {POLICY: "mutatingadmissionpolicies", BINDING: f"{BINDING.lower()}s"}
OWNER_KIND: Final = "MutatingWebhookConfiguration"
FIELD_MANAGER: Final = "vgpu-admission-hiding"
_LABELS: Final = {
    "app.kubernetes.io/name": "vgpu-admission",
    "app.kubernetes.io/part-of": "vgpu-admission",
}
log = structlog.get_logger(__name__)


def hiding_spec(vocabularies: Iterable[Vocabulary] = ()) -> dict[str, Any]:
    """Return the spec of the policy for a cluster that configures *vocabularies*.

    It is about the pods of the hooks ``others``, which need not answer, and writes what they would:
    the variable that shows no GPU into each container that neither has the variable nor gets a GPU
    from another device plugin. It refuses a pod that it cannot evaluate.
    """
    known = (*VOCABULARIES, *vocabularies)
    created = f"{_operations('initContainers')} +\n  {_operations('containers')}"
    debugged = _operations("ephemeralContainers", "!(c.name in variables.before) &&\n    ")
    return {
        "matchConstraints": {
            "resourceRules": [_rule("CREATE", "pods"), _rule("UPDATE", "pods/ephemeralcontainers")],
            "namespaceSelector": opt_in_selector(),
        },
        "matchConditions": [{"name": "asks-for-no-vgpu", "expression": asks_for_none(known)}],
        "variables": [
            {
                "name": "before",
                "expression": "oldObject == null || !has(oldObject.spec.ephemeralContainers) ? "
                "[] : oldObject.spec.ephemeralContainers.map(c, c.name)",
            }
        ],
        "mutations": [
            {
                "patchType": "JSONPatch",
                "jsonPatch": {
                    "expression": f"request.operation == 'CREATE' ?\n  {created} :\n  {debugged}"
                },
            }
        ],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",  # an injector after it may add a container
    }


def _operations(field: str, more: str = "") -> str:
    """Return the patch of the containers in *field* of the spec, under *more* conditions.

    A pod that names its node passes no scheduler, so its limits are no proof of a GPU. More
    variables than are searched are left to the policy that refuses them.
    """
    entry = f"{{'name': {text(VISIBLE_DEVICES)}, 'value': 'void'}}"
    return (
        f"(has(object.spec.{field}) ? dyn(object.spec.{field}) : []).transformList(i, c, {more}"
        f"!(has(c.env) && (c.env.size() > {MOST_VARIABLES} ||\n"
        f"    c.env.exists(e, e.name == {text(VISIBLE_DEVICES)}))) &&\n"
        f"    (has(object.spec.nodeName) || !({is_given_gpu()})),\n"
        f"    JSONPatch{{op: 'add', path: '/spec/{field}/' + string(i) + '/env' + "
        "(has(c.env) ? '/-' : ''),\n"
        f"      value: has(c.env) ? dyn({entry}) : dyn([{entry}])}})"
    )


def _rule(operation: str, resource: str) -> dict[str, list[str]]:
    return {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": [operation],
        "resources": [resource],
    }


class _OwnerMetadata(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    deletion_timestamp: str | None = None


class _Owner(msgspec.Struct, frozen=True):
    metadata: _OwnerMetadata


_OWNER_DECODER: Final = msgspec.json.Decoder(_Owner)


class HidingPolicyController:
    """Keeps the policy as it should be, where the API server serves its kind."""

    def __init__(
        self, client: ApiClient, *, vocabularies: Callable[[], Sequence[Vocabulary]]
    ) -> None:
        """Publish through *client* for the *vocabularies* that the cluster configures."""
        self._client = client
        self._vocabularies = vocabularies
        self._served: bool | None = None  # as it was last logged

    async def sweep(self) -> None:
        """Publish the policy and its binding; raises :class:`kube.errors.KubeError`."""
        owner = await self._owner()
        if owner is None:
            return
        served = True
        try:
            await self._apply(POLICY, hiding_spec(self._vocabularies()), owner)
            await self._apply(BINDING, {"policyName": NAME}, owner)
        except NotFoundError:
            served = False  # the hook alone hides GPUs
        if served is not self._served:
            log.info("hiding policy", served_by_api_server=served)
        self._served = served

    async def _owner(self) -> dict[str, str] | None:
        """Return the reference to our webhook configuration; ``None`` where it is gone or going."""
        path = f"/apis/{GROUP}/{OWNER_KIND.lower()}s/{REGISTRATION}"
        try:
            found = _OWNER_DECODER.decode(await self._client.get(path)).metadata
        except NotFoundError:
            return None
        if found.deletion_timestamp is not None:
            return None
        return {"apiVersion": GROUP, "kind": OWNER_KIND, "name": REGISTRATION, "uid": found.uid}

    async def _apply(self, kind: str, spec: object, owner: dict[str, str]) -> None:
        """Apply one object, which writes nothing where it is already so."""
        body = {
            "apiVersion": GROUP,
            "kind": kind,
            "metadata": {"name": NAME, "labels": _LABELS, "ownerReferences": [owner]},
            "spec": spec,
        }
        path = f"/apis/{GROUP}/{_COLLECTIONS[kind]}/{NAME}"
        await self._client.apply(path, msgspec.json.encode(body), field_manager=FIELD_MANAGER)
