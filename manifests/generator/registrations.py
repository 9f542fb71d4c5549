"""Which requests the API server sends to our webhook, and what it does when we do not answer.

A pod that asks for vGPU may not start without us (``Fail``); any other pod must start whether
we are there or not (``Ignore``). The same goes for debugging a running pod: an ephemeral
container that names all devices would see every GPU of a node that a vGPU pod runs on. A Binding
does not say what its pod asks for, so without us nothing is bound in namespaces that opted in.
A workload is never held up: whoever applies one is warned where its pods will be refused, and it is
created whether we are there or not.
"""

import base64
from dataclasses import dataclass, replace
from typing import Final

from allocator.catalog.conditions import asks_for_none, asks_for_vgpu, opt_in_selector
from manifests.generator.cel import changes_pods, makes_vgpu_pods
from manifests.generator.names import (
    DOMAIN,
    NAMESPACE,
    REGISTRATION,
    SERVICE,
    Json,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One entry of a webhook configuration."""

    name: str
    path: str
    resources: tuple[str, ...]
    operation: str
    asking: bool | None  # only pods that ask for vGPU, only the others; None: all
    seconds: int  # timeout of a call


_CREATED: Final = ("/mutate/pods", "pods", "CREATE")
_DEBUGGED: Final = ("/mutate/pods/ephemeralcontainers", "pods/ephemeralcontainers", "UPDATE")


def _pair(name: str, others: str, where: tuple[str, str, str]) -> tuple[Hook, Hook]:
    path, resource, operation = where
    hook = Hook(
        name=name,
        path=path,
        resources=(resource,),
        operation=operation,
        asking=True,
        seconds=5,
    )
    return hook, replace(hook, name=others, asking=False, seconds=2)


MUTATING: Final = (
    *_pair("pods", "others", _CREATED),
    *_pair("ephemeral", "others.ephemeral", _DEBUGGED),
    Hook(
        name="bindings",
        path="/mutate/bindings",
        resources=("pods/binding", "bindings"),  # the legacy way binds a pod too
        operation="CREATE",
        asking=None,
        seconds=5,
    ),
)
WORKLOADS: Final = (
    ("apps", "v1", ("deployments", "statefulsets", "daemonsets", "replicasets")),
    ("batch", "v1", ("jobs", "cronjobs")),
    ("batch.volcano.sh", "v1alpha1", ("jobs",)),
)
WORKLOADS_SECONDS: Final = 2  # a person waits for it
VALIDATING: Final = (
    Hook(
        name="pods.validate",
        path="/validate/pods",
        resources=("pods",),
        operation="CREATE",
        asking=True,
        seconds=3,
    ),
)


def registrations(*, url: str | None = None, ca_bundle: bytes | None = None) -> tuple[Json, Json]:
    """Return the mutating and the validating webhook configuration.

    They point at our Service, or at *url*, e.g. ``https://127.0.0.1:8443``, for a webhook
    outside the cluster. Without *ca_bundle* (PEM) that field is left to its owner, the
    certificate writer, as the path of a Service always is.
    """
    mutating = [_entry(hook, url, ca_bundle) for hook in MUTATING]
    validating = [_entry(hook, url, ca_bundle) for hook in VALIDATING]
    validating.append(_workloads_entry(url, ca_bundle))
    for hook, entry in zip(MUTATING, mutating, strict=True):
        # An injector that runs after us may add a container; nobody adds to a Binding.
        entry["reinvocationPolicy"] = "Never" if hook.asking is None else "IfNeeded"
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
    return {
        "name": f"{hook.name}.{DOMAIN}",
        "clientConfig": _client(hook.path, url, ca_bundle),
        "rules": [_rule(("", "v1", hook.resources), hook.operation)],
        "namespaceSelector": opt_in_selector(),
        **_conditions(hook),
        "matchPolicy": "Equivalent",
        "failurePolicy": "Ignore" if hook.asking is False else "Fail",
        "timeoutSeconds": hook.seconds,
        "sideEffects": "NoneOnDryRun",  # decisions are recorded, those of a dry run are not
        "admissionReviewVersions": ["v1"],
    }


def _workloads_entry(url: str | None, ca_bundle: bytes | None) -> Json:
    """Return the hook that warns whoever applies a workload, and never refuses one."""
    conditions = {"makes-vgpu-pods": makes_vgpu_pods(), "changes-pods": changes_pods()}
    return {
        "name": f"workloads.{DOMAIN}",
        "clientConfig": _client("/validate/workloads", url, ca_bundle),
        "rules": [_rule(rule, "CREATE", "UPDATE") for rule in WORKLOADS],
        "namespaceSelector": opt_in_selector(),
        "matchConditions": [
            {"name": name, "expression": expression} for name, expression in conditions.items()
        ],
        "matchPolicy": "Equivalent",
        "failurePolicy": "Ignore",
        "timeoutSeconds": WORKLOADS_SECONDS,
        "sideEffects": "NoneOnDryRun",  # who applied what is recorded, but for a dry run
        "admissionReviewVersions": ["v1"],
    }


def _rule(rule: tuple[str, str, tuple[str, ...]], *operations: str) -> Json:
    group, version, resources = rule
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": list(operations),
        "resources": list(resources),
        "scope": "Namespaced",
    }


def _conditions(hook: Hook) -> Json:
    if hook.asking is None:
        return {}
    name, expression = (
        ("asks-for-vgpu", asks_for_vgpu()) if hook.asking else ("asks-for-no-vgpu", asks_for_none())
    )
    return {"matchConditions": [{"name": name, "expression": expression}]}


def _client(path: str, url: str | None, ca_bundle: bytes | None) -> Json:
    # The control plane writes the path of a Service, which ends in a secret. A path in what an
    # operator applies would take it away again with each apply.
    service = {"namespace": NAMESPACE, "name": SERVICE, "port": 443}
    client: Json = {"service": service} if url is None else {"url": f"{url}{path}"}
    if ca_bundle is not None:
        client["caBundle"] = base64.b64encode(ca_bundle).decode()
    return client
