"""The 500 reviews that the webhook is measured with, as an API server would send them.

There are two sets. In one all pods are different: each asks for something else (amounts,
vocabulary, mode, accepted models, and which containers ask) and has an owner of its own. In the
other most are replicas of a workload. Around that stands what real pods carry, filled up to 8 KiB.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any, Final

from allocator.catalog.vocabularies import GPUSHARE, VOLCANO
from allocator.request.quantity import canonical

Json = dict[str, Any]

SIZE: Final = 8192  # bytes of each
NAMESPACES: Final = 20
# How the uids of reviews and of owners begin. A review that is sent again has another uid, and its
# owner a new one in each round, so that no round repeats the one before.
REVIEW_UID: Final = "705ab4f5-6393-11e8-b7cc-"
OWNER_UID: Final = "3f0d3b6a-8c1d-4c39-8b5b-"
TOKEN_VOLUME: Final = b"kube-api-access-00000"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewShape:
    """What makes one review differ from all others; ``layout`` says which containers ask."""

    resources: tuple[tuple[str, int], ...]
    mode: str
    models: str
    layout: str


_MEMORY: Final = tuple(range(1000, 40_000, 2000))
_RESOURCES: Final = (
    *(((VOLCANO.count, 1), (VOLCANO.memory, memory)) for memory in _MEMORY),
    *(((VOLCANO.count, 1), (VOLCANO.memory, memory), (VOLCANO.cores, 30)) for memory in _MEMORY),
    *(((VOLCANO.count, 1), (VOLCANO.percent, percent)) for percent in (10, 25, 50, 75)),
    *(((VOLCANO.count, 2), (VOLCANO.memory, memory)) for memory in (2000, 8000, 12_000)),
    *(((GPUSHARE.memory, memory),) for memory in (2, 4, 14)),
)
_MODES: Final = ("", "hami-core", "mig")
_MODELS: Final = ("", "A100")
# How many workloads have so many pods. Pods come by the thousand where controllers scale, so most
# are of ReplicaSets and Jobs with many. 50 of these 500 are alone, and share nothing with others.
WORKLOADS: Final = {1: 50, 5: 10, 20: 10, 50: 4}
# Most pods have one container, some a sidecar that asks for nothing; few have two that ask.
_LAYOUTS: Final = {"alone": 300, "beside": 100, "both": 50, "init": 50}


def shapes() -> Iterator[ReviewShape]:
    """Yield 500 distinct shapes in an order that looks random and never changes."""
    random = Random("reviews")
    layouts = [layout for layout, count in _LAYOUTS.items() for _ in range(count)]
    asks = {
        layout: random.sample([*product(_RESOURCES, _MODES, _MODELS)], count)
        for layout, count in _LAYOUTS.items()
    }
    random.shuffle(layouts)
    for layout in layouts:
        resources, mode, models = asks[layout].pop()
        named = tuple((str(name), amount) for name, amount in resources)
        yield ReviewShape(resources=named, mode=mode, models=models, layout=layout)


def reviews() -> Iterator[bytes]:
    """Yield one review of exactly 8 KiB for each shape."""
    for number, shape in enumerate(shapes()):
        yield _sized_review(shape, number, workload=number)


def replica_reviews() -> Iterator[bytes]:
    """Yield 500 reviews of the pods of ``WORKLOADS``, whose controllers work at the same time."""
    sizes = [size for size, count in WORKLOADS.items() for _ in range(count)]
    owners = [workload for workload, size in enumerate(sizes) for _ in range(size)]
    Random("replicas").shuffle(owners)
    asked = list(shapes())
    for number, workload in enumerate(owners):
        yield _sized_review(asked[workload], number, workload=workload)


def _sized_review(shape: ReviewShape, number: int, *, workload: int) -> bytes:
    pod = _pod(shape, workload)
    missing = SIZE - len(_encode(_review(pod, number)))
    if missing < 0:
        raise ValueError(f"review {number} is {-missing} bytes over {SIZE}")
    pod["metadata"]["annotations"]["example.com/notes"] += "." * missing
    # The API server draws such a name for each pod, so no two replicas are equal.
    return _encode(_review(pod, number)).replace(
        TOKEN_VOLUME, b"%b%05d" % (TOKEN_VOLUME[:-5], number)
    )


def _encode(document: Json) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _review(pod: Json, number: int) -> Json:
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    request: Json = {
        "uid": f"{REVIEW_UID}{number:012d}",
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "namespace": pod["metadata"]["namespace"],
        "operation": "CREATE",
        "userInfo": {
            "username": "system:serviceaccount:kube-system:replicaset-controller",
            "uid": "9d4e9b6a-2c61-4b0a-9d0b-6f7f5a1f2a10",
            "groups": [
                "system:serviceaccounts",
                "system:serviceaccounts:kube-system",
                "system:authenticated",
            ],
        },
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def _mode_annotation(shape: ReviewShape) -> dict[str, str]:
    """Return what names the mode; mig does not go with gpushare's resources, so they isolate."""
    if shape.mode == "mig" and GPUSHARE.memory in dict(shape.resources):
        return {GPUSHARE.isolate_key or "": "true"}
    return {VOLCANO.mode_key or "": shape.mode} if shape.mode else {}


