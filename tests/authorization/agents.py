"""Rows about the node agent on Nodes, pods and Events: its own node's, and nobody else's."""

from typing import Final

from allocator.catalog.hami_keys import LOCK_ANNOTATION
from allocator.catalog.keys import (
    AGENT_LABEL,
    ASSIGNMENT_KEY,
    CAPACITY_KEY,
    DECISION_KEY,
    SERVED_BY_KEY,
)
from allocator.controllers.requeue import FREED_KEY
from allocator.metax.names import CARDS_KEY
from allocator.volcano.register import REGISTER_ANNOTATION
from tests.authorization.rows import (
    ALLOCATION,
    CLAIMS,
    FROZEN,
    NODE_METADATA,
    NODE_SPEC,
    NODE_STATUS,
    OTHER,
    OWN,
    OWN_NODE,
    OWN_PODS,
    POD,
    SIGNED,
    Row,
    capacity,
    label,
    metadata,
    note,
    status,
    taints,
)
from tests.authorization.world import IDS, MODE, OUR_TAINT, THEIR_TAINT, VISIBLE, event

SERIES: Final = {"series": {"count": 2, "lastObservedTime": "2026-11-21T17:01:00.000000Z"}}

AGENT_ON_NODES: Final = (
    Row("agent labels its node", OWN, "patch", "nodes gpu-1", label(AGENT_LABEL, "1")),
    Row("agent notes its capacity", OWN, "patch", "nodes gpu-1", note(CAPACITY_KEY)),
    Row("agent takes its taint off", OWN, "patch", "nodes gpu-1", taints(THEIR_TAINT)),
    Row(
        "agent writes capacity",
        OWN,
        "patch",
        "nodes/status gpu-1",
        capacity("volcano.sh/vgpu-number", "9"),
    ),
    Row(
        "agent offers what its capacity offers",
        OWN,
        "patch",
        "nodes/status gpu-1",
        status(allocatable={"aliyun.com/gpu-count": "3"}),
    ),
    Row(
        "agent takes capacity back",
        OWN,
        "patch",
        "nodes/status gpu-1",
        capacity("volcano.sh/vgpu-number", None),
    ),
    Row(
        "agent empties an annotation map that holds others'",
        OWN,
        "patch",
        "nodes gpu-1",
        metadata(annotations=None),
        (NODE_METADATA,),
    ),
    *(
        Row(f"agent {words}", OWN, "patch", f"nodes{where} gpu-1", change, (rule,))
        for words, where, change, rule in (
            ("takes another taint off", "", taints(OUR_TAINT), NODE_SPEC),
            ("takes all taints off", "", taints(), NODE_SPEC),
            ("removes the list of taints", "", {"spec": {"taints": None}}, NODE_SPEC),
            (
                "adds a taint",
                "",
                taints(OUR_TAINT, THEIR_TAINT, {**THEIR_TAINT, "key": "x"}),
                NODE_SPEC,
            ),
            (
                "changes its taint's effect",
                "",
                taints(THEIR_TAINT, {**OUR_TAINT, "effect": "NoExecute"}),
                NODE_SPEC,
            ),
            (
                "changes another taint's value",
                "",
                taints(OUR_TAINT, {**THEIR_TAINT, "value": "y"}),
                NODE_SPEC,
            ),
            ("cordons", "", {"spec": {"unschedulable": True}}, NODE_SPEC),
            ("labels", "", label("example.com/zone"), NODE_METADATA),
            ("labels for another's model", "", label("nvidia.com/gpu.product"), NODE_METADATA),
            ("labels by way of the status", "/status", label("example.com/zone"), NODE_METADATA),
            ("changes another's label", "", label("team"), NODE_METADATA),
            ("removes another's label", "", label("team", None), NODE_METADATA),
            ("registers with Volcano", "", note(REGISTER_ANNOTATION), NODE_METADATA),
            ("claims GPUs of MetaX's", "", note(CARDS_KEY), NODE_METADATA),
            ("takes the lock of the node", "", note(LOCK_ANNOTATION), NODE_METADATA),
            ("removes another's annotation", "", note("team", None), NODE_METADATA),
            (
                "removes another's annotation by way of the status",
                "/status",
                note("team", None),
                NODE_METADATA,
            ),
            ("wakes schedulers", "", note(FREED_KEY), NODE_METADATA),
            (
                "adds a finalizer",
                "",
                metadata(finalizers=["example.com/held", "example.com/x"]),
                NODE_METADATA,
            ),
            ("removes a finalizer", "", metadata(finalizers=None), NODE_METADATA),
            ("empties the finalizers", "", metadata(finalizers=[]), NODE_METADATA),
            ("changes cpu", "/status", capacity("cpu", "64"), NODE_STATUS),
            ("removes cpu", "/status", capacity("cpu", None), NODE_STATUS),
            ("adds huge pages", "/status", capacity("hugepages-2Mi", "2Mi"), NODE_STATUS),
            (
                "adds an attachment limit",
                "/status",
                capacity("attachable-volumes.kubernetes.io/x", "9"),
                NODE_STATUS,
            ),
            ("removes all capacity", "/status", status(capacity=None), NODE_STATUS),
            (
                "writes what of its processors can be allocated",
                "/status",
                status(allocatable={"cpu": "64"}),
                NODE_STATUS,
            ),
            (
                "says that it is ready",
                "/status",
                status(conditions=[{"type": "Ready", "status": "True"}]),
                NODE_STATUS,
            ),
            ("removes the conditions", "/status", status(conditions=None), NODE_STATUS),
            (
                "writes another address",
                "/status",
                status(addresses=[{"type": "InternalIP", "address": "10.0.0.9"}]),
                NODE_STATUS,
            ),
            (
                "moves kubelet's port",
                "/status",
                status(daemonEndpoints={"kubeletEndpoint": {"Port": 1}}),
                NODE_STATUS,
            ),
            ("declares a feature", "/status", status(declaredFeatures=["X"]), NODE_STATUS),
            ("writes a phase", "/status", status(phase="Running"), NODE_STATUS),
        )
    ),
    *(
        Row(f"agent {claim} {words}", who, "patch", f"nodes{where} gpu-1", change, (OWN_NODE,))
        for claim, who in {"of-another-node": OTHER, **CLAIMS}.items()
        for words, where, change in (
            ("takes the taint off", "", taints(THEIR_TAINT)),
            ("writes capacity", "/status", capacity("volcano.sh/vgpu-number", "0")),
        )
    ),
)

