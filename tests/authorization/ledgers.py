"""Rows about everybody else: promises, Nodes, and the annotations of pods."""

from typing import Final

from allocator.catalog.keys import AGENT_LABEL, CAPACITY_KEY
from manifests.generator.controlplane import WRITTEN
from manifests.generator.names import Json
from tests.authorization.rows import (
    DELETES,
    FEW,
    KUBELET,
    OPERATOR,
    OWNER,
    PROMISES,
    STATUS,
    VOLCANO,
    WEBHOOK,
    WEBHOOK_ON_NODE,
    Row,
    label,
    metadata,
    note,
    status,
    taints,
)
from tests.authorization.world import DELETED, KEPT, THEIR_TAINT, gpunode

_PROMISE: Final[Json] = {"spec": {"entries": [{}]}}
_NO_FINALIZERS: Final = metadata(finalizers=None)
_LEDGER: Final = "gpunodes gpu-1"
_OWNED: Final = metadata(
    ownerReferences=[{"apiVersion": "v1", "kind": "Node", "name": "gpu-1", "uid": "1"}]
)

LEDGERS: Final = (
    Row("webhook creates a ledger", WEBHOOK, "create", "gpunodes new", gpunode("new")),
    Row("webhook promises", WEBHOOK, "patch", _LEDGER, _PROMISE),
    Row("webhook closes a node", WEBHOOK, "patch", "gpunodes/status gpu-1", status(gpus=[])),
    Row("webhook deletes a ledger", WEBHOOK, "delete", _LEDGER, {}),
    Row(
        "webhook lets a deleted ledger go", WEBHOOK, "patch", f"gpunodes {DELETED}", _NO_FINALIZERS
    ),
    Row(
        "webhook removes a finalizer of a ledger",
        WEBHOOK,
        "patch",
        f"gpunodes {KEPT}",
        _NO_FINALIZERS,
    ),
    *(
        Row(f"webhook {words}", WEBHOOK, verb, what, change, tuple(rules))
        for words, verb, what, change, *rules in (
            (
                "creates a ledger with an owner",
                "create",
                "gpunodes new",
                gpunode("new", **_OWNED["metadata"]),
                OWNER,
            ),
            ("gives a ledger an owner", "patch", _LEDGER, _OWNED, OWNER),
        )
    ),
    *(
        Row(f"operator {words}", OPERATOR, verb, what, change, tuple(rules))
        for words, verb, what, change, *rules in (
            ("labels a ledger", "patch", _LEDGER, label("example.com/x")),
            ("creates a ledger", "create", "gpunodes new", gpunode("new"), PROMISES),
            (
                "creates a ledger with a finalizer",
                "create",
                "gpunodes new",
                gpunode("new", finalizers=["example.com/x"]),
                PROMISES,
            ),
            ("promises", "patch", _LEDGER, _PROMISE, PROMISES),
            ("removes all promises", "patch", _LEDGER, {"spec": {"entries": None}}, PROMISES),
            ("deletes a ledger", "delete", _LEDGER, {}, DELETES),
            ("deletes a kept ledger", "delete", f"gpunodes {KEPT}", {}, DELETES),
            (
                "adds a finalizer",
                "patch",
                _LEDGER,
                metadata(finalizers=["example.com/x"]),
                PROMISES,
            ),
            (
                "adds a second finalizer",
                "patch",
                f"gpunodes {KEPT}",
                metadata(finalizers=["vgpu-admission.io/ledger", "example.com/x"]),
                PROMISES,
            ),
            (
                "swaps a finalizer",
                "patch",
                f"gpunodes {KEPT}",
                metadata(finalizers=["example.com/x"]),
                PROMISES,
            ),
            ("removes a finalizer", "patch", f"gpunodes {KEPT}", _NO_FINALIZERS),
            ("empties the finalizers", "patch", f"gpunodes {KEPT}", metadata(finalizers=[])),
            ("lets a deleted ledger go", "patch", f"gpunodes {DELETED}", _NO_FINALIZERS),
            (
                "removes finalizer and promises",
                "patch",
                f"gpunodes {KEPT}",
                {**_NO_FINALIZERS, **_PROMISE},
                PROMISES,
            ),
            ("gives a ledger an owner", "patch", _LEDGER, _OWNED, OWNER),
            ("reports", "patch", "gpunodes/status gpu-1", status(driver="1"), STATUS),
        )
    ),
)

NODES: Final = (
    *(Row(f"webhook writes {key}", WEBHOOK, "patch", "nodes gpu-1", note(key)) for key in WRITTEN),
    *(
        Row(f"webhook {words}", who, "patch", "nodes gpu-1", change, (FEW,))
        for words, who, change in (
            ("annotates a Node", WEBHOOK, note("example.com/x")),
            ("changes another's annotation", WEBHOOK, note("team")),
            ("removes another's annotation", WEBHOOK, note("team", None)),
            ("removes all annotations", WEBHOOK, metadata(annotations=None)),
            ("writes what an agent writes", WEBHOOK, note(CAPACITY_KEY)),
            ("labels a Node", WEBHOOK, label("example.com/x")),
            ("labels a Node as its agent", WEBHOOK, label(AGENT_LABEL)),
            ("removes another's label", WEBHOOK, label("team", None)),
            ("cordons", WEBHOOK, {"spec": {"unschedulable": True}}),
            ("takes all taints off", WEBHOOK, taints()),
            ("takes the agent's taint off", WEBHOOK, taints(THEIR_TAINT)),
            ("on the node takes the agent's taint off", WEBHOOK_ON_NODE, taints(THEIR_TAINT)),
            ("removes a finalizer", WEBHOOK, metadata(finalizers=None)),
        )
    ),
    Row("operator cordons", OPERATOR, "patch", "nodes gpu-1", {"spec": {"unschedulable": True}}),
    Row("operator takes all taints off", OPERATOR, "patch", "nodes gpu-1", taints()),
    Row("scheduler locks a Node", VOLCANO, "patch", "nodes gpu-1", note("volcano.sh/vgpu-lock")),
    Row(
        "kubelet says that it is ready",
        KUBELET,
        "patch",
        "nodes/status gpu-1",
        status(conditions=[{"type": "Ready", "status": "True"}]),
    ),
)
OTHERS: Final = (*LEDGERS, *NODES)
