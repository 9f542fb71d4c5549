"""What rows of the table are made of: subjects, rules and changes.

A row says who sends which request and which rule refuses it, exactly; a row without one says that
the request passes. ``RBAC`` refuses before any policy is asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from allocator.catalog.keys import CAPACITY_KEY
from manifests.generator.names import AGENT, CONTROL_PLANE, NAMESPACE, NODE_CLAIM, Json
from manifests.generator.policies import PLUGINS, SCHEDULERS


@dataclass(frozen=True, slots=True)
class Subject:
    """A user, and what its token says beside the name."""

    user: str
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rule:
    """What refuses or warns: a policy, and words that only one of its rules says."""

    policy: str
    words: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One request and its answer; *change* is an object to create or else a merge patch.

    Without a change it is not sent, because nothing but a role decides.
    """

    id: str
    who: Subject
    verb: str
    what: str
    change: Json | None = None
    by: tuple[Rule, ...] = ()
    warned: tuple[Rule, ...] = ()
    installed: str = "base"


RBAC: Final = Rule("rbac")
FROZEN: Final = Rule("frozen", "cannot change; recreate the pod")
ALLOCATION: Final = Rule("frozen", "only the scheduler may write it")
ASKS: Final = Rule("unlabelled", "the pod asks for vGPU")
FORGED: Final = Rule("unlabelled", "may be written only by schedulers and vgpu-admission")
NAMES_GPUS: Final = Rule("hidden", "may not set NVIDIA_VISIBLE_DEVICES")
CROWDED: Final = Rule("hidden", "has more than 10000 variables")
PROMISES: Final = Rule("gpunodes", "only the control plane of vgpu-admission may create a GPUNode")
DELETES: Final = Rule("gpunodes", "only the control plane of vgpu-admission may delete a GPUNode")
STATUS: Final = Rule("gpunodes", "only the agent of a node may write the status")
OWNER: Final = Rule("gpunodes", "must have no owner")
OWN_NODE: Final = Rule("agents-nodes", "only its own Node")
NODE_METADATA: Final = Rule("agents-nodes", f"{CAPACITY_KEY} on its Node")
NODE_SPEC: Final = Rule("agents-nodes", "from its Node's spec")
NODE_STATUS: Final = Rule("agents-nodes", "only capacity of extended resources")
OWN_PODS: Final = Rule("agents-pods", "pods of its own node only")
POD: Final = Rule("agents-pods", "only which instances it was given")
SIGNED: Final = Rule("agents-events", "of its own node")
FEW: Final = Rule("control-plane", "may change only a few annotations of a Node")
ERROR: Final = Rule("agents-gpunodes", "resulted in error")


def agent_of(node: str) -> Subject:
    return Subject(AGENT, {NODE_CLAIM: node})


OWN: Final = agent_of("gpu-1")
OTHER: Final = agent_of("gpu-2")
# Tokens that name no node, or not in the field that the API server fills from a pod's own token.
CLAIMS: Final = {
    "without-claims": Subject(AGENT),
    "with-an-empty-claim": agent_of(""),
    "of-a-node-with-a-longer-name": agent_of("gpu-10"),
    "of-a-node-with-a-shorter-name": agent_of("gpu"),
    "of-two-nodes-in-one-name": agent_of("gpu-1,gpu-2"),
    "of-a-pod-named-as-the-node": Subject(
        AGENT, {"authentication.kubernetes.io/pod-name": "gpu-1"}
    ),
    "with-a-claim-of-another-domain": Subject(AGENT, {"example.com/node-name": "gpu-1"}),
}
WEBHOOK: Final = Subject(CONTROL_PLANE)
WEBHOOK_ON_NODE: Final = Subject(CONTROL_PLANE, {NODE_CLAIM: "gpu-1"})
OUR_SCHEDULER: Final = Subject(f"system:serviceaccount:{NAMESPACE}:vgpu-scheduler")
KUBE_SCHEDULER: Final = Subject("system:kube-scheduler")
VOLCANO: Final = Subject(SCHEDULERS[0])
HAMI_SCHEDULER: Final = Subject(SCHEDULERS[1])
PLUGIN: Final = Subject(PLUGINS[0])
HAMI_PLUGIN: Final = Subject(PLUGINS[1])
TENANT: Final = Subject("tenant")
OPERATOR: Final = Subject("operator")
READER: Final = Subject("reader")
KUBELET: Final = Subject("system:node:gpu-1")
STRANGER: Final = Subject("stranger", {NODE_CLAIM: "gpu-1"})
# Accounts of a tenant's namespace that are named as ours and Volcano's.
FALSE_AGENT: Final = Subject("system:serviceaccount:team:vgpu-agent", {NODE_CLAIM: "gpu-1"})
FALSE_WEBHOOK: Final = Subject("system:serviceaccount:team:vgpu-webhook")
FALSE_SCHEDULER: Final = Subject("system:serviceaccount:team:volcano-scheduler")


def metadata(**parts: object) -> Json:
    return {"metadata": parts}


def note(key: str, value: str | None = "x") -> Json:
    return metadata(annotations={key: value})


def label(key: str, value: str | None = "x") -> Json:
    return metadata(labels={key: value})


def capacity(name: str, amount: str | None) -> Json:
    return {"status": {"capacity": {name: amount}}}


def taints(*left: Json) -> Json:
    return {"spec": {"taints": list(left)}}


def status(**parts: object) -> Json:
    return {"status": parts}


def roles(
    who: Subject, by: tuple[Rule, ...], requests: str, *, installed: str = "base"
) -> list[Row]:
    """Return a row for each verb of each line, which says what they are used on."""
    lines = [line.strip().partition(" ") for line in requests.strip().splitlines()]
    name = who.user.rpartition(":")[2]
    end = "" if installed == "base" else f" with {installed}"
    return [
        Row(f"{name} {verb} {what}{end}", who, verb, what, by=by, installed=installed)
        for verbs, _, what in lines
        for verb in verbs.split(",")
    ]
