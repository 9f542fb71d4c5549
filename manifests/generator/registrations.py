"""Which requests the API server sends to our webhook, and what it does when we do not answer.

A pod that asks for vGPU may not start without us (``Fail``); any other pod must start whether
we are there or not (``Ignore``). The same goes for debugging a running pod: an ephemeral
container that names all devices would see every GPU of a node that a vGPU pod runs on.
"""

import base64
from dataclasses import dataclass
from typing import Final

from manifests.generator.cel import asks_for_none, asks_for_vgpu
from manifests.generator.names import (
    DOMAIN,
    NAMESPACE,
    OPT_IN_LABEL,
    OPT_IN_VALUE,
    REGISTRATION,
    SERVICE,
    Json,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One entry of a webhook configuration; *asking* limits it to pods that ask for vGPU."""

    name: str
    path: str
    resource: str
    operation: str
    asking: bool
    seconds: int


_CREATED: Final = ("/mutate/pods", "pods", "CREATE")
_DEBUGGED: Final = ("/mutate/pods/ephemeralcontainers", "pods/ephemeralcontainers", "UPDATE")


def _pair(name: str, others: str, where: tuple[str, str, str]) -> tuple[Hook, Hook]:
    path, resource, operation = where
    return (
        Hook(name=name, path=path, resource=resource, operation=operation, asking=True, seconds=5),
        Hook(
            name=others, path=path, resource=resource, operation=operation, asking=False, seconds=2
        ),
    )


MUTATING: Final = (
    *_pair("pods", "others", _CREATED),
    *_pair("ephemeral", "others.ephemeral", _DEBUGGED),
)
VALIDATING: Final = (
    Hook(
        name="pods.validate",
        path="/validate/pods",
        resource="pods",
        operation="CREATE",
        asking=True,
        seconds=3,
    ),
)


def registrations(*, url: str | None = None, ca_bundle: bytes | None = None) -> tuple[Json, Json]:
    """Return the mutating and the validating webhook configuration.

    They point at our Service, or at *url*, e.g. ``https://127.0.0.1:8443``, for a webhook
    outside the cluster. Without *ca_bundle* (PEM) that field is left to its owner, the
    certificate writer.
    """
    mutating = [_entry(hook, url, ca_bundle) for hook in MUTATING]
    validating = [_entry(hook, url, ca_bundle) for hook in VALIDATING]
    for entry in mutating:
        # An injector that runs after us may add a container; ours is idempotent.
        entry["reinvocationPolicy"] = "IfNeeded"
    return (
        _configuration("MutatingWebhookConfiguration", mutating),
        _configuration("ValidatingWebhookConfiguration", validating),
    )


def _configuration(kind: str, entries: list[Json]) -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": REGISTRATION},
        "webhooks": entries,
    }


def _entry(hook: Hook, url: str | None, ca_bundle: bytes | None) -> Json:
    condition = (
        {"name": "asks-for-vgpu", "expression": asks_for_vgpu()}
        if hook.asking
        else {"name": "asks-for-no-vgpu", "expression": asks_for_none()}
    )
    return {
        "name": f"{hook.name}.{DOMAIN}",
        "clientConfig": _client(hook.path, url, ca_bundle),
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": [hook.operation],
                "resources": [hook.resource],
                "scope": "Namespaced",
            }
        ],
        "namespaceSelector": _opted_in(),
        "matchConditions": [condition],
        "matchPolicy": "Equivalent",
        "failurePolicy": "Fail" if hook.asking else "Ignore",
        "timeoutSeconds": hook.seconds,
        "sideEffects": "NoneOnDryRun",  # decisions are recorded, those of a dry run are not
        "admissionReviewVersions": ["v1"],
    }


def _client(path: str, url: str | None, ca_bundle: bytes | None) -> Json:
    service = {"namespace": NAMESPACE, "name": SERVICE, "port": 443, "path": path}
    client: Json = {"service": service} if url is None else {"url": f"{url}{path}"}
    if ca_bundle is not None:
        client["caBundle"] = base64.b64encode(ca_bundle).decode()
    return client


def _opted_in() -> Json:
    """Select opted-in namespaces, never the two that must start before we can answer."""
    return {
        "matchExpressions": [
            {"key": OPT_IN_LABEL, "operator": "In", "values": [OPT_IN_VALUE]},
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": [NAMESPACE, "kube-system"],
            },
        ]
    }