def _pod(shape: ReviewShape, number: int) -> Json:
    app = f"model-{number:03d}"
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": "9090"}
    annotations |= _mode_annotation(shape)
    annotations |= {VOLCANO.use_models or "": shape.models} if shape.models else {}
    metadata = {
        "generateName": f"{app}-6d4cf56db6-",
        "namespace": f"team-{number % NAMESPACES}",
        "creationTimestamp": None,
        "labels": {
            "app.kubernetes.io/name": app,
            "app.kubernetes.io/managed-by": "Helm",
            "pod-template-hash": "6d4cf56db6",
        },
        "annotations": annotations | {"example.com/notes": ""},
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": f"{app}-6d4cf56db6",
                "uid": f"{OWNER_UID}{number:012d}",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "managedFields": _managed_fields(),
    }
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": metadata,
        "spec": _containers(shape) | _SPEC,
        "status": {},
    }


def _containers(shape: ReviewShape) -> Json:
    limits = {name: canonical(amount) for name, amount in shape.resources}
    main = _container("main", limits, variables=20)
    match shape.layout:
        case "alone":
            return {"containers": [main]}
        case "beside":
            return {"containers": [main, _container("proxy", {}, variables=4)]}
        case "both":
            return {"containers": [main, _container("draft", limits, variables=4)]}
        case _:
            first = _container("warm-up", limits, variables=4)
            return {"initContainers": [first], "containers": [main]}


def _container(name: str, limits: Mapping[str, str], *, variables: int) -> Json:
    amounts = {**limits, "cpu": "4", "memory": "16Gi"}
    settings = [{"name": f"SERVICE_OPTION_{k}", "value": f"value-{k}"} for k in range(variables)]
    secret = {"name": "database", "key": "password"}
    return {
        "name": name,
        "image": f"registry.example.com/team/{name}@sha256:{'0123456789abcdef' * 4}",
        "command": ["python", "-m", "serve"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [
            {"name": "DB_PASSWORD", "valueFrom": {"secretKeyRef": secret}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            *settings,
        ],
        "resources": {"limits": amounts, "requests": amounts},
        "volumeMounts": [
            {"name": "models", "mountPath": "/models", "readOnly": True},
            {"name": "scratch", "mountPath": "/scratch"},
            {
                "name": TOKEN_VOLUME.decode(),
                "readOnly": True,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            },
        ],
        "readinessProbe": {
            "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
            "initialDelaySeconds": 5,
            "periodSeconds": 10,
            "timeoutSeconds": 1,
            "successThreshold": 1,
            "failureThreshold": 3,
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"allowPrivilegeEscalation": False, "runAsUser": 1000},
    }


_SPEC: Final[Json] = {
    "volumes": [
        {"name": "models", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
        {"name": "scratch", "emptyDir": {"sizeLimit": "20Gi"}},
        {
            "name": TOKEN_VOLUME.decode(),
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {
                        "configMap": {
                            "name": "kube-root-ca.crt",
                            "items": [{"key": "ca.crt", "path": "ca.crt"}],
                        }
                    },
                ],
                "defaultMode": 420,
            },
        },
    ],
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "serviceAccountName": "models",
    "serviceAccount": "models",
    "securityContext": {"fsGroup": 1000},
    "schedulerName": "default-scheduler",
    "tolerations": [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {
            "key": "node.kubernetes.io/not-ready",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        },
        {
            "key": "node.kubernetes.io/unreachable",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        },
    ],
    "priority": 0,
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}


def _managed_fields() -> list[Json]:
    """Return who owns which field: the bulk of what an API server sends and nobody reads."""
    of_container: Json = {".": {}} | {
        f"f:{field}": {}
        for field in (
            *("command", "image", "imagePullPolicy", "name", "terminationMessagePath"),
            *("terminationMessagePolicy", "livenessProbe", "readinessProbe", "securityContext"),
        )
    }
    of_env = {f'k:{{"name":"SERVICE_OPTION_{k}"}}': _OWNED for k in range(20)}
    fields = {
        "f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:app": {}}},
        "f:spec": {
            "f:containers": {'k:{"name":"main"}': of_container | {"f:env": {".": {}} | of_env}},
            "f:dnsPolicy": {},
            "f:restartPolicy": {},
            "f:schedulerName": {},
            "f:volumes": {".": {}},
        },
    }
    return [
        {
            "manager": "kube-controller-manager",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-11-21T12:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }
    ]


_OWNED: Final[Json] = {".": {}, "f:name": {}, "f:value": {}}
