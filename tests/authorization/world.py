"""The cluster that the table is about: its objects, and the roles that a site adds to ours."""

from typing import Final

from allocator.catalog.keys import (
    DECISION_KEY,
    NOT_READY_TAINT,
    OPT_IN_LABEL,
    OPT_IN_VALUE,
    SERVED_BY_KEY,
)
from allocator.ledger.schema import FORMER_FINALIZER
from manifests.generator.names import (
    HAMI,
    REPORTER,
    UPSTREAM,
    Json,
)
from manifests.generator.policies import PLUGINS, SCHEDULERS

IDS: Final = "volcano.sh/vgpu-ids-new"
MODE: Final = "volcano.sh/vgpu-mode"
VISIBLE: Final = "vgpu-admission.io/c0.visible"

NAMESPACES: Final = {"team": {OPT_IN_LABEL: OPT_IN_VALUE}, "plain": {"team": "theirs"}}
OUR_TAINT: Final = {"key": NOT_READY_TAINT, "effect": "NoSchedule"}
THEIR_TAINT: Final = {"key": "dedicated", "value": "training", "effect": "NoSchedule"}


def _node(name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"team": "theirs"},
            "annotations": {"team": "theirs"},
            "finalizers": ["example.com/held"],
        },
        "spec": {"taints": [OUR_TAINT, THEIR_TAINT], "providerID": f"example://{name}"},
        "status": {
            "capacity": {"cpu": "2", "volcano.sh/vgpu-number": "4"},
            "conditions": [{"type": "Ready", "status": "False"}],
        },
    }


def _pod(name: str, node: str = "", namespace: str = "team", **annotations: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"team": "theirs"},
            "annotations": {DECISION_KEY: "k7q2", MODE: "mig", IDS: "GPU-1", **annotations},
        },
        "spec": {
            "containers": [{"name": "main", "image": "none"}],
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": "Pending"},
    }


def gpunode(name: str, **metadata: object) -> Json:
    """Return a ledger without promises that has all that a policy wants of one."""
    return {
        "apiVersion": "vgpu-admission.io/v1alpha1",
        "kind": "GPUNode",
        "metadata": {"name": name, **metadata},
        "spec": {"entries": []},
    }


def event(name: str, **parts: object) -> Json:
    """Return an Event as the agent of gpu-1 signs it, but for *parts*."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "team"},
        "eventTime": "2026-11-21T17:00:00.000000Z",
        "type": "Normal",
        "reason": "VgpuAllocated",
        "action": "Allocate",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "bound", "namespace": "team"},
        "reportingController": REPORTER,
        "reportingInstance": "gpu-1",
    } | parts


KEPT: Final = "kept"  # a ledger with the finalizer of an earlier release
DELETED: Final = "gone"  # a ledger that somebody deletes, and that a finalizer keeps
OBJECTS: Final = {
    **{f"nodes {name}": _node(name) for name in ("gpu-1", "gpu-2")},
    "pods team/waiting": _pod("waiting"),
    "pods team/bound": _pod("bound", "gpu-1", **{VISIBLE: "MIG-1"}),
    "pods team/upstream": _pod("upstream", "gpu-1", **{SERVED_BY_KEY: UPSTREAM}),
    "pods team/hami": _pod("hami", "gpu-1", **{SERVED_BY_KEY: HAMI}),
    "pods plain/bound": _pod("bound", "gpu-1", "plain"),
    **{f"gpunodes {name}": gpunode(name) for name in ("gpu-1", "gpu-2")},
    f"gpunodes {KEPT}": gpunode(KEPT, finalizers=[FORMER_FINALIZER]),
    f"gpunodes {DELETED}": gpunode(
        DELETED, finalizers=[FORMER_FINALIZER], deletionTimestamp="2026-11-21T17:00:00Z"
    ),
    "events team/own": event("own"),
    "events team/kubelets": event("kubelets", reportingController="kubelet"),
}

_RBAC: Final = "rbac.authorization.k8s.io"


def _role(name: str, *rules: tuple[str, str, str]) -> Json:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [
            {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
            for group, resources, verbs in rules
        ],
    }


def _bound(role: str, *users: str, namespace: str = "", kind: str = "User") -> Json:
    where = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": f"{role}-{kind.lower()}", **where},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _RBAC, "kind": kind, "name": user} for user in users],
    }


SITE: Final = (
    # More than the role edit, so that policies are put to the test where RBAC says yes.
    _role(
        "site-tenant",
        ("", "pods", "create get list patch update delete"),
        ("", "pods/status pods/ephemeralcontainers pods/resize", "patch update"),
    ),
    *(_bound("site-tenant", "tenant", namespace=name) for name in NAMESPACES),
    # Accounts of the tenant's own namespace, whatever their names are.
    _bound("site-tenant", "system:serviceaccounts:team", namespace="team", kind="Group"),
    _role("site-operator", ("*", "*", "*")),
    _bound("site-operator", "operator"),
    _bound("vgpu-reader", "reader"),
    _role(
        "site-volcano",
        ("", "pods pods/status", "get list watch update patch"),
        ("", "nodes", "get list watch patch"),
    ),
    _bound("site-volcano", *SCHEDULERS, *PLUGINS),
    _role("site-kubelet", ("", "nodes nodes/status", "get patch")),
    _bound("site-kubelet", "system:node:gpu-1"),
)

# What the API server brings itself, as far as rows concern it; never applied to a real one.
BOOTSTRAP: Final = (
    _role(
        "system:kube-scheduler",
        ("", "pods", "get list watch delete"),
        ("", "pods/binding bindings", "create"),
        ("", "pods/status", "patch update"),
        ("", "nodes namespaces", "get list watch"),
    ),
    _bound("system:kube-scheduler", "system:kube-scheduler"),
    _role("system:volume-scheduler"),
    _role("extension-apiserver-authentication-reader")
    | {
        "kind": "Role",
        "metadata": {
            "name": "extension-apiserver-authentication-reader",
            "namespace": "kube-system",
        },
    },
)
