"""The JSON of kube-scheduler's extender protocol, ``k8s.io/kube-scheduler/extender/v1``.

Its Go structs have no JSON tags, so keys are capitalised as below, and every list or map may be
null. Nodes and pods inside are ordinary API objects in camel case.
"""

from typing import Annotated, Final

import msgspec

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]  # Go reads it back, in 64 bits


class _Wire(msgspec.Struct, frozen=True, rename="pascal", gc=False):
    """Base with capitalised keys; fields of newer schedulers are ignored."""


class NodeList(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Whole nodes, not decoded: a filter returns those that fit as they came."""

    items: tuple[msgspec.Raw, ...] | None = None


class ExtenderArgs(_Wire, frozen=True, kw_only=True):
    """A question about one pod: by name where we are ``nodeCacheCapable``, else in full."""

    pod: msgspec.Raw
    nodes: NodeList | None = None
    node_names: tuple[str, ...] | None = None


class ExtenderFilterResult(_Wire, frozen=True, kw_only=True):
    """The nodes that fit, and of the others why not.

    ``node_names`` is never null where names were asked about: the scheduler would take null for
    an empty list, and report no reasons. Preemption skips nodes in the last map.
    """

    nodes: NodeList | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str]
    failed_and_unresolvable_nodes: dict[str, str]
    error: str = ""


class HostPriority(_Wire, frozen=True, kw_only=True):
    """A node's score, 0 to 10."""

    host: str
    score: int


class ExtenderBindingArgs(_Wire, frozen=True, kw_only=True):
    """Which pod is to go to which node."""

    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


class ExtenderBindingResult(_Wire, frozen=True, kw_only=True):
    """An empty ``error`` means that the pod was bound."""

    error: str = ""


class VictimMetadata(msgspec.Struct, frozen=True, gc=False):
    """Which pod a victim is."""

    uid: str = ""


class VictimPod(msgspec.Struct, frozen=True, gc=False):
    """A victim as a whole pod, of which only the uid is read: the index knows the rest."""

    metadata: VictimMetadata = VictimMetadata()


class Victims(_Wire, frozen=True, kw_only=True):
    """What the scheduler would evict from one node; sent where we are not cache capable."""

    pods: tuple[VictimPod, ...] | None = None
    num_pdb_violations: _Count = msgspec.field(name="NumPDBViolations", default=0)


class MetaPod(msgspec.Struct, frozen=True, gc=False):
    """A pod by its uid."""

    uid: str = msgspec.field(name="UID", default="")


class MetaVictims(_Wire, frozen=True, kw_only=True):
    """The same by uid; the only form of an answer."""

    pods: tuple[MetaPod, ...] | None = None
    num_pdb_violations: _Count = msgspec.field(name="NumPDBViolations", default=0)


class ExtenderPreemptionArgs(_Wire, frozen=True, kw_only=True):
    """A preemptor, and by node whom the scheduler would evict for it."""

    pod: msgspec.Raw
    node_name_to_victims: dict[str, Victims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class ExtenderPreemptionResult(_Wire, frozen=True, kw_only=True):
    """By node whom to evict; a node that eviction does not help is left out."""

    node_name_to_meta_victims: dict[str, MetaVictims]


ARGS: Final = msgspec.json.Decoder(ExtenderArgs)
BINDING_ARGS: Final = msgspec.json.Decoder(ExtenderBindingArgs)
PREEMPTION_ARGS: Final = msgspec.json.Decoder(ExtenderPreemptionArgs)