AGENT_ON_PODS: Final = (
    Row("agent notes instances", OWN, "patch", "pods team/bound", note(VISIBLE, "MIG-2")),
    Row("agent removes its note", OWN, "patch", "pods team/bound", note(VISIBLE, None)),
    Row(
        "agent notes instances of an init container",
        OWN,
        "patch",
        "pods plain/bound",
        note("vgpu-admission.io/i3.visible"),
    ),
    *(
        Row(
            f"agent writes on a pod: {words}", OWN, "patch", "pods team/bound", change, (POD, *more)
        )
        for words, change, *more in (
            ("assignment", note(ASSIGNMENT_KEY)),
            ("decision", note(DECISION_KEY)),
            ("no decision", note(DECISION_KEY, None)),
            ("who serves it", note(SERVED_BY_KEY, "upstream")),
            ("a key that begins as its own", note("vgpu-admission.io/c0.visible2")),
            ("a key that ends as its own", note("vgpu-admission.io/xc0.visible")),
            ("a key of a look-alike domain", note("vgpu-admissionXio/c0.visible")),
            ("another's annotation", note("example.com/x")),
            ("mode", note(MODE, "hami-core"), FROZEN),
            ("no mode", note(MODE, None), FROZEN),
            ("CDI device", note("cdi.k8s.io/x"), FROZEN),
            ("allocation", note(IDS), ALLOCATION),
            ("no annotations at all", metadata(annotations=None), FROZEN, ALLOCATION),
            (
                "empty annotations",
                metadata(annotations=dict.fromkeys((DECISION_KEY, VISIBLE, MODE, IDS))),
                FROZEN,
                ALLOCATION,
            ),
            ("label", label("example.com/x")),
            ("no label", label("team", None)),
            ("finalizer", metadata(finalizers=["example.com/x"])),
            (
                "owner",
                metadata(
                    ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}]
                ),
            ),
            ("deadline", {"spec": {"activeDeadlineSeconds": 1}}),
            ("image", {"spec": {"containers": [{"name": "main", "image": "x"}]}}),
        )
    ),
    *(
        Row(
            f"agent {claim} notes instances",
            who,
            "patch",
            "pods team/bound",
            note(VISIBLE, "MIG-2"),
            (OWN_PODS, FROZEN),
        )
        for claim, who in {"of-another-node": OTHER, **CLAIMS}.items()
    ),
    *(
        Row(
            f"agent {claim} notes instances of a pod that waits",
            who,
            "patch",
            "pods team/waiting",
            note(VISIBLE),
            (OWN_PODS, FROZEN),
        )
        for claim, who in {
            "of-a-node": OWN,
            "with-an-empty-claim": CLAIMS["with-an-empty-claim"],
        }.items()
    ),
)


EVENT: Final = "events team/new"
AGENT_ON_EVENTS: Final = (
    Row("agent signs an Event", OWN, "create", EVENT, event("new")),
    Row("agent counts up its Event", OWN, "patch", "events team/own", SERIES),
    *(
        Row(f"agent {words}", who, "create", EVENT, event("new", **parts), (SIGNED,))
        for words, who, parts in (
            ("of another node signs as this one", OTHER, {}),
            ("signs as another node", OWN, {"reportingInstance": "gpu-2"}),
            ("signs as kubelet", OWN, {"reportingController": "kubelet"}),
            ("signs as a look-alike", OWN, {"reportingController": "vgpu-admission.io/agents"}),
            ("without claims signs", CLAIMS["without-claims"], {}),
        )
    ),
    Row("agent counts up kubelet's Event", OWN, "patch", "events team/kubelets", SERIES, (SIGNED,)),
    Row("agent of another node counts up", OTHER, "patch", "events team/own", SERIES, (SIGNED,)),
)

AGENTS: Final = (*AGENT_ON_NODES, *AGENT_ON_PODS, *AGENT_ON_EVENTS)
